# SPDX-License-Identifier: Apache-2.0
"""The library with the C interface, which comes with the package."""

from __future__ import annotations

import argparse

from rmm._commands.shipped_library import print_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(options: argparse.Namespace) -> int:
    return print_path("librmm_c.so.1")
