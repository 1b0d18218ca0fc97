# SPDX-License-Identifier: Apache-2.0
"""Runs the program `rmm-trace` of the package, which reads traces."""

from __future__ import annotations

import shutil
import subprocess
import sys

import librmm
from librmm.load import find_in


def find_trace_program() -> str | None:
    """Returns the path of the package's program. If the package was built without it, searches PATH."""
    own = find_in(librmm.__path__, "bin/rmm-trace")
    return str(own) if own.is_file() else shutil.which("rmm-trace")


def run_trace_program(arguments: list[str]) -> int:
    """Runs the program on this terminal; returns its exit status."""
    program = find_trace_program()
    if program is None:
        print(
            "python -m rmm: rmm-trace was not found: this package was built without it (RMM_BUILD_TRACE_TOOL)",
            file=sys.stderr,
        )
        return 2
    try:
        status = subprocess.run([program, *arguments], check=False).returncode
    except KeyboardInterrupt:  # the program got the signal, too
        return 130
    return status if status >= 0 else 128 - status
