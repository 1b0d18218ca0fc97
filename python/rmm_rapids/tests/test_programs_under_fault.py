# SPDX-License-Identifier: Apache-2.0
"""Runs a program while one call of CUDA fails: it ends with an error that names the reason, or goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmm_engine_rapids import _build_facts

driver = Path(__file__).resolve().parents[3] / "tests" / "reliability" / "programs_under_fault.py"
if _build_facts.backend != "sim" or not driver.exists():
    pytest.skip("needs faults, which the simulator makes, and the repository", allow_module_level=True)


@pytest.mark.parametrize("name", ["engine", "dask_plugin"])
def test_any_call_may_fail(name: str, tmp_path: Path) -> None:
    if name == "dask_plugin":
        pytest.importorskip("distributed")
    program = Path(__file__).parent / "programs" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(driver), str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
