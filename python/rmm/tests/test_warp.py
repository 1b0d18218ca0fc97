# SPDX-License-Identifier: Apache-2.0
"""The allocator for Warp: with a stand-in that allocates like Warp's arrays, and with Warp itself on a GPU."""

from __future__ import annotations

import gc
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import rmm
import rmm.allocators
import rmm.mr
from rmm._build_facts import cuda_backend
from rmm._cuda import gpu
from rmm.allocators.warp import RMMAllocator
from rmm.pylibrmm.stream import Stream

# --- a stand-in


class Warp(ModuleType):
    """A stand-in for the module warp: what the allocator uses, and an array that uses an allocator like Warp's."""

    __version__ = "1.19.0"

    def __init__(self) -> None:
        super().__init__("warp")
        self.allocator: Any = None
        self.devices = [SimpleNamespace(stream=Stream()) for _ in range(gpu.getDeviceCount())]

    def get_cuda_device(self) -> SimpleNamespace:
        return self.devices[gpu.getDevice()]

    def set_cuda_allocator(self, allocator: Any) -> None:
        self.allocator = allocator

    def is_cuda_available(self) -> bool:
        return True


class Array:
    def __init__(self, warp: Warp, nbytes: int) -> None:
        self.deleter, self.capacity = warp.allocator.deallocate, nbytes
        self.ptr = warp.allocator.allocate(nbytes) if nbytes else None

    def __del__(self) -> None:
        if getattr(self, "ptr", None) is not None:
            self.deleter(self.ptr, self.capacity)


@pytest.fixture
def warp(monkeypatch: pytest.MonkeyPatch) -> Warp:
    stand_in = Warp()
    monkeypatch.setitem(sys.modules, "warp", stand_in)
    return stand_in


@pytest.fixture
def counted() -> rmm.mr.StatisticsResourceAdaptor:
    resource = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(resource)
    return resource


def test_arrays_come_from_the_current_resource_and_go_back(warp: Warp, counted: Any) -> None:
    assert rmm.allocators.enable("warp") == ("warp",)
    array, empty = Array(warp, 1024), Array(warp, 0)
    assert (array.capacity, empty.ptr, counted.allocation_counts.current_bytes) == (1024, None, 1024)
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
    other = Array(warp, 2048)
    assert counted.allocation_counts.current_count == 1
    del array
    assert counted.allocation_counts.current_bytes == 0
    del other


def test_an_allocator_can_have_a_resource_of_its_own(warp: Warp, counted: Any) -> None:
    warp.allocator = RMMAllocator(rmm.mr.PoolMemoryResource(counted, "1MiB"))
    array = Array(warp, 1000)
    warp.allocator = None
    gc.collect()
    assert counted.allocation_counts.current_bytes == 1 << 20  # the array keeps the pool
    del array
    gc.collect()
    assert counted.allocation_counts.current_bytes == 0


def test_memory_is_allocated_and_freed_on_the_stream_of_the_device(warp: Warp) -> None:
    upstream, calls = rmm.mr.CudaMemoryResource(), []

    def allocate(nbytes: int, stream: Stream) -> int:
        calls.append(("allocate", stream))
        return upstream.allocate(nbytes)

    def deallocate(address: int, nbytes: int, stream: Stream) -> None:
        calls.append(("free", stream))
        upstream.deallocate(address, nbytes)

    warp.allocator = RMMAllocator(rmm.mr.CallbackMemoryResource(allocate, deallocate))
    first = warp.get_cuda_device().stream
    array = Array(warp, 1000)
    warp.get_cuda_device().stream = Stream()
    del array
    assert calls == [("allocate", first), ("free", first)]


def test_each_device_has_its_own_resource(warp: Warp, second_device: int) -> None:
    resources = [rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource()) for _ in range(2)]
    for number, resource in enumerate(resources):
        rmm.mr.set_per_device_resource(number, resource)
    warp.allocator = RMMAllocator()
    gpu.setDevice(second_device)
    array = Array(warp, 1024)
    assert [each.allocation_counts.current_count for each in resources] == [0, 1]
    gpu.setDevice(0)
    del array
    assert resources[1].allocation_counts.current_count == 0


def test_a_failed_allocation_is_a_memory_error_with_the_report(warp: Warp, small_pool: Any) -> None:
    warp.allocator = RMMAllocator()
    with pytest.raises(rmm.ReportedMemoryError, match="Maximum pool size exceeded"):
        Array(warp, 1 << 30)
    assert not warp.allocator._live


def test_wrong_arguments_are_refused(warp: Warp) -> None:
    with pytest.raises(TypeError, match="resource of RMM"):
        RMMAllocator(object())  # type: ignore[arg-type]
    allocator = RMMAllocator()
    assert repr(allocator) == "RMMAllocator()"
    allocator.deallocate(0, 0)
    with pytest.raises(ValueError, match="0x100 is not memory of this allocator"):
        allocator.deallocate(256, 1000)


def test_an_older_warp_is_named(warp: Warp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Warp, "set_cuda_allocator")
    monkeypatch.setattr(Warp, "__version__", "1.12.1")
    with pytest.raises(
        RuntimeError, match=r"Warp 1\.12\.1 cannot change its allocator: .* needs warp-lang 1\.13 or newer"
    ):
        rmm.allocators.enable("warp")


@pytest.mark.parametrize("is_imported", [False, True])
def test_warp_is_enabled_without_its_name_only_if_it_is_in_use(
    warp: Warp, is_imported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rmm.allocators, "find_spec", lambda name: None)
    if not is_imported:
        monkeypatch.delitem(sys.modules, "warp")
    assert rmm.allocators.enable() == (("warp",) if is_imported else ())
    assert (warp.allocator is not None) == is_imported


# --- Warp itself

programs_share = True


@pytest.mark.skipif(find_spec("warp") is None, reason="Warp is not installed")
@pytest.mark.program(
    """
    import inspect
    import warp
    from rmm.allocators.warp import RMMAllocator
    from warp._src.context import Allocator, _validate_allocator
    _validate_allocator(RMMAllocator())
    for name in ("allocate", "deallocate"):
        theirs, ours = (inspect.signature(getattr(each, name)).parameters for each in (Allocator, RMMAllocator))
        assert list(theirs) == list(ours), (theirs, ours)
    for name in ("get_cuda_device", "is_cuda_available", "set_cuda_allocator"):
        assert callable(getattr(warp, name)), name
    assert list(inspect.signature(warp.set_cuda_allocator).parameters) == ["allocator"]
    assert all(each.default is not each.empty for each in inspect.signature(warp.get_cuda_device).parameters.values())
    """,
    begin="",
    always=True,
    shares=False,
)
def test_the_interface_of_warp_is_the_one_that_is_implemented(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


begin = '''
    import gc, linecache, textwrap, threading
    import numpy as np
    import rmm, rmm.allocators, rmm.mr
    import warp as wp
    from rmm.allocators.warp import RMMAllocator

    wp.config.quiet = True
    wp.init()
    device = wp.get_device("cuda:0")
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "64MiB", "1GiB")
    counted = rmm.mr.StatisticsResourceAdaptor(pool)
    rmm.mr.set_current_device_resource(counted)
    rmm.allocators.enable("warp")

    # Warp reads the source of kernels, which a program of the option -c has only here.
    source = textwrap.dedent("""
        @wp.kernel
        def twice(x: wp.array(dtype=float)):
            i = wp.tid()
            x[i] = x[i] * 2.0
    """)
    linecache.cache["<kernels>"] = (len(source), None, source.splitlines(True), "<kernels>")
    exec(compile(source, "<kernels>", "exec"))

    def used():
        gc.collect()
        return counted.allocation_counts.current_bytes
'''


@cache
def reason_to_skip() -> str:
    """Why this cannot be tested here; empty if it can."""
    if cuda_backend == "sim":
        return "needs a GPU: Warp has the static CUDA runtime, which accepts NVIDIA's driver alone"
    if find_spec("warp") is None:
        return "Warp is not installed"
    probe = "import warp; raise SystemExit(0 if warp.is_cuda_available() else 1)"
    found = subprocess.run([sys.executable, "-c", probe], check=False, capture_output=True)
    return "" if found.returncode == 0 else "Warp finds no GPU"


@pytest.mark.program("""
    x = wp.array(np.arange(100000, dtype="f4"), device=device)
    assert used() == 400000, used()
    wp.launch(twice, dim=100000, inputs=[x], device=device)
    assert (x.numpy() == 2 * np.arange(100000)).all()
    del x
    assert used() == 0, used()
    try:
        wp.empty(1 << 30, dtype=float, device=device)
    except MemoryError as error:
        assert "Maximum pool size exceeded" in str(error)
    else:
        raise AssertionError
    own = rmm.mr.StatisticsResourceAdaptor(rmm.mr.ManagedMemoryResource())
    with wp.ScopedAllocator(device, RMMAllocator(own)):
        y = wp.zeros(1024, dtype=float, device=device)
    assert (own.allocation_counts.current_bytes, used()) == (4096, 0)
    del y
    gc.collect()
    assert own.allocation_counts.current_bytes == 0
""")
def test_kernels_compute_on_the_pool(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program("""
    errors = []
    def work(seed):
        try:
            random = np.random.default_rng(seed)
            with wp.ScopedStream(wp.Stream(device)):
                for _ in range(200):
                    n = int(random.integers(1, 100000))
                    x = wp.full(n, float(seed), dtype=float, device=device)
                    wp.launch(twice, dim=n, inputs=[x], device=device)
                    y = wp.clone(x)
                    del x
                    assert (y.numpy() == 2 * seed).all()
        except BaseException as error:
            errors.append(error)
    for seed in range(4):  # Warp has one current stream for each device, shared by all threads
        work(seed)
    def allocate():
        for _ in range(500):
            wp.empty(1000, dtype=float, device=device)
    threads = [threading.Thread(target=allocate) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    wp.synchronize()
    assert not errors, errors
    assert used() == 0, used()
""")
def test_streams_and_threads(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program("""
    x = wp.array(np.ones(1000, dtype="f4"), device=device)
    wp.launch(twice, dim=1000, inputs=[x], device=device)  # loads the kernel
    wp.synchronize()
    try:
        with wp.ScopedCapture(device) as capture:
            wp.empty(1000, dtype=float, device=device)
    except RuntimeError as error:
        assert "capture_scope" in str(error), error
    else:
        raise AssertionError("an unannounced capture has to be refused")
    with rmm.capture_scope(device.stream) as memory:
        with wp.ScopedCapture(device) as capture:
            scratch = wp.empty(1000, dtype=float, device=device)
            wp.copy(scratch, x)
            wp.launch(twice, dim=1000, inputs=[scratch], device=device)
            wp.copy(x, scratch)
            del scratch
    others = [wp.full(1000, 7.0, dtype=float, device=device) for _ in range(50)]
    x.fill_(1.0)
    for _ in range(3):
        wp.capture_launch(capture.graph)
    assert (x.numpy() == 8).all(), x.numpy()
    assert all((each.numpy() == 7).all() for each in others)
    memory.release(rmm.pylibrmm.stream.Stream(device.stream))
""")
def test_graphs_keep_their_memory_if_the_capture_is_announced(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program("""
    buffer = rmm.DeviceBuffer.to_device(np.arange(1000, dtype="f4").view("u1"))
    x = wp.array(ptr=buffer.ptr, dtype=float, shape=1000, device=device)
    wp.launch(twice, dim=1000, inputs=[x], device=device)
    wp.synchronize()
    assert (np.frombuffer(buffer.tobytes(), dtype="f4") == 2 * np.arange(1000)).all()
    assert wp.from_dlpack(buffer).ptr == buffer.ptr
    y = wp.array(np.arange(1000, dtype="f4"), device=device)
    assert rmm.DeviceBuffer.from_device(y).tobytes() == np.arange(1000, dtype="f4").tobytes()
    before = used()
    wp.set_cuda_allocator(wp.utils.AllocatorRmm())  # Warp's own allocator for RMM also works with this package
    z = wp.zeros(1024, dtype=float, device=device)
    assert used() - before == 4096
    del z
    assert used() == before
""")
def test_warp_and_buffers_share_memory(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
