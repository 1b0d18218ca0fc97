# SPDX-License-Identifier: Apache-2.0
"""Runs programs with plug-ins while one call of CUDA fails: they end with an error that names the reason, or go on."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rmm._build_facts import cuda_backend

driver = Path(__file__).resolve().parents[3] / "tests" / "reliability" / "programs_under_fault.py"
if cuda_backend != "sim" or not driver.exists():
    pytest.skip("needs faults, which the simulator makes, and the repository", allow_module_level=True)

programs = {path.stem: path for path in (Path(__file__).parent / "programs").glob("*.py")}
needs = {"dask_plug_in": "distributed", "numba_plug_in": "numba"}


@pytest.mark.parametrize("name", sorted(programs))
def test_any_call_of_a_program_may_fail(name: str, tmp_path: Path) -> None:
    if name in needs and find_spec(needs[name]) is None:
        pytest.skip(f"needs {needs[name]}")
    done = subprocess.run(
        [sys.executable, str(driver), str(programs[name])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
