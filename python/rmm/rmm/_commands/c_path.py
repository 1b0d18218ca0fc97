# SPDX-License-Identifier: Apache-2.0
"""Prints the path of the library with the C interface."""

from __future__ import annotations

import argparse

from rmm._commands.shipped_library import print_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(options: argparse.Namespace) -> int:
    return print_path("librmm_c.so.1")
