# SPDX-License-Identifier: Apache-2.0
"""`python -m rmm simulate`: runs other programs on the simulator."""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

import librmm
from librmm.load import find_in
from rmm.__main__ import main
from rmm._build_facts import cuda_backend
from rmm._commands.simulate import simulated_environment

needs_simulator = pytest.mark.skipif(cuda_backend != "sim", reason="the package has CUDA's runtime")

RUNTIME = """
import ctypes, os, sys
import rmm.mr
name = os.path.basename(os.environ["LD_PRELOAD"].split(":")[0])
runtime = ctypes.CDLL(name)  # the name by which linked libraries find the runtime
driver = ctypes.CDLL("libcuda.so.1")
before = rmm.mr.available_device_memory()[0]
pointer, device = ctypes.c_void_p(), ctypes.c_int(-1)
assert runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(64 << 20)) == 0
assert rmm.mr.available_device_memory()[0] == before - (64 << 20), "two machines"
assert driver.cuPointerGetAttribute(ctypes.byref(device), 9, pointer) == 0 and device.value == 0
assert runtime.cudaFree(pointer) == 0
print(sys.argv[1:])
"""

TORCH = """
import rmm, torch
from rmm.allocators.torch import rmm_torch_allocator
rmm.reinitialize(pool_allocator=True, initial_pool_size="16MiB", maximum_pool_size="64MiB")
counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.get_current_device_resource())
rmm.mr.set_current_device_resource(counted)
torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
on_host = torch.arange(1 << 20, dtype=torch.float32)
first = on_host.cuda()
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    second = torch.empty_like(first)
    second.copy_(first)
    first.record_stream(stream)
stream.synchronize()
assert torch.equal(second.cpu(), on_host)
assert counted.allocation_counts.current_bytes == 8 << 20
try:
    torch.empty(1 << 30, device="cuda")
except torch.OutOfMemoryError as error:
    assert "of at most 64" in str(error), error
else:
    raise AssertionError("4 GiB of 64 MiB")
del first, second
assert counted.allocation_counts.current_bytes == 0
print("done")
"""


def simulating(*arguments: str) -> pytest.MarkDecorator:
    return pytest.mark.program(arguments=["-m", "rmm", "simulate", *arguments])


@needs_simulator
@simulating("-c", RUNTIME, "--an", "argument")
def test_the_runtime_and_the_driver_of_a_program_are_the_simulators(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout) == (0, "['--an', 'argument']\n"), done.stderr
    assert done.stderr == ""


@needs_simulator
@simulating("-c", "raise SystemExit(3)")
def test_the_exit_status_is_that_of_the_program(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 3


@needs_simulator
def test_what_a_program_preloads_stays() -> None:
    environment = simulated_environment({"LD_PRELOAD": "other.so", "HOME": "/"})
    assert environment is not None
    assert environment["LD_PRELOAD"].endswith(":other.so")
    assert environment["HOME"] == "/"


@needs_simulator
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
@simulating("-c", TORCH)
def test_pytorch_allocates_from_our_pool_without_a_gpu(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_package_without_the_simulator_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(librmm, "__path__", [str(tmp_path)])
    assert simulated_environment(os.environ) is None
    assert main(["simulate", "-c", "pass"]) == 2
    assert "RMM_CUDA_BACKEND=sim" in capsys.readouterr().err


def test_the_loader_gets_no_blank_in_what_it_preloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, preloaded in (
        ("with blank", "libcudart.so.13"),
        ("without", f"{tmp_path}/without/lib/cudasim/libcudart.so.13"),
    ):
        folder = tmp_path / name / "lib" / "cudasim"
        folder.mkdir(parents=True)
        (folder / "libcudart.so.13").touch()
        monkeypatch.setattr(librmm, "__path__", [str(tmp_path / name)])
        environment = simulated_environment({})
        assert environment == {"LD_LIBRARY_PATH": str(folder), "LD_PRELOAD": preloaded}


def test_an_editable_installation_has_two_folders(tmp_path: Path) -> None:
    built, source = tmp_path / "built", tmp_path / "source"
    for folder, name in (built, "library.so"), (source, "module.py"):
        folder.mkdir()
        (folder / name).touch()
    for place in (built / "library.so", source / "module.py"):
        assert find_in([str(built), str(source)], place.name) == place
    assert find_in([str(built), str(source)], "missing.so") == source / "missing.so"
