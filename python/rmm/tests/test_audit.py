# SPDX-License-Identifier: Apache-2.0
"""`librmm_audit.so`, and `python -m rmm audit-path`, which says where it is"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import librmm
from rmm.__main__ import main

LIBRARY = Path(librmm.__file__).parent / "lib" / "librmm_audit.so"
needs_library = pytest.mark.skipif(not LIBRARY.is_file(), reason="the package has no librmm_audit.so")

# Calls through ctypes, as those of many Python packages. The library asks the process for a driver, and there may be none.
PROGRAM = """
import ctypes

process = ctypes.CDLL(None)
assert process.getpid() > 0
try:
    ctypes.CDLL("libcuda.so.1")
except OSError:
    assert not hasattr(process, "cuMemAlloc_v2")
print("done")
"""


@needs_library
def test_the_command_prints_the_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit-path"]) == 0
    assert capsys.readouterr().out == f"{LIBRARY}\n"


def test_the_command_says_that_the_library_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(librmm, "__file__", str(tmp_path / "__init__.py"))
    assert main(["audit-path"]) == 2
    assert "RMM_BUILD_AUDIT_LIBRARY" in capsys.readouterr().err


@needs_library
def test_a_program_without_a_driver_sees_no_difference() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "LD_PRELOAD": str(LIBRARY), "RMM_AUDIT": "deny"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
