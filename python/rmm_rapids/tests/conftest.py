# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures. The tests run on the simulated runtime or on a GPU, depending on the build of the package."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import rmm
import rmm.pylibrmm.memory_resource._memory_resource as rapids_resources

import rmm_engine_rapids
from rmm_engine_rapids import _build_facts

is_simulated = _build_facts.backend == "sim"
package = Path(rmm_engine_rapids.__file__).parent
collect_ignore = ["test_gpu.py"] if is_simulated else []


@pytest.fixture(autouse=True)
def _current_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Answers RAPIDS' question for the current device: its own CUDA runtime finds no driver beside the simulator.

    Afterwards the device has RAPIDS' own resource again.
    """
    if is_simulated:
        monkeypatch.setattr(rapids_resources, "getDevice", lambda: 0)
    yield
    rmm.mr.set_per_device_resource(0, rmm.mr.CudaMemoryResource())
    gc.collect()


@pytest.fixture
def slack() -> int:
    """The bytes of device memory that the runtime itself may take during a test."""
    return 0 if is_simulated else 16 << 20


@pytest.fixture
def free_memory() -> Callable[[], int]:
    """The free bytes of the device."""
    if not is_simulated:
        return lambda: int(rmm.mr.available_device_memory()[0])
    runtime = ctypes.CDLL(str(package / "libcudart_sim.so"))

    def ask() -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
        return free.value

    return ask


@pytest.fixture
def run_program(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Returns a function that runs a Python program in a new process."""

    def run(text: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        names = ("RMM_ENGINE_RAPIDS", "RMM_RESOURCE")
        inherited = {name: value for name, value in os.environ.items() if name not in names}
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", text, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**inherited, **environment},
            timeout=300,
        )

    return run
