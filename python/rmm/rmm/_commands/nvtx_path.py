# SPDX-License-Identifier: Apache-2.0
"""Prints the path of librmm_nvtx.so, which makes tags from NVTX ranges."""

from __future__ import annotations

import argparse

from rmm._commands.shipped_library import print_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(options: argparse.Namespace) -> int:
    return print_path("librmm_nvtx.so")
