# SPDX-License-Identifier: Apache-2.0
"""Runs programs with plug-ins while one call of CUDA fails: they end with an error that names the reason, or go on."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

import librmm
from rmm._build_facts import cuda_backend

driver = Path(__file__).resolve().parents[3] / "tests" / "reliability" / "programs_under_fault.py"
if cuda_backend != "sim" or not driver.exists():
    pytest.skip("needs faults, which the simulator makes, and the repository", allow_module_level=True)

takes_long = True
programs = {path.stem: path for path in (Path(__file__).parent / "programs").glob("*.py")}
needs = {"cuda_core_plug_in": "cuda.core", "dask_plug_in": "distributed", "numba_plug_in": "numba"}


def is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def missing(name: str) -> str | None:
    """The package that the program `name` needs and that is not installed, or None."""
    return None if name not in needs or is_installed(needs[name]) else needs[name]


def program_of(test: pytest.Function) -> list[str]:
    return [str(driver), "--jobs=1", str(programs[str(test.callspec.params["name"])])]


def environment_of(test: pytest.Function) -> dict[str, str]:
    if test.callspec.params["name"] != "cuda_core_plug_in":
        return {}
    # cuda.core loads the driver by name; this folder has the simulated one.
    return {"LD_LIBRARY_PATH": str(Path(librmm.__file__).parent / "lib" / "cudasim")}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.skipif(missing(name) is not None, reason=f"needs {missing(name)}"))
        for name in sorted(programs)
    ],
)
def test_any_call_of_a_program_may_fail(name: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
