# SPDX-License-Identifier: Apache-2.0
"""The plug-in for PyTorch: its functions called directly, and PyTorch itself if it can use a device."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import rmm
import rmm.allocators
import rmm.allocators.torch as rmm_torch
import rmm.mr
from rmm._build_facts import cuda_backend
from rmm._cuda import gpu
from rmm.pylibrmm.memory_resource._adaptors import EnvironmentTrace
from rmm.pylibrmm.stream import Stream

needs_kernels = pytest.mark.skipif(cuda_backend == "sim", reason="needs a GPU: the simulator runs no kernels")


class Library:
    """The functions of the shared object, with their types."""

    def __init__(self) -> None:
        library = ctypes.CDLL(rmm_torch._library_path)
        self.allocate = library.allocate
        self.allocate_segment = library.allocate_segment
        for function in (self.allocate, self.allocate_segment):
            function.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
            function.restype = ctypes.c_void_p
        self.deallocate = library.deallocate
        self.deallocate_segment = library.deallocate_segment
        for function in (self.deallocate, self.deallocate_segment):
            function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
            function.restype = None
        self.record_stream = library.torch_record_stream
        self.record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.base_allocation = library.torch_base_allocation
        self.base_allocation.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
        self.base_allocation.restype = ctypes.c_void_p
        self.empty_cache = library.torch_empty_cache
        self.reset_peaks = library.torch_reset_peaks


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def counted() -> Iterator[rmm.mr.StatisticsResourceAdaptor]:
    """Counts allocations on the current device."""
    resource = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(resource)
    yield resource
    assert resource.allocation_counts.current_bytes == 0


# --- the functions


def test_memory_comes_from_the_current_device_resource(
    library: Library, counted: rmm.mr.StatisticsResourceAdaptor
) -> None:
    ptr = library.allocate(1000, 0, None)
    assert counted.allocation_counts.current_bytes == 1000
    library.deallocate(ptr, 1000, 0, None)


def test_memory_goes_back_to_where_it_came_from(library: Library, counted: rmm.mr.StatisticsResourceAdaptor) -> None:
    ptr = library.allocate(1000, 0, None)
    other = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(other)
    library.deallocate(ptr, 1000, 0, None)
    assert counted.allocation_counts.current_count == 0
    assert other.allocation_counts.total_count == 0
    assert other.allocation_counts.current_count == 0


def test_a_resource_lives_as_long_as_its_memory(library: Library) -> None:
    freed: list[int] = []
    cuda = rmm.mr.CudaMemoryResource()

    def deallocate(ptr: int, nbytes: int, stream: Stream) -> None:
        freed.append(nbytes)
        cuda.deallocate(ptr, nbytes, stream)

    rmm.mr.set_current_device_resource(rmm.mr.CallbackMemoryResource(cuda.allocate, deallocate))
    ptr = library.allocate(1000, 0, None)
    rmm.reinitialize()
    library.deallocate(ptr, 1000, 0, None)
    assert freed == [1000]


def test_the_resource_is_that_of_the_device_asked_for(library: Library, second_device: int) -> None:
    seen: list[int] = []
    cuda = rmm.mr.CudaMemoryResource()

    def allocate(nbytes: int, stream: Stream) -> int:
        seen.append(gpu.getDevice())
        ptr: int = cuda.allocate(nbytes, stream)
        return ptr

    rmm.mr.set_per_device_resource(second_device, rmm.mr.CallbackMemoryResource(allocate, cuda.deallocate))
    ptr = library.allocate(1000, second_device, None)
    library.deallocate(ptr, 1000, second_device, None)
    assert seen == [second_device]
    assert gpu.getDevice() == 0


def test_the_stream_is_that_of_pytorch(library: Library) -> None:
    seen: list[Stream] = []
    cuda = rmm.mr.CudaMemoryResource()

    def allocate(nbytes: int, stream: Stream) -> int:
        seen.append(stream)
        ptr: int = cuda.allocate(nbytes, stream)
        return ptr

    rmm.mr.set_current_device_resource(rmm.mr.CallbackMemoryResource(allocate, cuda.deallocate))
    stream = Stream()
    handle = stream.__cuda_stream__()[1]
    library.deallocate(library.allocate(1000, 0, handle), 1000, 0, handle)
    assert seen == [stream]


def test_a_block_that_another_stream_uses_goes_back_once(
    library: Library, counted: rmm.mr.StatisticsResourceAdaptor
) -> None:
    ptr = library.allocate(1000, 0, None)
    other = Stream()
    library.record_stream(ptr, other.__cuda_stream__()[1])
    library.record_stream(ptr, other.__cuda_stream__()[1])
    library.deallocate(ptr, 1000, 0, None)
    assert counted.allocation_counts.current_count == 0


def test_a_segment_that_does_not_fit_is_null(library: Library, small_pool: rmm.mr.PoolMemoryResource) -> None:
    assert library.allocate_segment(1 << 30, 0, None) is None


def test_a_segment_comes_from_the_current_device_resource(
    library: Library, counted: rmm.mr.StatisticsResourceAdaptor
) -> None:
    ptr = library.allocate_segment(2 << 20, 0, None)
    assert counted.allocation_counts.current_bytes == 2 << 20
    library.deallocate_segment(ptr, 2 << 20, 0, None)


def test_the_base_of_a_block_is_the_allocation_it_lies_in(
    library: Library, small_pool: rmm.mr.PoolMemoryResource
) -> None:
    first = library.allocate(1000, 0, None)
    second = library.allocate(1000, 0, None)
    size = ctypes.c_size_t()
    bases = {library.base_allocation(ptr, ctypes.byref(size)) for ptr in (first, second)}
    library.deallocate(first, 1000, 0, None)
    library.deallocate(second, 1000, 0, None)
    assert len(bases) == 1
    assert size.value >= 1 << 20


def test_emptying_the_cache_of_a_resource_without_a_pool_does_nothing(
    library: Library, counted: rmm.mr.StatisticsResourceAdaptor
) -> None:
    ptr = library.allocate(1000, 0, None)
    library.empty_cache()
    assert counted.allocation_counts.current_count == 1
    library.deallocate(ptr, 1000, 0, None)


def test_statistics_have_the_keys_of_pytorch(library: Library, small_pool: rmm.mr.PoolMemoryResource) -> None:
    library.reset_peaks(0)
    ptr = library.allocate(1000, 0, None)
    used = rmm_torch.memory_stats(0)
    library.deallocate(ptr, 1000, 0, None)
    freed = rmm_torch.memory_stats()
    assert used["allocated_bytes.all.current"] - freed["allocated_bytes.all.current"] == 1000
    assert freed["allocated_bytes.small_pool.peak"] >= 1000
    assert used["reserved_bytes.all.current"] == small_pool.pool_size()


@pytest.mark.parametrize(
    "make",
    [
        lambda: rmm.mr.ConfiguredMemoryResource("elastic,log=x.csv"),
        lambda: EnvironmentTrace(rmm.mr.ElasticPoolMemoryResource(), 0),
        lambda: rmm.mr.StatisticsResourceAdaptor(EnvironmentTrace(rmm.mr.ElasticPoolMemoryResource(), 0)),
    ],
)
def test_an_elastic_pool_is_found_below_logs_and_traces(
    library: Library, make: Callable[[], rmm.mr.DeviceMemoryResource]
) -> None:
    rmm.mr.set_current_device_resource(make())
    ptr = library.allocate(1000, 0, None)
    assert rmm_torch.memory_stats(0)["reserved_bytes.all.current"] >= 1 << 16, "a chunk"
    library.deallocate(ptr, 1000, 0, None)
    library.empty_cache()
    assert rmm_torch.memory_stats(0)["reserved_bytes.all.current"] == 0


def test_statistics_have_the_size_of_a_pinned_pool(library: Library) -> None:
    pool = rmm.mr.PinnedPoolMemoryResource("1MiB")
    rmm.mr.set_current_device_resource(pool)
    ptr = library.allocate(1000, 0, None)
    assert rmm_torch.memory_stats(0)["reserved_bytes.all.current"] == pool.pool_size() == 1 << 20
    library.deallocate(ptr, 1000, 0, None)


def test_statistics_of_an_unknown_device_are_an_error() -> None:
    for device in (-1, 1000):
        with pytest.raises(ValueError, match=f"no device {device}"):
            rmm_torch.memory_stats(device)


# --- tensors for other processes


class Storage:
    """A stand-in for PyTorch's storage: a tensor `offset` bytes after the begin of a segment."""

    def __init__(self, segment: int, offset: int) -> None:
        self.segment, self.offset = segment, offset

    def data_ptr(self) -> int:
        return self.segment + self.offset

    def _share_cuda_(self) -> tuple[Any, ...]:
        return (0, b"handle", 512, self.offset, b"counter", 1, b"event", True)


@pytest.fixture
def storage_class() -> type[Storage]:
    class Shared(Storage):
        pass

    rmm_torch._share_segments(Shared)
    return Shared


def test_the_place_of_a_shared_tensor_is_that_in_the_allocation_of_the_driver(
    library: Library, small_pool: rmm.mr.PoolMemoryResource, storage_class: type[Storage]
) -> None:
    before = library.allocate(1000, 0, None)
    segment = library.allocate_segment(8192, 0, None)
    shared = storage_class(segment, 4096)._share_cuda_()
    assert shared == (0, b"handle", 512, segment + 4096 - library.base_allocation(segment, None), *shared[4:])
    assert shared[3] > 4096
    assert storage_class(before + 256, 256)._share_cuda_()[3] == 256  # RMM has no segment there
    library.deallocate_segment(segment, 8192, 0, None)
    library.deallocate(before, 1000, 0, None)


def test_a_tensor_is_not_shared_where_the_driver_does_not_know_its_memory(
    library: Library, storage_class: type[Storage]
) -> None:
    memory = bytearray(8192)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    rmm.mr.set_current_device_resource(
        rmm.mr.CallbackMemoryResource(lambda nbytes, stream: address, lambda ptr, nbytes, stream: None)
    )
    segment = library.allocate_segment(4096, 0, None)
    with pytest.raises(RuntimeError, match="cannot be shared"):
        storage_class(segment, 256)._share_cuda_()
    library.deallocate_segment(segment, 4096, 0, None)


# --- snapshots


def state_of(snapshot: dict[str, Any], ptr: int) -> str:
    (state,) = (
        block["state"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["address"] <= ptr < block["address"] + block["size"]
    )
    assert isinstance(state, str)
    return state


def test_a_snapshot_has_what_the_pool_has(library: Library, small_pool: rmm.mr.PoolMemoryResource) -> None:
    rmm.mr.set_current_device_resource(rmm.mr.StatisticsResourceAdaptor(small_pool))
    first, second = library.allocate(1000, 0, None), library.allocate(3000, 0, None)
    library.deallocate(first, 1000, 0, None)
    snapshot = rmm_torch.memory_snapshot()
    (segment,) = snapshot["segments"]
    assert segment["total_size"] == sum(block["size"] for block in segment["blocks"]) == small_pool.pool_size()
    assert segment["allocated_size"] == segment["active_size"] == small_pool.figures()["live_bytes"] == 3072
    assert segment["segment_type"] == "small"
    assert state_of(snapshot, first) == "inactive"
    assert state_of(snapshot, second) == "active_allocated"
    library.deallocate(second, 3000, 0, None)


def test_a_snapshot_shows_tags_as_stacks(library: Library, small_pool: rmm.mr.PoolMemoryResource) -> None:
    small_pool.track_tags()
    with rmm.tag("model"):
        ptr = library.allocate(1000, 0, None)
    (segment,) = rmm_torch.memory_snapshot()["segments"]
    frames = [block["frames"] for block in segment["blocks"] if block["state"] == "active_allocated"]
    assert frames == [[{"name": "model", "filename": "", "line": 0}]]
    library.deallocate(ptr, 1000, 0, None)


def test_a_snapshot_leaves_out_addresses_without_memory(library: Library) -> None:
    pool = rmm.mr.ElasticPoolMemoryResource()
    if not pool.has_virtual_memory:
        pytest.skip("needs a device with virtual memory")
    rmm.mr.set_current_device_resource(pool)
    sizes = [5 << 20, 3 << 20, 5 << 20]
    blocks = [library.allocate(size, 0, None) for size in sizes]
    library.deallocate(blocks[1], sizes[1], 0, None)
    pool.release_unused()
    snapshot = rmm_torch.memory_snapshot()
    assert sum(segment["total_size"] for segment in snapshot["segments"]) == pool.mapped_bytes
    assert {state_of(snapshot, blocks[0]), state_of(snapshot, blocks[2])} == {"active_allocated"}
    for segment in snapshot["segments"]:
        ends = [segment["address"], *(block["address"] + block["size"] for block in segment["blocks"])]
        assert [block["address"] for block in segment["blocks"]] == ends[:-1]
    pool.pause()  # blocks keep their addresses
    assert rmm_torch.memory_snapshot()["segments"] == []
    pool.resume()
    library.deallocate(blocks[0], sizes[0], 0, None)
    library.deallocate(blocks[2], sizes[2], 0, None)


def test_a_snapshot_without_a_pool_is_empty(library: Library, counted: rmm.mr.StatisticsResourceAdaptor) -> None:
    assert rmm_torch.memory_snapshot()["segments"] == []


def test_a_snapshot_shows_the_pool_behind_bins(library: Library, small_pool: rmm.mr.PoolMemoryResource) -> None:
    rmm.mr.set_current_device_resource(rmm.mr.BinningMemoryResource(small_pool, 10, 12))
    small, large = library.allocate(1000, 0, None), library.allocate(100000, 0, None)
    snapshot = rmm_torch.memory_snapshot()
    assert sum(segment["total_size"] for segment in snapshot["segments"]) == small_pool.pool_size()
    assert state_of(snapshot, small) == state_of(snapshot, large) == "active_allocated"
    library.deallocate(small, 1000, 0, None)
    library.deallocate(large, 100000, 0, None)


def test_a_snapshot_shows_bins_without_a_pool(library: Library) -> None:
    rmm.mr.set_current_device_resource(rmm.mr.BinningMemoryResource(rmm.mr.CudaMemoryResource(), 10, 12))
    ptr = library.allocate(1000, 0, None)
    assert state_of(rmm_torch.memory_snapshot(), ptr) == "active_allocated"
    library.deallocate(ptr, 1000, 0, None)


def test_a_snapshot_shows_a_pool_of_several_devices_once(
    small_pool: rmm.mr.PoolMemoryResource, second_device: int
) -> None:
    rmm.mr.set_per_device_resource(second_device, rmm.mr.StatisticsResourceAdaptor(small_pool))
    snapshot = rmm_torch.memory_snapshot()
    assert [segment["device"] for segment in snapshot["segments"]] == [0]
    assert len(snapshot["device_traces"]) == gpu.getDeviceCount()


def test_a_tag_is_one_frame_whatever_is_in_it(library: Library, small_pool: rmm.mr.PoolMemoryResource) -> None:
    small_pool.track_tags()
    with rmm.tag("model; layer\n1"):
        ptr = library.allocate(1000, 0, None)
    (segment,) = rmm_torch.memory_snapshot()["segments"]
    names = [frame["name"] for block in segment["blocks"] for frame in block["frames"]]
    assert names == ["model, layer 1"]
    library.deallocate(ptr, 1000, 0, None)


def test_a_function_of_pytorch_without_arguments_is_called_without(small_pool: rmm.mr.PoolMemoryResource) -> None:
    current = [object()]
    torch_c: Any = SimpleNamespace(_cuda_getAllocator=lambda: current[0], _cuda_memorySnapshot=lambda: "of PyTorch")
    rmm_torch._serve_statistics(torch_c, current[0])
    assert torch_c._cuda_memorySnapshot() == rmm_torch.memory_snapshot()
    current[0] = object()
    assert torch_c._cuda_memorySnapshot() == "of PyTorch"


def test_pytorch_is_answered_only_where_the_allocator_is_its_own(small_pool: rmm.mr.PoolMemoryResource) -> None:
    current = [object()]
    torch_c: Any = SimpleNamespace(
        _cuda_getAllocator=lambda: current[0], _cuda_memorySnapshot=lambda pool: ("of PyTorch", pool)
    )
    rmm_torch._serve_statistics(torch_c, current[0])
    for every_pool in (None, (0, 0), (0, 0, False)):
        assert torch_c._cuda_memorySnapshot(every_pool) == rmm_torch.memory_snapshot()
    assert torch_c._cuda_memorySnapshot((0, 1)) == ("of PyTorch", (0, 1))
    current[0] = object()
    assert torch_c._cuda_memorySnapshot(None) == ("of PyTorch", None)


# --- without PyTorch


@pytest.mark.program(
    "import sys, rmm.allocators.torch, rmm.allocators.cupy; assert not {'torch', 'cupy'} & set(sys.modules)",
    begin="",
    always=True,
)
def test_pytorch_is_imported_when_it_is_asked_for(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


def test_without_pytorch_there_is_no_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(vars(rmm_torch), "rmm_torch_allocator", raising=False)
    monkeypatch.delitem(vars(rmm_torch), "rmm_torch_mem_pool_allocator", raising=False)
    assert rmm_torch.rmm_torch_allocator is None
    with pytest.raises(RuntimeError, match="no CUDA"):
        rmm_torch.mem_pool()
    del rmm_torch.rmm_torch_allocator, rmm_torch.rmm_torch_mem_pool_allocator


def test_the_module_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rmm_torch_alocator'"):
        rmm_torch.rmm_torch_alocator  # noqa: B018


def test_only_frameworks_that_are_known_can_be_enabled() -> None:
    with pytest.raises(ValueError, match="'tensorflow' is none of the frameworks"):
        rmm.allocators.enable("tensorflow")


def test_a_pytorch_without_cuda_is_left_out_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rmm.allocators, "find_spec", lambda name: True if name == "torch" else None)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setitem(vars(rmm_torch), "rmm_torch_allocator", None)
    assert rmm.allocators.enable() == ()
    with pytest.raises(RuntimeError, match="no CUDA"):
        rmm.allocators.enable("torch")


# --- with PyTorch, in other interpreters: it changes its allocator once at most


@cache
def reason_to_skip() -> str:
    """Returns why PyTorch cannot be tested here; empty if it can."""
    if find_spec("torch") is None:
        return "PyTorch is not installed"
    probe = "import torch; raise SystemExit(0 if torch.cuda.is_available() else 77)"
    done = subprocess.run([sys.executable, "-c", probe], check=False, capture_output=True)
    return "" if done.returncode == 0 else "PyTorch finds no GPU"


resources = """
    import gc, threading
    import rmm, rmm.allocators, rmm.mr, torch
    from rmm.allocators import torch as rmm_torch
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "256MiB", "1GiB")
    counted = rmm.mr.StatisticsResourceAdaptor(pool)
    rmm.mr.set_current_device_resource(counted)
"""
begin = f"""{resources}
    if not hasattr(torch, "enabled_by_tests"):  # else an earlier program in this interpreter has changed the allocator
        assert rmm.allocators.enable("torch") == ("torch",)
        torch.enabled_by_tests = True
"""

Done = subprocess.CompletedProcess[str]


@pytest.mark.program(
    """
    allocator = rmm_torch.rmm_torch_allocator.allocator()
    there = {name for name in dir(allocator) if name.startswith("set_")}
    assert there <= set(rmm_torch._hooks), there - set(rmm_torch._hooks)
""",
    shares=True,
)
def test_every_hook_that_pytorch_has_is_set(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    x = torch.empty(1000, device="cuda")
    assert counted.allocation_counts.current_bytes == 4000
    del x
    assert counted.allocation_counts.current_bytes == 0
""",
    shares=True,
)
def test_tensors_are_allocated_from_the_pool(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    before = torch.cuda.memory_stats()["num_ooms"]
    try:
        torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        assert "CUDA out of memory. Tried to allocate 2.0" in str(error), error
        assert "Maximum pool size exceeded" in str(error), error
    else:
        raise AssertionError("there is no such memory")
    assert torch.cuda.memory_stats()["num_ooms"] - before == 1
    x = torch.empty(1000, device="cuda")  # it can be gone on with
""",
    shares=True,
)
def test_out_of_memory_is_that_of_pytorch(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    before = torch.cuda.memory_allocated()  # by earlier programs in this interpreter, for example for cuBLAS
    torch.cuda.reset_peak_memory_stats()
    x = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    y = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
    del y
    assert torch.cuda.memory_allocated() - before == 1 << 20
    assert torch.cuda.max_memory_allocated() - before == 4 << 20
    assert torch.cuda.memory_reserved() == pool.pool_size() == torch.cuda.max_memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() - before == 1 << 20
    assert rmm_torch.memory_stats() == dict(torch.cuda.memory_stats())
    assert "Allocated memory" in torch.cuda.memory_summary()
""",
    shares=True,
)
def test_statistics_of_pytorch_are_served(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    from torch.cuda import _memory_viz
    x = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    segments = torch.cuda.memory_snapshot()
    assert sum(segment["total_size"] for segment in segments) == pool.pool_size()
    active = [block for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated"]
    assert [block["address"] for block in active] == [x.data_ptr()], (active, x.data_ptr())
    assert [block["size"] for block in active] == [1 << 20]
    assert "total_allocated: 1.0MiB" in _memory_viz.segsum(torch.cuda.memory._snapshot())
    torch.cuda.memory._dump_snapshot("memory.pickle")
    import pickle
    with open("memory.pickle", "rb") as file:
        assert pickle.load(file)["segments"] == segments
    import base64, re
    data = max(re.findall("[A-Za-z0-9+/=]+", _memory_viz.segment_plot(torch.cuda.memory._snapshot())), key=len)
    assert pickle.loads(base64.b64decode(data))["segments"] == segments  # decodes the data that the page shows
""",
    shares=True,
)
def test_snapshots_of_pytorch_are_served(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@needs_kernels
@pytest.mark.program(
    """
    from torch.multiprocessing.reductions import reduce_tensor
    x = torch.empty(1000, device="cuda")
    refused = {
        "share": lambda: reduce_tensor(x),
        "pool": lambda: torch.cuda.MemPool(),
        "history": lambda: torch.cuda.memory._record_memory_history(),
        "snapshot": lambda: torch.cuda.memory_snapshot((0, 1)),
    }
    for name, call in refused.items():
        try:
            call()
        except RuntimeError as error:
            print(name, "|", str(error).splitlines()[0])
        else:
            print(name, "| served")
    x = torch.ones(1000, device="cuda")  # it can be gone on with
    assert float(x.sum()) == 1000
""",
    shares=True,
)
def test_what_pytorch_refuses_for_such_allocators(done: Done) -> None:
    assert done.returncode == 0, done.stderr
    refused = dict(line.split(" | ") for line in done.stdout.splitlines())
    assert refused.keys() == {"share", "pool", "history", "snapshot"}
    for text in refused.values():
        assert "does not yet support" in text


@needs_kernels
@pytest.mark.program(
    """
    import multiprocessing
    from pathlib import Path

    Path("child.py").write_text(
        "import rmm.mr, torch\\n"
        "def look(exported, answers):\\n"
        "    bytes_of_tensor = torch.as_tensor(rmm.mr.ImportedMemory(exported), device='cuda')\\n"
        "    answers.put(float(bytes_of_tensor.view(torch.float32).sum()))\\n"
    )
    import child as program
    pool = rmm.mr.ElasticPoolMemoryResource(share_descriptors=True)
    rmm.mr.set_current_device_resource(pool)
    x = torch.ones(1000, device="cuda")
    torch.cuda.synchronize()
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    with pool.export_descriptors(x.data_ptr(), x.nbytes) as exported:
        child = spawn.Process(target=program.look, args=(exported, answers), daemon=True)
        child.start()
        assert answers.get(timeout=300) == 1000
        child.join()
""",
    takes_long=True,
)
def test_a_tensor_is_shared_through_an_elastic_pool(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    x = torch.empty(1000, device="cuda")
    other = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(other)
    y = torch.empty(500, device="cuda")
    assert other.allocation_counts.current_bytes == 2000
    del x, y, pool
    assert counted.allocation_counts.current_bytes == 0
    assert other.allocation_counts.current_bytes == 0
""",
    shares=True,
)
def test_the_resource_can_be_changed_mid_way(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    torch.cuda.set_per_process_memory_fraction(0.0)
    try:
        torch.empty(1000, device="cuda")
    except torch.OutOfMemoryError as error:
        assert "set_per_process_memory_fraction" in str(error), error
    else:
        raise AssertionError("there is no limit")
    torch.cuda.set_per_process_memory_fraction(1.0)
    x = torch.empty(1000, device="cuda")
""",
    shares=True,
)
def test_a_memory_fraction_limits_pytorch(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    stream = torch.cuda.Stream()
    x = torch.empty(1000, device="cuda")
    x.record_stream(stream)
    del x
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    assert counted.allocation_counts.current_bytes == 0
""",
    shares=True,
)
def test_emptying_the_cache_and_recording_streams_are_accepted(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    import warnings
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the graph has no kernels
        with torch.cuda.graph(graph):
            used = torch.empty(100000, device="cuda")
            address = used.data_ptr()
            del used
    others = [torch.empty(100000, device="cuda") for _ in range(100)]
    assert address not in [x.data_ptr() for x in others]
    graph.reset()
""",
    shares=True,
)
def test_graphs_allocate_from_memory_of_their_own(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    import warnings
    rmm.mr.set_current_device_resource(rmm.mr.TraceResourceAdaptor(counted, "graph.rmmtrace"))
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the graph has no kernels
        with torch.cuda.graph(graph):
            used = torch.empty(100000, device="cuda")
    graph.reset()
    del used
    assert counted.allocation_counts.current_bytes < 400000  # the tensor is back; PyTorch keeps less of its own
""",
    shares=True,
)
def test_graphs_are_captured_while_memory_is_traced(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    mine = rmm_torch.mem_pool()
    with torch.cuda.use_mem_pool(mine):
        x = torch.empty(1000, device="cuda")
    y = torch.empty(1000, device="cuda")
    assert counted.allocation_counts.current_count == 1
    assert torch.cuda.memory_allocated() == 8192
    with torch.cuda.use_mem_pool(mine):
        try:
            torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("there is no such memory")
    del x, mine
    gc.collect()
    torch.cuda.empty_cache()
    assert counted.allocation_counts.current_count == 0
    """,
    begin=resources,
)
def test_a_pool_of_pytorch_takes_its_segments_from_rmm(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@needs_kernels
@pytest.mark.program(
    """
    import torch.multiprocessing
    from pathlib import Path

    Path("child.py").write_text("def look(tensors, answers): answers.put(float(tensors.get().sum()))")
    import child as program
    before = rmm.DeviceBuffer(size=8 << 20)  # so that the segment does not begin where the pool does
    mine = rmm_torch.mem_pool()
    with torch.cuda.use_mem_pool(mine):
        others = [torch.zeros(1000, device="cuda") for _ in range(3)]
        x = torch.ones(1000, device="cuda")
    torch.cuda.synchronize()
    spawn = torch.multiprocessing.get_context("spawn")
    tensors, answers = spawn.Queue(), spawn.Queue()
    child = spawn.Process(target=program.look, args=(tensors, answers), daemon=True)
    child.start()
    tensors.put(x)
    assert answers.get(timeout=300) == 1000
    child.join()
    """,
    begin=resources,
    takes_long=True,
)
def test_a_tensor_of_such_a_pool_is_shared_with_another_process(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    def work():
        for i in range(500):
            x = torch.empty(1 + i * 100, device="cuda")
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert counted.allocation_counts.current_bytes == 0
    assert counted.allocation_counts.total_count == 4000
""",
    shares=True,
)
def test_threads_allocate_at_a_time(done: Done) -> None:
    assert done.returncode == 0, done.stderr


training = """
def train(steps=300):
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(16 * 14 * 14, 128), torch.nn.GELU(), torch.nn.Linear(128, 10),
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images = torch.randn(512, 1, 28, 28, generator=torch.Generator().manual_seed(1)).cuda()
    labels = torch.randint(0, 10, (512,), generator=torch.Generator().manual_seed(2)).cuda()
    losses = []
    for step in range(steps):
        batch = slice(64 * (step % 8), 64 * (step % 8) + 64)
        loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
print(train())
"""


@needs_kernels
@pytest.mark.program(
    f"""
    import os, subprocess, sys
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # makes results reproducible
    code = {"import torch" + training!r}
    theirs = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    exec(code)
    print(theirs.communicate()[0])
""",
    takes_long=True,
)
def test_a_model_has_the_same_losses_as_on_the_allocator_of_pytorch(done: Done) -> None:
    assert done.returncode == 0, done.stderr
    ours, theirs = done.stdout.splitlines()[:2]
    assert ours == theirs
    losses = ours.strip("[]").split(", ")
    assert float(losses[-1]) < float(losses[0])


@needs_kernels
@pytest.mark.program(
    """
    x = torch.ones(1000, 1000, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3): y = (x @ x).relu() + 1
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x @ x).relu() + 1
    for i in range(200):
        x.fill_(i / 100)
        graph.replay()
        noise = [torch.full((1000, 1000), 7.0, device="cuda") for _ in range(3)]
        assert torch.allclose(y, torch.full_like(y, 1000 * (i / 100) ** 2 + 1), rtol=1e-3), i
""",
    shares=True,
)
def test_a_graph_computes_the_same_each_time_beside_other_work(done: Done) -> None:
    assert done.returncode == 0, done.stderr


# --- the error that PyTorch expects, by a stand-in for the library that has it


# Compiles the stand-in by the command in the arguments, whose last word is the file, and lets the library raise the error.
with_stand_in = """
import ctypes, os, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
import rmm, rmm.mr
from rmm.allocators.torch import _library_path
stand_in = ctypes.CDLL(os.path.abspath(sys.argv[-1]))
allocate = ctypes.cast(ctypes.CDLL(_library_path).allocate, ctypes.c_void_p)
rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "1MiB"))
text = ctypes.create_string_buffer(4000)
for _ in range(2):
    print(stand_in.exception_of(allocate, ctypes.c_size_t(2 << 20), text, ctypes.c_size_t(4000)))
print(stand_in.ended())
print(text.value.decode())
"""
compiler = shutil.which(os.environ.get("CXX", "c++"))


def program_of(test: pytest.Function) -> list[str]:
    options: Any = test.callspec.params["options"]
    name = "libc10.so" if options is not None else "libother.so"
    source = Path(__file__).parent / "c10_stand_in" / "c10_stand_in.cpp"
    command = [str(compiler), "-std=c++17", "-shared", "-fPIC", f"-Wl,-soname,{name}"]
    return ["-c", with_stand_in, *command, *(options or []), str(source), "-o", name]


@pytest.mark.skipif(compiler is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("options", [[], ["-DOWN_CONSTRUCTOR"], None], ids=["of the base", "of its own", "not there"])
@pytest.mark.program(always=True)
def test_out_of_memory_is_the_error_of_pytorch(options: list[str] | None, done: Done) -> None:
    assert done.returncode == 0, done.stderr
    kinds, text = done.stdout.split("\n", 3)[:3], done.stdout.split("\n", 3)[3]
    assert kinds == (["1", "1", "2"] if options is not None else ["3", "3", "0"])
    assert "CUDA out of memory. Tried to allocate 2.000000 MiB on GPU 0." in text
    assert "of at most 1.000000 MiB" in text
