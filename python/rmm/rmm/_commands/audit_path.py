# SPDX-License-Identifier: Apache-2.0
"""Prints the path of librmm_audit.so, which lists what other libraries allocate outside of the pool."""

from __future__ import annotations

import argparse

from rmm._commands.shipped_library import print_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(options: argparse.Namespace) -> int:
    return print_path("librmm_audit.so")
