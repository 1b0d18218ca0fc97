# SPDX-License-Identifier: Apache-2.0
"""The program `rmm-trace`, which comes with the package and reads traces."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import librmm


def find_trace_program() -> str | None:
    """The program of the package; where it was built without, the one that the shell would find."""
    own = Path(librmm.__file__).parent / "bin" / "rmm-trace"
    return str(own) if own.is_file() else shutil.which("rmm-trace")


def run_trace_program(arguments: list[str]) -> int:
    """Runs it with the same terminal; returns its exit status."""
    program = find_trace_program()
    if program is None:
        print(
            "python -m rmm: rmm-trace was not found: this package was built without it (RMM_BUILD_TRACE_TOOL)",
            file=sys.stderr,
        )
        return 2
    try:
        status = subprocess.run([program, *arguments], check=False).returncode
    except KeyboardInterrupt:  # which it got as well
        return 130
    return status if status >= 0 else 128 - status
