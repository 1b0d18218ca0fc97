# SPDX-License-Identifier: Apache-2.0
"""A package built on the simulator in a process that has loaded the real CUDA runtime for everyone. Needs no GPU."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import librmm
from rmm._build_facts import cuda_backend

pytestmark = pytest.mark.skipif(cuda_backend != "sim", reason="the package is not built on the simulator")

simulator = Path(librmm.__file__).parent / "lib" / "libcudart_sim.so"

devices = 7  # an unusual number, to recognise the simulator by

# Runs after the imports. Looks up a CUDA function in the whole process, which must not be the simulator's.
checks = f"""
import ctypes
import rmm.allocators._cupy, rmm.mr
from rmm._cuda import gpu
ctypes.CDLL(rmm.__path__[0] + "/librmm/_torch_allocator.so")
assert gpu.getDeviceCount() == {devices}
rmm.reinitialize(pool_allocator=True, initial_pool_size="1MiB")
assert rmm.DeviceBuffer.to_device(b"abc").tobytes() == b"abc"
count = ctypes.c_int()
theirs = getattr(ctypes.CDLL(None), "cudaGetDeviceCount", None)
assert theirs is None or theirs(ctypes.byref(count)) != 0 or count.value != {devices}
print("passed")
"""


def execute(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "CUDASIM_DEVICES": str(devices), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def expect_passed(program: str, **environment: str) -> None:
    done = execute(program, **environment)
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stderr


def load_for_all(library: Path) -> str:
    """Returns a statement that loads a library and makes its symbols visible to the whole process."""
    return f"import ctypes; ctypes.CDLL({str(library)!r}, ctypes.RTLD_GLOBAL)"


@pytest.fixture(scope="module")
def real_runtime() -> Path:
    """The file of the real CUDA runtime that packages for CUDA load, which is a package's or the toolkit's."""
    if find_spec("cuda") is None or find_spec("cuda.pathfinder") is None:
        pytest.skip("needs cuda-pathfinder")
    program = 'from cuda.pathfinder import load_nvidia_dynamic_lib as load; print(load("cudart").abs_path)'
    done = execute(program)
    if done.returncode != 0:
        pytest.skip(f"there is no libcudart: {done.stderr.strip().splitlines()[-1]}")
    return Path(done.stdout.strip())


Done = subprocess.CompletedProcess[str]


def program_of(test: pytest.Function) -> list[str]:
    names = ", ".join(test.callspec.params["names"])  # type: ignore[arg-type]
    check = "from cuda.bindings import runtime; assert runtime.cudaGetDeviceCount()[1] != " + str(devices)
    sees_real_runtime = "real_runtime" in test.fixturenames
    return ["-W", "ignore", "-c", f"import {names}\n{check if sees_real_runtime else ''}\n{checks}"]


def environment_of(_: pytest.Function) -> dict[str, str]:
    return {"CUDASIM_DEVICES": str(devices)}


def order_of_import(*names: str) -> Any:
    missing = [name for name in names if find_spec(name.partition(".")[0]) is None]
    return pytest.param(names, marks=pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"))


@pytest.mark.parametrize(
    "names",
    [
        order_of_import(*names)
        for names in (*itertools.permutations(("rmm", "numba.cuda", "cupy")), ("torch", "rmm"), ("rmm", "torch"))
    ],
)
def test_frameworks_can_be_imported_before_and_after(names: tuple[str, ...], done: Done) -> None:
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stderr


@pytest.mark.skipif(
    find_spec("numba") is None or find_spec("cuda") is None or find_spec("cuda.bindings") is None,
    reason="needs numba and cuda-bindings",
)
@pytest.mark.parametrize("names", [("rmm", "numba.cuda"), ("numba.cuda", "rmm")])
def test_numba_sees_the_real_runtime(real_runtime: Path, names: tuple[str, ...], done: Done) -> None:
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stderr


@pytest.mark.parametrize("order", ["before", "after"])
def test_all_calls_go_to_the_simulator(real_runtime: Path, order: str, tmp_path: Path) -> None:
    """Reads the loader's log of symbol bindings."""
    statements = [load_for_all(real_runtime), "import rmm"]
    program = "\n".join(statements if order == "before" else reversed(statements)) + checks
    expect_passed(program, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(tmp_path / "log"))
    log = "".join(path.read_text(errors="replace") for path in tmp_path.glob("log.*"))
    found = re.findall(r"binding file (\S+) \[0\] to (\S+) \[0\]: normal symbol `((?:__)?cuda[A-Z]\w*)'", log)
    ours = [
        (user, symbol, place)
        for user, place, symbol in found
        if Path(user).resolve().is_relative_to(simulator.parent.resolve())
    ]
    users = {Path(user).name for user, _, _ in ours}  # except the simulator, which calls itself without the loader
    assert any(user.startswith("librmm_python.") for user in users)
    assert [binding for binding in ours if Path(binding[2]).resolve() != simulator.resolve()] == []


def test_the_simulator_of_the_package_comes_before_others_in_the_search_path(
    real_runtime: Path, tmp_path: Path
) -> None:
    (tmp_path / simulator.name).write_bytes(b"no library")
    expect_passed(f"{load_for_all(real_runtime)}\nimport rmm\n{checks}", LD_LIBRARY_PATH=str(tmp_path))


@pytest.fixture(scope="module", params=["cudaGetDevice", "cudaMallocAsync"])
def hook(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a library with a CUDA function without a version, which the loader uses for any version."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("hook")
    (folder / "hook.c").write_text(f"int {request.param}(void) {{ return 999; }}\n")
    subprocess.run([compiler, "-shared", "-fPIC", folder / "hook.c", "-o", folder / "hook.so"], check=True)
    return folder / "hook.so"


def test_functions_without_versions_are_an_import_error(hook: Path) -> None:
    done = execute(f"{load_for_all(hook)}\nimport rmm")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: this build of rmm runs on the simulated CUDA runtime")
    assert str(hook) in last


def test_functions_without_versions_that_come_later_are_not_called(hook: Path) -> None:
    expect_passed(f"import rmm\n{checks.replace('print', '#')}\n{load_for_all(hook)}\n{checks}")
