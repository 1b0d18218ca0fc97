# SPDX-License-Identifier: Apache-2.0
"""The resources and adaptors of rmm.mr"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import rmm
from rmm._cuda import gpu
from rmm.mr.experimental import CudaAsyncManagedMemoryResource
from rmm.pylibrmm.stream import DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream

MIB = 1 << 20


def cuda() -> rmm.mr.CudaMemoryResource:
    return rmm.mr.CudaMemoryResource()


def callback() -> rmm.mr.CallbackMemoryResource:
    below = cuda()
    return rmm.mr.CallbackMemoryResource(below.allocate, below.deallocate)


def skip_without(make: Callable[[], rmm.mr.DeviceMemoryResource]) -> None:
    """Skips the test if the device has no such memory."""
    try:
        make()
    except RuntimeError as error:
        if "Pools of managed memory need CUDA 13" not in str(error):
            raise
        pytest.skip(str(error))


makers: dict[str, Callable[[], rmm.mr.DeviceMemoryResource]] = {
    "cuda": cuda,
    "managed": rmm.mr.ManagedMemoryResource,
    "pinned host": rmm.mr.PinnedHostMemoryResource,
    "system": rmm.mr.SystemMemoryResource,
    "headroom": lambda: rmm.mr.SamHeadroomMemoryResource(MIB),
    "async": rmm.mr.CudaAsyncMemoryResource,
    "async managed": CudaAsyncManagedMemoryResource,
    "callback": callback,
    "pool": lambda: rmm.mr.PoolMemoryResource(cuda(), MIB),
    "arena": lambda: rmm.mr.ArenaMemoryResource(cuda(), "32MiB"),
    "fixed size": lambda: rmm.mr.FixedSizeMemoryResource(cuda(), 1 << 21, 2),
    "binning": lambda: rmm.mr.BinningMemoryResource(cuda(), 18, 20),
    "elastic pool": rmm.mr.ElasticPoolMemoryResource,
    "pinned pool": lambda: rmm.mr.PinnedPoolMemoryResource(MIB),
    "configured": lambda: rmm.mr.ConfiguredMemoryResource("pool,initial=1MiB"),
    "cached": lambda: rmm.mr.CachedMemoryResource(rmm.mr.CudaAsyncMemoryResource()),
    "trace": lambda: rmm.mr.TraceResourceAdaptor(cuda(), "trace"),
    "limiting": lambda: rmm.mr.LimitingResourceAdaptor(cuda(), 1 << 30),
    "logging": lambda: rmm.mr.LoggingResourceAdaptor(cuda(), "log.csv"),
    "statistics": lambda: rmm.mr.StatisticsResourceAdaptor(cuda()),
    "tracking": lambda: rmm.mr.TrackingResourceAdaptor(cuda()),
    "failure callback": lambda: rmm.mr.FailureCallbackResourceAdaptor(cuda(), lambda nbytes: False),
    "spill": lambda: rmm.mr.SpillResourceAdaptor(cuda(), lambda nbytes: 0),
    "prefetch": lambda: rmm.mr.PrefetchResourceAdaptor(rmm.mr.ManagedMemoryResource()),
    "aligned": lambda: rmm.mr.AlignedResourceAdaptor(cuda(), 4096),
    "thread safe": lambda: rmm.mr.ThreadSafeResourceAdaptor(cuda()),
}
over_upstream = [
    rmm.mr.PoolMemoryResource,
    rmm.mr.ArenaMemoryResource,
    rmm.mr.FixedSizeMemoryResource,
    rmm.mr.BinningMemoryResource,
    rmm.mr.CachedMemoryResource,
    rmm.mr.StatisticsResourceAdaptor,
    rmm.mr.TrackingResourceAdaptor,
    rmm.mr.PrefetchResourceAdaptor,
    rmm.mr.AlignedResourceAdaptor,
    rmm.mr.ThreadSafeResourceAdaptor,
    lambda upstream: rmm.mr.LimitingResourceAdaptor(upstream, 1000),
    lambda upstream: rmm.mr.LoggingResourceAdaptor(upstream, "log.csv"),
    lambda upstream: rmm.mr.TraceResourceAdaptor(upstream, "trace"),
    lambda upstream: rmm.mr.FailureCallbackResourceAdaptor(upstream, bool),
    rmm.mr.SpillResourceAdaptor,
]


@pytest.fixture(params=list(makers))
def resource(request: pytest.FixtureRequest) -> rmm.mr.DeviceMemoryResource:
    try:
        return makers[request.param]()
    except RuntimeError as error:
        if "not supported" not in str(error):
            raise
        pytest.skip(str(error))


def array_tester(resource: rmm.mr.DeviceMemoryResource, content: bytes, stream: Stream) -> None:
    buffer = rmm.DeviceBuffer(size=len(content), mr=resource, stream=stream)
    buffer.copy_from_host(content, stream)
    assert buffer.tobytes(stream) == content


# --- what holds for all ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 1000, MIB])
def test_memory_can_be_used(resource: rmm.mr.DeviceMemoryResource, size: int) -> None:
    for stream in (DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream()):
        array_tester(resource, bytes(range(256)) * (size // 256), stream)


def test_resources_allocate_without_a_buffer(resource: rmm.mr.DeviceMemoryResource) -> None:
    stream = Stream()
    for arguments in ((), (stream,)):
        address = resource.allocate(1024, *arguments)
        assert address % 256 == 0
        assert address != 0
        resource.deallocate(address, 1024, *arguments)


def test_keywords_have_the_names_of_the_contract(resource: rmm.mr.DeviceMemoryResource) -> None:
    address = resource.allocate(nbytes=256, stream=DEFAULT_STREAM)
    resource.deallocate(ptr=address, nbytes=256, stream=DEFAULT_STREAM)


def test_buffers_keep_the_resource(resource: rmm.mr.DeviceMemoryResource, request: pytest.FixtureRequest) -> None:
    rmm.mr.set_current_device_resource(resource)
    assert rmm.mr.get_current_device_resource() is resource
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    rmm.mr.set_current_device_resource(cuda())
    gc.collect()
    assert buffer.mr is resource
    assert buffer.tobytes() == b"abc"


def test_bad_arguments_raise_exceptions(resource: rmm.mr.DeviceMemoryResource) -> None:
    with pytest.raises(OverflowError):
        resource.allocate(-1)
    with pytest.raises(OverflowError):
        resource.deallocate(-1, 1)
    with pytest.raises(TypeError):
        resource.allocate("1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stream argument cannot be None"):
        resource.allocate(1, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        resource.allocate(1, 0)  # type: ignore[arg-type]
    with pytest.raises(MemoryError):
        resource.allocate((1 << 64) - 1)


@pytest.mark.parametrize(
    "name",
    [
        "CudaMemoryResource",
        "ManagedMemoryResource",
        "PinnedHostMemoryResource",
        "SystemMemoryResource",
    ],
)
def test_resources_without_arguments_take_none(name: str) -> None:
    make: Any = attrgetter(name)(rmm.mr)
    for arguments, named in (((5,), {}), ((), {"nbytes": 5})):
        with pytest.raises((TypeError, RuntimeError)):  # RuntimeError: the device has no such memory
            make(*arguments, **named)


def test_classes_derived_from_them_take_their_own_arguments() -> None:
    class Named(rmm.mr.CudaMemoryResource):
        def __init__(self, name: str) -> None:
            self.name = name

    make: Any = Named
    named = make("mine")
    assert named.name == "mine"
    rmm.DeviceBuffer(size=1, mr=named)


def test_classes_derived_from_that_of_managed_pools_take_their_own_arguments() -> None:
    skip_without(CudaAsyncManagedMemoryResource)

    class Named(CudaAsyncManagedMemoryResource):
        def __init__(self, name: str) -> None:
            self.name = name

    named = Named("mine")
    assert named.name == "mine"
    rmm.DeviceBuffer(size=1, mr=named)


def test_the_base_class_cannot_allocate() -> None:
    base = rmm.mr.DeviceMemoryResource()
    for call in (
        lambda: base.allocate(1),
        lambda: base.deallocate(0, 1),
        lambda: rmm.mr.set_current_device_resource(base),
        lambda: rmm.mr.PoolMemoryResource(base),
    ):
        with pytest.raises(TypeError, match="not a resource"):
            call()


@pytest.mark.parametrize("make", over_upstream)
def test_upstreams_are_checked(make: Any) -> None:
    with pytest.raises(Exception, match="must not be None"):
        make(None)
    with pytest.raises(TypeError):
        make("cuda")
    with pytest.raises(TypeError):
        make(1)


@pytest.mark.parametrize("make", over_upstream)
def test_upstreams_can_be_asked_for_and_stay(make: Any) -> None:
    upstream = rmm.mr.StatisticsResourceAdaptor(cuda())
    made = make(upstream)
    assert made.upstream_mr is upstream
    assert made.get_upstream() is upstream
    with pytest.raises(AttributeError):
        made.upstream_mr = upstream
    del upstream
    gc.collect()
    array_tester(made, b"abc", DEFAULT_STREAM)


def test_resources_of_the_runtime_have_no_upstream() -> None:
    assert not hasattr(cuda(), "upstream_mr")


def test_a_representation_shows_the_stack() -> None:
    assert repr(rmm.mr.StatisticsResourceAdaptor(cuda())) == "StatisticsResourceAdaptor(CudaMemoryResource())"


# --- the runtime's ---------------------------------------------------------------------------------------------------


def test_out_of_memory_is_a_memory_error_with_the_report() -> None:
    with pytest.raises(MemoryError, match="out_of_memory"):
        rmm.DeviceBuffer(size=1 << 60)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"initial_pool_size": MIB},
        {"initial_pool_size": "1MiB", "release_threshold": 1 << 24},
        {"release_threshold": 0},
        {"enable_ipc": True},
    ],
)
def test_async_pools(arguments: dict[str, Any]) -> None:
    resource = rmm.mr.CudaAsyncMemoryResource(**arguments)
    assert resource.pool_handle() != 0
    array_tester(resource, b"abc", Stream())


def kept_by(resource: Any) -> int:
    """The bytes of the driver's pool that stay in it when the program has freed them and synchronised."""
    stream = Stream()
    resource.deallocate(resource.allocate(64 * MIB, stream), 64 * MIB, stream)
    stream.synchronize()
    return int(resource.pool_size())


def test_the_pool_of_managed_memory_keeps_memory_up_to_the_last_threshold() -> None:
    managed = CudaAsyncManagedMemoryResource
    skip_without(managed)
    first = managed()
    assert kept_by(first) >= 64 * MIB
    second = managed(release_threshold=0)
    assert second.pool_handle() == first.pool_handle()
    assert kept_by(second) == kept_by(first) == 0
    assert kept_by(managed("1GiB")) >= 64 * MIB
    assert kept_by(managed(0)) == 0
    assert kept_by(managed(None)) >= 64 * MIB

    class Small(CudaAsyncManagedMemoryResource):
        def __init__(self) -> None:
            super().__init__(release_threshold="0")

    assert kept_by(Small()) == 0


def test_thresholds_of_managed_memory_are_checked() -> None:
    make: Any = CudaAsyncManagedMemoryResource
    skip_without(make)
    with pytest.raises(ValueError, match="much"):
        make("much")
    with pytest.raises(OverflowError):
        make(-1)
    with pytest.raises(ValueError, match=r"1\.5"):
        make(1.5)
    with pytest.raises(TypeError):
        make(5, 5)
    with pytest.raises(TypeError, match="nbytes"):
        make(nbytes=5)


def test_what_cannot_be_exported_is_a_runtime_error() -> None:
    try:
        rmm.mr.CudaAsyncMemoryResource(enable_fabric=True)
    except RuntimeError as error:
        assert "Requested IPC memory handle type not supported" in str(error)  # noqa: PT017


def test_a_view_uses_the_pool_of_another() -> None:
    owner = rmm.mr.CudaAsyncMemoryResource()

    class cudaMemPool_t(int):
        """Of CUDA Python."""

    class CUmemoryPool(int):
        """Of CUDA Python."""

    for kind in (cudaMemPool_t, CUmemoryPool):
        view = rmm.mr.CudaAsyncViewMemoryResource(kind(owner.pool_handle()))
        assert view.pool_handle() == owner.pool_handle()
        array_tester(view, b"abc", DEFAULT_STREAM)
    for other in (owner.pool_handle(), None, "pool"):
        with pytest.raises(ValueError, match="cudaMemPool_t"):
            rmm.mr.CudaAsyncViewMemoryResource(other)


# --- those that divide -----------------------------------------------------------------------------------------------


def test_a_pool_grows_to_its_maximum() -> None:
    pool = rmm.mr.PoolMemoryResource(cuda(), 0, 1 << 23)
    assert pool.pool_size() == 0
    rmm.mr.set_current_device_resource(pool)
    buffer = rmm.DeviceBuffer()
    buffer.resize((1 << 23) - 1)
    assert pool.pool_size() == 1 << 23
    with pytest.raises(MemoryError, match="Maximum pool size exceeded"):
        buffer.resize(1 << 24)
    assert buffer.size == (1 << 23) - 1


@pytest.mark.usefixtures("device_alone")
def test_a_pool_takes_half_of_the_free_memory() -> None:
    free = rmm.mr.available_device_memory()[0]
    assert rmm.mr.PoolMemoryResource(cuda()).pool_size() == free // 2 // 256 * 256


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((1 << 11, 1 << 10), "Initial pool size exceeds the maximum pool size"),
        ((100, None), "multiple of 256"),
        ((0, 100), "multiple of 256"),
    ],
)
def test_sizes_of_pools_are_checked(sizes: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        rmm.mr.PoolMemoryResource(cuda(), *sizes)


@pytest.mark.parametrize("size", [-1, 1 << 64])
def test_absurd_sizes_of_pools_are_refused(size: int) -> None:
    with pytest.raises(OverflowError):
        rmm.mr.PoolMemoryResource(cuda(), size)
    with pytest.raises(OverflowError):
        rmm.mr.PoolMemoryResource(cuda(), 0, size)


def test_an_arena_does_not_grow(tmp_path: Path) -> None:
    arena = rmm.mr.ArenaMemoryResource(cuda(), arena_size=MIB, dump_log_on_failure=True)
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=2 * MIB, mr=arena)
    assert (tmp_path / "rmm_arena_memory_dump.log").exists()
    with pytest.raises(RuntimeError, match="minimum"):
        rmm.mr.ArenaMemoryResource(cuda(), 1024)


def test_blocks_of_a_fixed_size_hold_no_more() -> None:
    resource = rmm.mr.FixedSizeMemoryResource(cuda(), block_size=1024, blocks_to_preallocate=2)
    buffers = [rmm.DeviceBuffer(size=1024, mr=resource) for _ in range(5)]
    assert len({buffer.ptr for buffer in buffers}) == 5
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=1025, mr=resource)


def test_bins_serve_their_sizes() -> None:
    upstream = rmm.mr.StatisticsResourceAdaptor(cuda())
    bin_resource = rmm.mr.StatisticsResourceAdaptor(cuda())
    binning = rmm.mr.BinningMemoryResource(upstream)
    assert binning.bin_mrs == []
    binning.add_bin(1024, bin_resource)
    binning.add_bin(allocation_size=4096)
    assert binning.bin_mrs == [bin_resource]
    before = upstream.allocation_counts.current_bytes
    assert before > 0  # from the bin that the resource made itself
    small = rmm.DeviceBuffer(size=1000, mr=binning)
    assert bin_resource.allocation_counts.current_count == 1
    large = rmm.DeviceBuffer(size=MIB, mr=binning)
    assert upstream.allocation_counts.current_bytes == before + MIB
    assert small.ptr != large.ptr


def test_bins_keep_their_resources() -> None:
    binning = rmm.mr.BinningMemoryResource(cuda())
    binning.add_bin(1024, rmm.mr.PoolMemoryResource(cuda(), MIB))
    gc.collect()
    array_tester(binning, b"abc", DEFAULT_STREAM)
    with pytest.raises(TypeError):
        binning.add_bin(1024, "cuda")  # type: ignore[arg-type]


# --- callbacks -------------------------------------------------------------------------------------------------------


def test_callbacks_are_called_with_sizes_and_streams() -> None:
    calls: list[tuple[Any, ...]] = []
    below = cuda()

    def allocate(nbytes: int, stream: Stream) -> int:
        calls.append(("allocate", nbytes, stream))
        return below.allocate(nbytes, stream)

    def deallocate(ptr: int, nbytes: int, stream: Stream) -> None:
        calls.append(("deallocate", ptr, nbytes, stream))
        below.deallocate(ptr, nbytes, stream)

    resource = rmm.mr.CallbackMemoryResource(allocate, deallocate)
    stream = Stream()
    buffer = rmm.DeviceBuffer(size=256, mr=resource, stream=stream)
    address = buffer.ptr
    del buffer
    assert calls == [("allocate", 256, stream), ("deallocate", address, 256, stream)]


class Interrupt(BaseException):
    pass


@pytest.mark.parametrize(
    ("raised", "arrives"),
    [
        (MemoryError("too little"), MemoryError),
        (RuntimeError("other"), RuntimeError),
        (ValueError("other"), RuntimeError),
        (Interrupt("stop"), RuntimeError),
        (KeyboardInterrupt("stop"), RuntimeError),
    ],
)
@pytest.mark.parametrize(
    "layer", [lambda resource: resource, rmm.mr.StatisticsResourceAdaptor, rmm.mr.TrackingResourceAdaptor]
)
def test_exceptions_of_allocate_arrive(raised: BaseException, arrives: type[Exception], layer: Any) -> None:
    def allocate(nbytes: int, stream: Stream) -> int:
        raise raised

    resource = layer(rmm.mr.CallbackMemoryResource(allocate, lambda *args: None))
    with pytest.raises(arrives, match=str(raised)):
        rmm.DeviceBuffer(size=1, mr=resource)


def test_a_returned_address_that_is_no_int_is_a_runtime_error() -> None:
    resource = rmm.mr.CallbackMemoryResource(lambda nbytes, stream: "address", lambda *args: None)  # type: ignore
    with pytest.raises(RuntimeError):
        rmm.DeviceBuffer(size=1, mr=resource)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_exceptions_of_deallocate_are_reported_and_ignored(monkeypatch: pytest.MonkeyPatch) -> None:

    below = cuda()
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(unraisable.exc_value))

    def deallocate(ptr: int, nbytes: int, stream: Stream) -> None:
        below.deallocate(ptr, nbytes, stream)
        raise ValueError("late")

    buffer = rmm.DeviceBuffer(size=1, mr=rmm.mr.CallbackMemoryResource(below.allocate, deallocate))
    del buffer
    assert [str(error) for error in seen] == ["late"]


def test_callbacks_have_to_be_callable(cuda: rmm.mr.CudaMemoryResource) -> None:
    with pytest.raises(TypeError, match="None cannot be called"):
        rmm.mr.CallbackMemoryResource(cuda.allocate, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="3 cannot be called"):
        rmm.mr.CallbackMemoryResource(3, cuda.deallocate)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="None cannot be called"):
        rmm.mr.FailureCallbackResourceAdaptor(cuda, None)  # type: ignore[arg-type]


def test_callbacks_stay_as_long_as_the_resource() -> None:
    def make() -> rmm.mr.DeviceMemoryResource:
        below = cuda()
        return rmm.mr.CallbackMemoryResource(
            lambda nbytes, stream: below.allocate(nbytes, stream), lambda *args: below.deallocate(*args)
        )

    resource = rmm.mr.PoolMemoryResource(make(), MIB)
    gc.collect()
    array_tester(resource, b"abc", DEFAULT_STREAM)


def test_other_threads_run_while_callbacks_wait() -> None:
    import threading

    below = cuda()
    entered, may_leave = threading.Event(), threading.Event()

    def allocate(nbytes: int, stream: Stream) -> int:
        entered.set()
        assert may_leave.wait(300)
        return below.allocate(nbytes, stream)

    pool = rmm.mr.PoolMemoryResource(rmm.mr.CallbackMemoryResource(allocate, below.deallocate), 0)
    worker = threading.Thread(target=lambda: rmm.DeviceBuffer(size=10, mr=pool))
    worker.start()
    assert entered.wait(300)
    other = rmm.DeviceBuffer.to_device(b"abc")
    assert other.tobytes() == b"abc"
    may_leave.set()
    worker.join()


def test_a_failure_callback_can_help() -> None:
    pool = rmm.mr.PoolMemoryResource(cuda(), 0, MIB)
    held = [rmm.DeviceBuffer(size=MIB, mr=pool)]
    asked: list[int] = []

    def free_something(nbytes: int) -> bool:
        asked.append(nbytes)
        held.clear()
        return True

    resource = rmm.mr.FailureCallbackResourceAdaptor(pool, free_something)
    buffer = rmm.DeviceBuffer(size=1024, mr=resource)
    assert (asked, buffer.size) == ([1024], 1024)


def test_a_failure_callback_can_give_up() -> None:
    answers = [True, False]
    resource = rmm.mr.FailureCallbackResourceAdaptor(cuda(), lambda nbytes: answers.pop(0))
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=1 << 60, mr=resource)
    assert answers == []


@pytest.mark.parametrize(
    ("raised", "arrives"), [(RuntimeError, RuntimeError), (MemoryError, MemoryError), (OSError, RuntimeError)]
)
def test_exceptions_of_a_failure_callback_arrive(raised: type[Exception], arrives: type[Exception]) -> None:
    def callback(nbytes: int) -> bool:
        raise raised("MyError")

    resource = rmm.mr.FailureCallbackResourceAdaptor(cuda(), callback)
    with pytest.raises(arrives, match="MyError"):
        rmm.DeviceBuffer(size=1 << 60, mr=resource)


def test_a_failure_callback_is_for_out_of_memory_only() -> None:
    def allocate(nbytes: int, stream: Stream) -> int:
        raise ValueError("broken")

    upstream = rmm.mr.CallbackMemoryResource(allocate, lambda *args: None)
    resource = rmm.mr.FailureCallbackResourceAdaptor(upstream, lambda nbytes: pytest.fail("called"))
    with pytest.raises(RuntimeError, match="broken"):
        rmm.DeviceBuffer(size=1, mr=resource)


# --- adaptors --------------------------------------------------------------------------------------------------------


def test_a_limit_is_kept() -> None:
    resource = rmm.mr.LimitingResourceAdaptor(cuda(), allocation_limit=MIB)
    assert (resource.get_allocated_bytes(), resource.get_allocation_limit()) == (0, MIB)
    first = rmm.DeviceBuffer(size=MIB // 2, mr=resource)
    second = rmm.DeviceBuffer(size=MIB // 2, mr=resource)
    assert resource.get_allocated_bytes() == MIB
    with pytest.raises(MemoryError, match="Exceeded memory limit"):
        rmm.DeviceBuffer(size=1, mr=resource)
    del first
    assert resource.get_allocated_bytes() == MIB // 2
    del second
    assert resource.get_allocated_bytes() == 0


def test_tracking_knows_what_is_in_use() -> None:
    resource = rmm.mr.TrackingResourceAdaptor(cuda(), capture_stacks=True)
    rmm.mr.set_current_device_resource(resource)
    buffers = [rmm.DeviceBuffer(size=1000) for _ in range(10)]
    del buffers[9::-2]
    assert resource.get_allocated_bytes() == 5040
    text = resource.get_outstanding_allocations_str()
    assert text.count("1008 B") == 5
    assert f"{buffers[0].ptr:#x}" in text

    above = rmm.mr.TrackingResourceAdaptor(resource)
    rmm.mr.set_current_device_resource(above)
    buffers += [rmm.DeviceBuffer(size=1000) for _ in range(2)]
    assert above.get_allocated_bytes() == 2016
    assert resource.get_allocated_bytes() == 7056
    above.log_outstanding_allocations()
    del buffers
    gc.collect()
    assert (resource.get_allocated_bytes(), above.get_allocated_bytes()) == (0, 0)
    assert resource.get_outstanding_allocations_str() == above.get_outstanding_allocations_str() == ""


def leaking(ending: str) -> Any:
    text = f"""
import sys
import rmm
resource = rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource(), capture_stacks=True, report_leaks=True)
resource.deallocate(resource.allocate(500), 500)
assert resource.get_leak_report() == ""
for size in (1024, 2048):
    resource.allocate(size)
assert resource.get_leak_report().startswith("RMM: 3072 B in 2 allocations have not been freed\\n")
quiet = rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource())
quiet.allocate(4096)
{ending}
"""
    return pytest.param(ending, marks=pytest.mark.program(text))


@pytest.mark.parametrize("ending", [leaking(""), leaking("del resource"), leaking("sys.exit(0)")])
def test_tracking_reports_leaks_at_the_end_if_asked(ending: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == "RMM: 3072 B in 2 allocations have not been freed"
    assert sum("have not been freed" in line for line in lines) == 1
    assert any(line.startswith("#0 in ") for line in lines)


def test_a_log_is_written(tmp_path: Path) -> None:
    resource = rmm.mr.LoggingResourceAdaptor(cuda(), "log.csv")
    assert resource.get_file_name() == str(tmp_path / "log.dev0.csv")
    buffer = rmm.DeviceBuffer(size=1000, mr=resource)
    address = buffer.ptr
    del buffer
    resource.flush()
    lines = (tmp_path / "log.dev0.csv").read_text().splitlines()
    assert lines[0] == "Thread,Time,Action,Pointer,Size,Stream"
    assert [line.split(",")[2:5] for line in lines[1:]] == [
        ["allocate", hex(address), "1008"],
        ["free", hex(address), "1008"],
    ]


def test_the_name_of_a_log_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMM_LOG_FILE", str(tmp_path / "from.environment.txt"))
    resource = rmm.mr.LoggingResourceAdaptor(cuda())
    assert resource.get_file_name() == str(tmp_path / "from.environment.dev0.txt")
    monkeypatch.setenv("RMM_LOG_FILE", "")
    with pytest.raises(ValueError, match="RMM_LOG_FILE"):
        rmm.mr.LoggingResourceAdaptor(cuda())


def test_a_log_has_the_number_of_its_device(tmp_path: Path, second_device: int) -> None:
    gpu.setDevice(second_device)
    resource = rmm.mr.LoggingResourceAdaptor(cuda(), str(tmp_path / "log"))
    assert resource.get_file_name() == str(tmp_path / f"log.dev{second_device}")


class PathOfBytes:
    def __fspath__(self) -> bytes:
        return b"path.csv"


@pytest.mark.parametrize(("name", "file"), [(b"l\xf6g.csv", b"l\xf6g.dev0.csv"), (PathOfBytes(), b"path.dev0.csv")])
def test_the_name_of_a_log_may_be_bytes(name: bytes | PathOfBytes, file: bytes, tmp_path: Path) -> None:
    resource = rmm.mr.LoggingResourceAdaptor(cuda(), name)
    assert os.fsencode(resource.get_file_name()) == os.fsencode(tmp_path) + b"/" + file
    assert os.listdir(os.fsencode(tmp_path)) == [file]


PROGRAM_THAT_FORKS = """
import os, sys, rmm
log = rmm.mr.LoggingResourceAdaptor(rmm.mr.CudaMemoryResource(), "log.csv")
if sys.argv[1] == "set":
    rmm.mr.set_current_device_resource(log)  # its lines are written at exit
buffer = rmm.DeviceBuffer(size=1000, mr=log)
child = os.fork()
if child != 0:
    assert os.waitpid(child, 0)[1] == 0
    del buffer
    log.flush()
"""


def program_of(test: pytest.Function) -> list[str]:
    return ["-W", "ignore", "-c", PROGRAM_THAT_FORKS, str(test.callspec.params["is_set"])]


@pytest.mark.parametrize("is_set", ["set", "not set"])
def test_a_forked_child_writes_nothing_of_its_parents_log(
    is_set: str, done: subprocess.CompletedProcess[str], folder_of_program: Path
) -> None:
    assert done.returncode == 0, done.stderr
    lines = (folder_of_program / "log.dev0.csv").read_text().splitlines()
    assert [line.split(",")[2] for line in lines] == ["Action", "allocate", "free"]


def test_a_log_that_cannot_be_opened_is_a_runtime_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeError, match="cannot open"):
        rmm.mr.LoggingResourceAdaptor(cuda(), str(tmp_path / "file" / "log.csv"))


def test_addresses_are_aligned() -> None:
    resource = rmm.mr.AlignedResourceAdaptor(rmm.mr.PoolMemoryResource(cuda(), MIB), alignment=4096)
    buffers = [rmm.DeviceBuffer(size=100, mr=resource) for _ in range(5)]
    assert [buffer.ptr % 4096 for buffer in buffers] == [0] * 5
    with pytest.raises(RuntimeError, match="power of 2"):
        rmm.mr.AlignedResourceAdaptor(cuda(), 100)


@pytest.mark.parametrize(
    ("base", "arguments"),
    [
        ("mr.ElasticPoolMemoryResource", {"initial_pool_size": -1}),
        ("mr.CudaAsyncMemoryResource", {"initial_pool_size": -1}),
        ("mr.RegisteredHostMemoryResource", {"numa_node": -1}),
        ("mr.LimitingResourceAdaptor", {"upstream_mr": None, "allocation_limit": 1}),
        ("mr.StatisticsResourceAdaptor", {"upstream_mr": None}),
        ("mr.TrackingResourceAdaptor", {"upstream_mr": None}),
        ("mr.TraceResourceAdaptor", {"upstream_mr": None, "file_name": "trace"}),
        ("pylibrmm.CudaStreamPool", {"pool_size": 0}),
    ],
)
def test_objects_whose_constructor_failed_do_not_crash(base: str, arguments: dict[str, Any]) -> None:
    """A class of Python over one of the package sees such an object in its __del__."""
    answers: list[object] = []

    def ask(made: Any) -> None:
        for name in dir(made):
            if name.startswith("_") or name == "upstream_mr":
                continue
            try:
                attribute = getattr(made, name)
                answers.append(attribute() if callable(attribute) else attribute)
            except (TypeError, ValueError) as error:
                answers.append(error)

    derived = type("Derived", (attrgetter(base)(rmm),), {"__del__": ask})
    with pytest.raises(Exception):  # noqa: B017, PT011 (None as upstream is an Exception)
        derived(**arguments)
    assert any(isinstance(answer, (TypeError, ValueError)) for answer in answers)
