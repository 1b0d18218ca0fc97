# SPDX-License-Identifier: Apache-2.0
"""Libraries that come with the package, and that other programs load."""

from __future__ import annotations

import sys

import librmm


def print_path(file: str) -> int:
    """Prints where a library is; returns the exit status."""
    try:
        print(librmm.library_path(file))
    except FileNotFoundError as error:
        print(f"python -m rmm: {error}", file=sys.stderr)
        return 2
    return 0
