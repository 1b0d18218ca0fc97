# SPDX-License-Identifier: Apache-2.0
"""Finds the libraries in the package that other programs load."""

from __future__ import annotations

import sys

import librmm


def print_path(file: str) -> int:
    """Prints the path of a library; returns the exit status."""
    try:
        print(librmm.library_path(file))
    except FileNotFoundError as error:
        print(f"python -m rmm: {error}", file=sys.stderr)
        return 2
    return 0
