# SPDX-License-Identifier: Apache-2.0
"""The plug-in for vLLM: with a stand-in for the modules of vLLM that it uses, and with vLLM where it is installed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rmm
import rmm.mr
from librmm import vllm_plugin
from rmm._build_facts import cuda_backend
from rmm.allocators import vllm as rmm_vllm
from rmm.allocators.vllm import CuMemAllocator
from rmm.sleep import Sleeper

MiB = 1 << 20


class SleepModeBackend:
    def __init__(self) -> None:
        self._state = "RUNNING"

    def state(self) -> str:
        return self._state


class Factory:
    """A stand-in for vLLM's registry of backends."""

    def __init__(self) -> None:
        self.loaders: dict[str, Callable[[], Any]] = {}

    def register_backend(self, name: str, module_path: str, class_name: str) -> None:
        if name in self.loaders:
            raise ValueError(f"Sleep-mode backend '{name}' is already registered.")
        self.loaders[name] = lambda: getattr(importlib.import_module(module_path), class_name)


@pytest.fixture
def factory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Factory]:
    """Imports a stand-in for vLLM, and returns its registry."""
    names = ("vllm", "vllm.device_allocator", "vllm.device_allocator.cumem", "vllm.device_allocator.sleep_mode_backend")
    modules = {name: ModuleType(name) for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
    made = Factory()
    backend: Any = modules["vllm.device_allocator.sleep_mode_backend"]
    backend.SleepModeBackend, backend.SleepModeBackendFactory = SleepModeBackend, made
    cumem: Any = modules["vllm.device_allocator.cumem"]
    cumem.CuMemAllocator, cumem.cumem_available = None, False
    monkeypatch.delenv("RMM_VLLM_SLEEP", raising=False)
    yield made
    sys.modules.pop("rmm.allocators._vllm_backend", None)


@pytest.fixture
def allocator() -> Iterator[CuMemAllocator]:
    """The process's allocator. Destroyed after the test."""
    before = CuMemAllocator.instance
    CuMemAllocator.instance = CuMemAllocator(Sleeper(chunk_size="2MiB"))
    yield CuMemAllocator.instance
    CuMemAllocator.instance = before


def put(allocator: CuMemAllocator, tag: str | None) -> rmm.DeviceBuffer:
    content = (tag or "none").encode()
    with allocator.use_memory_pool(tag):
        buffer = rmm.DeviceBuffer(size=len(content), mr=allocator._sleeper.pool())
        buffer.copy_from_host(content)
        return buffer


def is_kept(allocator: CuMemAllocator, buffer: rmm.DeviceBuffer) -> bool:
    return allocator._sleeper.kept_contents(buffer.ptr, buffer.size) is not None


def test_the_object_of_the_process_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CuMemAllocator, "instance", None)
    assert CuMemAllocator.get_instance() is CuMemAllocator.get_instance()


@pytest.mark.usefixtures("device_alone")
@pytest.mark.parametrize(
    ("offload_tags", "kept"),
    [
        (("weights", "runtime"), {"weights", "runtime"}),
        ("weights", {"weights"}),
        ((), set()),
        (None, {None}),
    ],
)
def test_sleep_keeps_the_contents_of_the_named_tags(
    allocator: CuMemAllocator, offload_tags: Any, kept: set[str | None]
) -> None:
    before = rmm.mr.available_device_memory()[0]
    buffers = {tag: put(allocator, tag) for tag in ("weights", "kv_cache", "runtime", None)}
    assert allocator.get_current_usage() > 0
    allocator.sleep(offload_tags)
    assert allocator._sleeper.pool().mapped_bytes == 0
    assert abs(rmm.mr.available_device_memory()[0] - before) <= (0 if cuda_backend == "sim" else 8 * MiB)
    assert {tag for tag, buffer in buffers.items() if is_kept(allocator, buffer)} == kept
    allocator.sleep(("kv_cache",))  # already asleep: stays as it is
    assert not is_kept(allocator, buffers["kv_cache"])
    allocator.wake_up()
    for tag in kept:
        assert buffers[tag].tobytes().decode() == (tag or "none")
    buffers.clear()
    assert allocator.get_current_usage() == 0
    allocator.release_pools()
    allocator.close()


def test_waking_up_in_parts_defers_weights_and_cache_only(allocator: CuMemAllocator) -> None:
    buffers = {tag: put(allocator, tag) for tag in ("weights", "kv_cache", "runtime")}
    allocator.sleep(("weights", "runtime"))
    allocator.wake_up(["weights"])
    asleep = [tag for tag in buffers if allocator._sleeper.is_asleep(tag)]
    assert asleep == ["kv_cache"]
    assert buffers["runtime"].tobytes() == b"runtime"
    assert buffers["weights"].tobytes() == b"weights"
    allocator.wake_up(["kv_cache"])
    assert not allocator._sleeper.is_asleep("kv_cache")


def test_tags_can_be_discarded(allocator: CuMemAllocator) -> None:
    buffers = {tag: put(allocator, tag) for tag in ("weights", "kv_cache")}
    allocator.discard("kv_cache")
    allocator.discard(("kv_cache", "unknown"))
    assert allocator._sleeper.is_asleep("kv_cache")
    assert buffers["weights"].tobytes() == b"weights"
    allocator.sleep(("weights",))
    allocator.wake_up(None)
    assert buffers["weights"].tobytes() == b"weights"


def test_the_plug_in_registers_a_backend_and_nothing_else(factory: Factory) -> None:
    vllm_plugin.register()
    vllm_plugin.register()
    assert list(factory.loaders) == ["rmm"]
    assert sys.modules["vllm.device_allocator.cumem"].CuMemAllocator is None
    assert factory.loaders["rmm"]().__name__ == "RmmBackend"


def test_the_environment_lets_vllm_allocate_from_rmm(factory: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMM_VLLM_SLEEP", "1")
    vllm_plugin.register()
    cumem = sys.modules["vllm.device_allocator.cumem"]
    assert cumem.CuMemAllocator is rmm_vllm.CuMemAllocator
    assert cumem.cumem_available


def test_older_releases_have_no_backends(factory: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.device_allocator.sleep_mode_backend", None)
    vllm_plugin.register()
    assert not factory.loaders


@pytest.mark.parametrize(("level", "kept"), [(1, ["weights", "runtime", "cudagraph"]), (2, ["runtime", "cudagraph"])])
def test_the_backend_suspends_by_level(
    factory: Factory, allocator: CuMemAllocator, level: int, kept: list[str]
) -> None:
    vllm_plugin.register()
    backend_class = factory.loaders["rmm"]()
    assert backend_class.is_supported()
    assert backend_class.preserves_communicators()
    backend = backend_class()
    assert backend.state() == "RUNNING"
    with pytest.raises(RuntimeError, match="RMM_VLLM_SLEEP=1"):
        backend.suspend(level)
    assert backend.state() == "RUNNING"
    buffers = {tag: put(allocator, tag) for tag in ("weights", "kv_cache", "runtime", "cudagraph")}
    backend.suspend(level)
    assert backend.state() == "SUSPENDED"
    assert [tag for tag, buffer in buffers.items() if is_kept(allocator, buffer)] == kept
    backend.resume(["weights"])
    assert backend.state() == "RUNNING"
    assert allocator._sleeper.is_asleep("kv_cache")
    backend.resume()
    backend.discard(("kv_cache",))
    assert backend.state() == "SUSPENDED"
    assert allocator._sleeper.is_asleep("kv_cache")
    backend.resume()
    assert buffers["runtime"].tobytes() == b"runtime"


def test_vllm_finds_the_plug_in() -> None:
    (found,) = entry_points(group="vllm.general_plugins", name="rmm")
    assert found.load() is vllm_plugin.register


@pytest.mark.program("import librmm.vllm_plugin as p, sys; p.register(); print('rmm' in sys.modules)")
def test_the_plug_in_alone_does_not_import_rmm(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"


# vLLM finds the plug-in, and both of its backends put tensors to sleep in our pools. vLLM's own class for CUDA imports compiled
# code, which does not run on the simulator.
RELEASED = """
import sys
from types import SimpleNamespace

import torch
import vllm.platforms
from vllm.platforms.interface import Platform, PlatformEnum

MiB = 1 << 20


class Simulated(Platform):
    _enum = PlatformEnum.CUDA
    device_type = "cuda"


if sys.argv[1] == "sim":
    vllm.platforms._current_platform = Simulated()

from vllm.device_allocator import get_mem_allocator_instance
from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory
from vllm.plugins import load_general_plugins

load_general_plugins()


def free():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


def use(backend, level):
    allocator = get_mem_allocator_instance()
    assert type(allocator).__module__ == "rmm.allocators.vllm"
    assert allocator.get_current_usage() == 0
    contents = {tag: torch.randint(0, 255, (20 * MiB,), dtype=torch.uint8) for tag in ("weights", "kv_cache", "runtime")}
    tensors = {}
    before = free()
    for tag, content in contents.items():
        with allocator.use_memory_pool(tag=tag):
            tensors[tag] = torch.empty(content.shape, dtype=torch.uint8, device="cuda")
            tensors[tag].copy_(content)
    addresses = [tensor.data_ptr() for tensor in tensors.values()]
    assert allocator.get_current_usage() >= 60 * MiB
    awake = free()
    assert before - awake >= 60 * MiB
    backend.suspend(level)
    assert backend.state() == "SUSPENDED"
    assert free() >= before  # nothing is stranded
    backend.resume(["weights"])
    assert awake < free() < before
    backend.resume()
    assert backend.state() == "RUNNING"
    assert [tensor.data_ptr() for tensor in tensors.values()] == addresses
    for tag in ("weights", "runtime") if level == 1 else ("runtime",):
        assert torch.equal(tensors[tag].cpu(), contents[tag])
    backend.discard(("kv_cache",))
    assert awake < free() < before
    backend.resume(["kv_cache"])
    tensors.clear()
    allocator.release_pools()
    assert allocator.get_current_usage() == 0


torch.empty(MiB, device="cuda")  # so that PyTorch has what it needs of the device
for name in ("cumem", "rmm"):
    for level in (1, 2):
        use(SleepModeBackendFactory.create_backend(SimpleNamespace(sleep_mode_backend=name)), level)
print("done")
"""


@pytest.mark.usefixtures("device_alone")
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_released_vllm_sleeps_in_our_pools(tmp_path: Path) -> None:
    python = [sys.executable, *(["-m", "rmm", "simulate"] if cuda_backend == "sim" else [])]
    done = subprocess.run(
        [*python, "-c", RELEASED, cuda_backend],
        cwd=tmp_path,
        env={**os.environ, "RMM_VLLM_SLEEP": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["done"]), done.stderr
