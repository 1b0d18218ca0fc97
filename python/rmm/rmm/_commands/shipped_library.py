# SPDX-License-Identifier: Apache-2.0
"""Libraries that come with the package, and that a program is started with."""

from __future__ import annotations

import sys
from pathlib import Path

import librmm


def print_path(file: str, option: str) -> int:
    """Prints where a library is; returns the exit status. `option` is the one of the build that leaves it out."""
    library = Path(librmm.__file__).parent / "lib" / file
    if not library.is_file():
        print(f"python -m rmm: {file} was not found: this package was built without it ({option})", file=sys.stderr)
        return 2
    print(library)
    return 0
