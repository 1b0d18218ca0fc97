# SPDX-License-Identifier: Apache-2.0
"""Runs programs with plug-ins while one call of CUDA fails: they end with an error that names the reason, or go on."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import librmm
from rmm._build_facts import cuda_backend

driver = Path(__file__).resolve().parents[3] / "tests" / "reliability" / "programs_under_fault.py"
if cuda_backend != "sim" or not driver.exists():
    pytest.skip("needs faults, which the simulator makes, and the repository", allow_module_level=True)

programs = {path.stem: path for path in (Path(__file__).parent / "programs").glob("*.py")}
needs = {"cuda_core_plug_in": "cuda.core", "dask_plug_in": "distributed", "numba_plug_in": "numba"}
# cuda.core loads the driver by name; this folder has the simulated one.
environment = {"LD_LIBRARY_PATH": str(Path(librmm.__file__).parent / "lib" / "cudasim")}


def is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


@pytest.mark.parametrize("name", sorted(programs))
def test_any_call_of_a_program_may_fail(name: str, tmp_path: Path) -> None:
    if name in needs and not is_installed(needs[name]):
        pytest.skip(f"needs {needs[name]}")
    done = subprocess.run(
        [sys.executable, str(driver), str(programs[name])],
        cwd=tmp_path,
        env={**os.environ, **(environment if name == "cuda_core_plug_in" else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
