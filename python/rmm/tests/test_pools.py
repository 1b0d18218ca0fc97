# SPDX-License-Identifier: Apache-2.0
"""Pools: tags, reports, recovery, reservations and captures; and the guard adaptor."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import librmm
import rmm
import rmm.mr
from rmm._build_facts import cuda_backend
from rmm.memory_report import GuardViolation, Holder, MemoryReport, RungFigures
from rmm.pylibrmm.stream import CudaStreamFlags, Stream

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def pool(cuda: rmm.mr.CudaMemoryResource) -> rmm.mr.PoolMemoryResource:
    """A pool that has 4 MiB and gets no more."""
    return rmm.mr.PoolMemoryResource(cuda, 4 * MIB, 4 * MIB)


# --- tags


def test_tags_name_what_is_live(pool: rmm.mr.PoolMemoryResource) -> None:
    untracked = rmm.DeviceBuffer(size=256, mr=pool)
    assert pool.live_by_tag() == []
    pool.track_tags()
    with rmm.tag("outer"):
        first = rmm.DeviceBuffer(size=512, mr=pool)
        with rmm.tag("inner") as inner:
            assert (inner.name, rmm.tag.current(), repr(inner)) == ("inner", "inner", "tag('inner')")
            others = [rmm.DeviceBuffer(size=1024, mr=pool) for _ in range(2)]
        assert rmm.tag.current() == "outer"
    assert rmm.tag.current() == ""
    last = rmm.DeviceBuffer(size=256, mr=pool)
    assert pool.live_by_tag() == [Holder("inner", 2048, 2), Holder("outer", 512, 1), Holder("", 256, 1)]
    del first, others
    assert pool.live_by_tag() == [Holder("", 256, 1)]
    pool.track_tags(False)
    assert pool.live_by_tag() == []
    del untracked, last


def test_a_tag_can_be_used_again_within_itself_and_by_threads() -> None:
    label = rmm.tag("again")
    seen: list[str] = []

    @label
    def tagged(depth: int) -> str:
        """Doc."""
        return tagged(depth - 1) if depth else rmm.tag.current()

    with label, label:
        thread = threading.Thread(target=lambda: seen.extend([rmm.tag.current(), tagged(3), rmm.tag.current()]))
        thread.start()
        thread.join()
        assert rmm.tag.current() == "again"
    assert seen == ["", "again", ""]
    assert (tagged.__name__, tagged.__doc__) == ("tagged", "Doc.")
    assert rmm.tag("again") == label != rmm.tag("other")
    assert {label: 1}[rmm.tag("again")] == 1


def test_a_tag_ends_with_an_exception() -> None:
    with pytest.raises(KeyError), rmm.tag("failing"):
        raise KeyError
    assert rmm.tag.current() == ""


def test_tags_are_not_misused() -> None:
    with pytest.raises(TypeError):
        rmm.tag(None)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="on the thread on which it began"):
        rmm.tag("ended").__exit__(None, None, None)

    def generator() -> Any:
        yield 1

    async def asynchronous_generator() -> Any:
        yield 1

    for function in (generator, asynchronous_generator):
        with pytest.raises(TypeError, match="with statement without await or yield"):
            rmm.tag("generator")(function)


def test_blocks_that_interleave_are_reported_and_leave_no_tag() -> None:
    def steps(name: str) -> Iterator[str]:
        with rmm.tag(name):
            yield rmm.tag.current()

    for names in (("first", "second"), ("first", "second", "third")):
        with rmm.tag("around"):
            generators = [steps(name) for name in names]
            assert [next(each) for each in generators] == list(names)
            for generator in generators[:-1]:
                with pytest.raises(RuntimeError, match=r"'(first|second)' ended before a block that began inside it"):
                    next(generator)
                assert rmm.tag.current() == names[-1]
            assert next(generators[-1], "ended") == "ended"
            assert rmm.tag.current() == "around"
        assert rmm.tag.current() == ""


@pytest.mark.parametrize("name", ["ä", "\udcff", "x" * 5000])
def test_names_of_tags_are_any_text(name: str) -> None:
    assert rmm.tag(name).name == name
    assert pickle.loads(pickle.dumps(rmm.tag(name))) == rmm.tag(name)


# --- reports


def fails_in_buffer(pool: rmm.mr.DeviceMemoryResource) -> None:
    rmm.DeviceBuffer(size=8 * MIB, mr=pool)


def fails_in_copy_in(pool: rmm.mr.DeviceMemoryResource) -> None:
    content = bytearray(8 * MIB)
    rmm.DeviceBuffer(ptr=ctypes.addressof(ctypes.c_char.from_buffer(content)), size=8 * MIB, mr=pool)


def fails_in_allocate(pool: rmm.mr.DeviceMemoryResource) -> None:
    pool.allocate(8 * MIB)


def fails_in_resize(pool: rmm.mr.DeviceMemoryResource) -> None:
    rmm.DeviceBuffer(mr=pool).resize(8 * MIB)


def fails_in_reserve(pool: rmm.mr.DeviceMemoryResource) -> None:
    rmm.DeviceBuffer(mr=pool).reserve(8 * MIB)


def fails_in_reservation(pool: rmm.mr.PoolMemoryResource) -> None:
    pool.reserve(8 * MIB)


def fails_behind_an_adaptor(pool: rmm.mr.DeviceMemoryResource) -> None:
    rmm.DeviceBuffer(size=8 * MIB, mr=rmm.mr.StatisticsResourceAdaptor(pool))


@pytest.mark.parametrize(
    "fail",
    [
        fails_in_buffer,
        fails_in_copy_in,
        fails_in_allocate,
        fails_in_resize,
        fails_in_reserve,
        fails_in_reservation,
        fails_behind_an_adaptor,
    ],
)
def test_out_of_memory_has_a_report(
    fail: Callable[[rmm.mr.PoolMemoryResource], None], pool: rmm.mr.PoolMemoryResource
) -> None:
    pool.track_tags()
    with rmm.tag("loader"):
        live = rmm.DeviceBuffer(size=1024, mr=pool)
    with pytest.raises(MemoryError, match="Maximum pool size exceeded") as caught:
        fail(pool)
    report: MemoryReport = caught.value.report  # type: ignore[attr-defined]
    assert report.asked_bytes == 8 * MIB
    assert report.alignment_bytes == 256
    assert (report.stream, report.device, report.maximum_bytes) == (0, 0, 4 * MIB)
    assert "of at most 4" in report.reason
    assert report.pool == pool.figures()
    assert report.pool["live_bytes"] == 1024
    assert report.pool["failures"] == 1
    assert 0 <= report.fragmentation < 0.1
    assert report.device_total_bytes == rmm.mr.available_device_memory()[1]
    assert report.tries == {"reclaim": 1, "grow": 1, "trim": 1, "synchronize": 1, "callback": 0}
    assert (report.tags_tracked, report.holders) == (True, [Holder("loader", 1024, 1)])
    assert f"({8 * MIB} bytes)" in str(caught.value)
    del live


def test_the_initial_size_of_a_pool_has_a_report(cuda: rmm.mr.CudaMemoryResource) -> None:
    with pytest.raises(MemoryError) as caught:
        rmm.mr.PoolMemoryResource(rmm.mr.LimitingResourceAdaptor(cuda, MIB), 2 * MIB)
    report: MemoryReport = caught.value.report  # type: ignore[attr-defined]
    assert "Exceeded memory limit" in report.reason
    assert report.maximum_bytes is None
    assert report.holders == []


def test_out_of_memory_elsewhere_has_no_report(cuda: rmm.mr.CudaMemoryResource) -> None:
    with pytest.raises(MemoryError) as caught:
        rmm.DeviceBuffer(size=2 * MIB, mr=rmm.mr.LimitingResourceAdaptor(cuda, MIB))
    assert not hasattr(caught.value, "report")


# --- recovery


def test_tries_of_recovery_rungs_are_counted(cuda: rmm.mr.CudaMemoryResource) -> None:
    pool = rmm.mr.PoolMemoryResource(cuda, 0, 4 * MIB)
    buffer = rmm.DeviceBuffer(size=MIB, mr=pool)
    assert pool.recovery_figures()["grow"] == RungFigures(tried=1, served=1)
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=8 * MIB, mr=pool)
    assert pool.recovery_figures()["grow"] == (2, 1)
    assert pool.figures()["failures"] == 1
    del buffer


def test_a_bounded_pool_gives_unused_blocks_back_to_make_room(cuda: rmm.mr.CudaMemoryResource) -> None:
    pool = rmm.mr.PoolMemoryResource(cuda, 256, 1024)
    buffer = rmm.DeviceBuffer(size=1024, mr=pool)
    assert pool.recovery_figures()["trim"] == RungFigures(tried=1, served=1)
    assert pool.pool_size() == 1024
    del buffer


def test_the_order_of_recovery_can_be_changed(cuda: rmm.mr.CudaMemoryResource) -> None:
    pool = rmm.mr.PoolMemoryResource(cuda, MIB)
    assert pool.recovery_order == ["reclaim", "grow", "synchronize", "callback"]
    pool.recovery_order = ["synchronize"]
    assert pool.recovery_order == ["synchronize"]
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=2 * MIB, mr=pool)  # it may not grow
    for order, error in (
        (["no such thing"], ValueError),
        (["grow", "grow"], ValueError),
        (["remap"], RuntimeError),
        ("grow", TypeError),
    ):
        with pytest.raises(error):
            pool.recovery_order = order  # type: ignore[assignment]
    assert pool.recovery_order == ["synchronize"]
    assert "remap" in rmm.mr.ElasticPoolMemoryResource().recovery_order


asked_while_growing = """
    import threading, time
    import rmm

    cuda = rmm.mr.CudaMemoryResource()
    is_growing = threading.Event()

    def allocate(size, stream):
        is_growing.set()
        time.sleep(0.5)  # meanwhile the other thread waits for the pool
        return cuda.allocate(size, stream)

    pool = rmm.mr.PoolMemoryResource(rmm.mr.CallbackMemoryResource(allocate, cuda.deallocate), 0)
    thread = threading.Thread(target=lambda: rmm.DeviceBuffer(size=1 << 20, mr=pool))
    thread.start()
    is_growing.wait()
    USE
    thread.join()
"""


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(use, marks=pytest.mark.program(asked_while_growing.replace("USE", use), shares=True), id=use)
        for use in ("pool.recovery_order", "pool.check_capture = False")
    ],
)
def test_a_pool_that_grows_by_python_can_be_asked_meanwhile(use: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


def test_a_failure_callback_makes_room(pool: rmm.mr.PoolMemoryResource) -> None:
    held = [rmm.DeviceBuffer(size=3 * MIB, mr=pool)]
    asked: list[int] = []

    def free_something(nbytes: int) -> bool:
        asked.append(nbytes)
        had = bool(held)
        held.clear()
        return had

    pool.set_failure_callback(free_something)
    assert rmm.DeviceBuffer(size=2 * MIB, mr=pool).size == 2 * MIB
    assert asked == [2 * MIB]
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=8 * MIB, mr=pool)
    assert len(asked) == 2
    pool.set_failure_callback(None)
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=8 * MIB, mr=pool)
    assert len(asked) == 2

    def fail(nbytes: int) -> bool:
        raise KeyError("from the callback")

    pool.set_failure_callback(fail)
    with pytest.raises(RuntimeError, match="from the callback"):
        rmm.DeviceBuffer(size=8 * MIB, mr=pool)
    with pytest.raises(TypeError, match="cannot be called"):
        pool.set_failure_callback(3)  # type: ignore[arg-type]


# --- reservations


def test_a_reservation_keeps_memory(pool: rmm.mr.PoolMemoryResource) -> None:
    with pool.reserve("3MiB") as task:
        assert (task.size, task.used_bytes, task.source) == (3 * MIB, 0, pool)
        with pytest.raises(MemoryError):
            rmm.DeviceBuffer(size=2 * MIB, mr=pool)
        buffer = rmm.DeviceBuffer(size=2 * MIB, mr=task)
        assert task.used_bytes == 2 * MIB
        assert task.figures()["live_bytes"] == 2 * MIB
        with pytest.raises(MemoryError, match="Reservation exceeded"):
            rmm.DeviceBuffer(size=2 * MIB, mr=task)
        with rmm.using(task):
            assert rmm.DeviceBuffer(size=100).mr is task
        assert "bytes of PoolMemoryResource" in repr(task)
        del buffer
    assert task.size == 0
    assert rmm.DeviceBuffer(size=4 * MIB, mr=pool).size == 4 * MIB


def test_what_is_live_outlives_its_reservation_and_pool(cuda: rmm.mr.CudaMemoryResource) -> None:
    free_before = rmm.mr.available_device_memory()[0]
    pool = rmm.mr.PoolMemoryResource(cuda, 4 * MIB, 4 * MIB)
    task = pool.reserve(3 * MIB)
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    buffer = rmm.DeviceBuffer(ptr=buffer.ptr, size=3, mr=task)
    task.release()
    task.release()
    with pytest.raises(RuntimeError, match="has ended"):
        rmm.DeviceBuffer(size=1, mr=task)
    with pytest.raises(RuntimeError, match="has ended"):
        task.reserve(1)
    with pytest.raises(RuntimeError, match="has ended"):
        task.figures()
    with pytest.raises(RuntimeError, match="has ended"):
        task.shrink_to(0)
    assert rmm.DeviceBuffer(size=3 * MIB, mr=pool).size == 3 * MIB
    del pool, task
    gc.collect()
    assert buffer.tobytes() == b"abc"
    if cuda_backend == "sim":
        del buffer
        gc.collect()
        assert rmm.mr.available_device_memory()[0] == free_before


def test_the_stream_of_a_reservation_lives_as_long(pool: rmm.mr.PoolMemoryResource) -> None:
    task = pool.reserve(MIB, Stream())
    gc.collect()
    del task
    assert rmm.DeviceBuffer(size=4 * MIB, mr=pool).size == 4 * MIB


def test_reservations_are_divided_and_shrunk(pool: rmm.mr.PoolMemoryResource) -> None:
    task = pool.reserve(2 * MIB)
    part = task.reserve("1MiB")
    assert (part.size, task.used_bytes) == (MIB, MIB)
    assert task.try_reserve(2 * MIB) is None
    with pytest.raises(MemoryError):
        task.reserve(2 * MIB)
    buffer = rmm.DeviceBuffer(size=MIB, mr=part)
    assert task.shrink_to(0) == MIB
    assert task.size == MIB
    del task, part
    gc.collect()
    assert buffer.size == MIB
    assert pool.try_reserve(8 * MIB) is None


def test_reservations_are_not_misused(pool: rmm.mr.PoolMemoryResource, cuda: rmm.mr.CudaMemoryResource) -> None:
    with pytest.raises(TypeError, match="made by reserve"):
        rmm.mr.MemoryReservation()
    with pytest.raises(RuntimeError, match="at least 1"):
        pool.reserve(0)
    for size, error in ((-1, OverflowError), ("much", ValueError), (1.5, ValueError), (None, TypeError)):
        with pytest.raises(error):
            pool.reserve(size)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pool.reserve(1, None)  # type: ignore[arg-type]
    empty = rmm.mr.MemoryReservation.__new__(rmm.mr.MemoryReservation)
    with pytest.raises(TypeError, match="is not a resource"):
        empty.reserve(1)
    with pytest.raises(TypeError, match="has no pool in it"):
        rmm.mr.ConfiguredMemoryResource("cuda").reserve(1)


def test_threads_share_a_reservation_that_ends(pool: rmm.mr.PoolMemoryResource) -> None:
    task = pool.reserve(2 * MIB)
    begin = threading.Barrier(3)
    errors: list[BaseException] = []

    def work() -> None:
        begin.wait()
        latest = time.monotonic() + 60
        try:
            while time.monotonic() < latest:
                rmm.DeviceBuffer(size=1000, mr=task)
            errors.append(TimeoutError("the reservation does not end"))
        except RuntimeError as error:
            if "has ended" not in str(error):
                errors.append(error)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    begin.wait()
    task.release()
    for thread in threads:
        thread.join()
    assert errors == []
    assert rmm.DeviceBuffer(size=4 * MIB, mr=pool).size == 4 * MIB


# --- configurations


def test_a_configured_pool_is_found_behind_its_adaptors(tmp_path: Path) -> None:
    resource = rmm.mr.ConfiguredMemoryResource(
        f"pool,initial=1MiB,guard,statistics,limit=2MiB,log={tmp_path / 'x.csv'}"
    )
    assert resource.pool_size() == MIB
    assert resource.figures()["reserved_bytes"] == MIB
    assert resource.check_capture
    with resource.reserve("512KiB") as task:
        assert task.size == 512 * KIB
    elastic = rmm.mr.ConfiguredMemoryResource("elastic,statistics")
    rmm.DeviceBuffer(size=1000, mr=elastic)
    assert elastic.release_unused() > 0


# --- pausing by tag


def test_what_has_a_tag_can_be_paused_alone() -> None:
    pool = rmm.mr.ElasticPoolMemoryResource()
    assert pool.has_virtual_memory
    cache = rmm.tag("cache")
    pool.set_pausable(cache)
    with cache:
        paused = rmm.DeviceBuffer(size=1000, mr=pool)
    paused.copy_from_host(b"abc")
    other = rmm.DeviceBuffer.to_device(b"def")
    mapped = pool.mapped_bytes
    pool.pause(tag=cache)
    assert pool.mapped_bytes == mapped - pool.chunk_bytes
    assert rmm.DeviceBuffer(size=100, mr=pool).size == 100
    with cache, pytest.raises(RuntimeError, match="paused"):
        rmm.DeviceBuffer(size=100, mr=pool)
    pool.resume(tag=cache)
    assert paused.tobytes()[:3] == b"abc"
    assert other.tobytes() == b"def"
    with pytest.raises(RuntimeError):
        pool.pause(tag=rmm.tag("not pausable"))


# --- captures


@pytest.fixture
def begin_capture() -> Callable[[Stream], Callable[[], int]]:
    """Begins a capture on a stream; returns what ends it and tells the status."""
    if cuda_backend != "sim":
        pytest.skip("calls the simulated runtime")
    runtime = ctypes.CDLL(str(Path(librmm.__file__).parent / "lib" / "libcudart_sim.so"))

    def begin(stream: Stream) -> Callable[[], int]:
        handle = ctypes.c_void_p(stream.__cuda_stream__()[1])
        assert runtime.cudaStreamBeginCapture(handle, 1) == 0
        graph = ctypes.c_void_p()

        def end() -> int:
            status: int = runtime.cudaStreamEndCapture(handle, ctypes.byref(graph))
            if graph:
                runtime.cudaGraphDestroy(graph)
            return status

        return end

    return begin


def test_an_announced_capture_has_memory_of_its_own(
    begin_capture: Callable[[Stream], Callable[[], int]], pool: rmm.mr.PoolMemoryResource
) -> None:
    stream = Stream(flags=CudaStreamFlags.NON_BLOCKING)
    scope = rmm.capture_scope(stream)
    with scope as memory:
        assert memory is scope.memory
        end = begin_capture(stream)
        rmm.DeviceBuffer(size=1000, stream=stream, mr=pool)
        assert end() == 0
    assert pool.figures()["graph_bytes"] > 0
    memory.release(stream)
    del scope
    stream.synchronize()
    rmm.DeviceBuffer(size=1000, stream=stream, mr=pool)
    assert pool.figures()["graph_bytes"] == 0


def test_captures_share_memory(
    begin_capture: Callable[[Stream], Callable[[], int]], pool: rmm.mr.PoolMemoryResource
) -> None:
    stream, memory = Stream(flags=CudaStreamFlags.NON_BLOCKING), rmm.GraphMemory()
    addresses = []
    for _ in range(2):
        end = begin_capture(stream)
        with rmm.capture_scope(stream, memory):
            addresses.append(rmm.DeviceBuffer(size=MIB, stream=stream, mr=pool).ptr)
        assert end() == 0
    assert addresses[0] == addresses[1]
    assert memory == memory != rmm.GraphMemory()
    assert {memory: 1}[memory] == 1


def test_an_unannounced_capture_is_found(
    begin_capture: Callable[[Stream], Callable[[], int]], pool: rmm.mr.PoolMemoryResource
) -> None:
    stream = Stream(flags=CudaStreamFlags.NON_BLOCKING)
    for _ in range(3):
        rmm.DeviceBuffer(size=256, stream=stream, mr=pool)  # fills the thread's own cache
    end = begin_capture(stream)
    assert pool.check_capture
    with pytest.raises(RuntimeError, match="capture_scope"):
        rmm.DeviceBuffer(size=256, stream=stream, mr=pool)
    pool.check_capture = False
    assert not pool.check_capture
    rmm.DeviceBuffer(size=256, stream=stream, mr=pool)
    assert end() == 0


pools_of_all_kinds: dict[str, Callable[[], Any]] = {
    "pool": lambda: rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 0),
    "elastic": rmm.mr.ElasticPoolMemoryResource,
    "cached": lambda: rmm.mr.CachedMemoryResource(rmm.mr.CudaMemoryResource()),
    "pinned": lambda: rmm.mr.PinnedPoolMemoryResource(0),
    "configured": lambda: rmm.mr.ConfiguredMemoryResource("pool,statistics"),
}


@pytest.mark.parametrize("make", pools_of_all_kinds.values(), ids=pools_of_all_kinds)
def test_pools_check_for_captures_by_default(make: Callable[[], Any]) -> None:
    assert make().check_capture


def test_capture_scopes_are_not_misused() -> None:
    with pytest.raises(TypeError, match="cannot be None"):
        rmm.capture_scope(None)
    with pytest.raises(TypeError, match="Cannot create stream"):
        rmm.capture_scope("stream")
    scope = rmm.capture_scope(Stream())
    with scope, pytest.raises(RuntimeError, match="capture_scope is in use"):
        scope.__enter__()
    memory = rmm.GraphMemory()
    memory.release(Stream())
    with pytest.raises(RuntimeError, match="moved from"), rmm.capture_scope(Stream(), memory):
        pass


# --- the guard


def test_the_guard_tells_what_it_finds(cuda: rmm.mr.CudaMemoryResource) -> None:
    found: list[GuardViolation] = []
    guard = rmm.mr.GuardResourceAdaptor(cuda, quarantine_bytes="1MiB", handler=found.append)
    buffer = rmm.DeviceBuffer(size=100, mr=guard)
    rmm.pylibrmm.device_buffer.copy_host_to_ptr(b"beyond the end", buffer.ptr + buffer.capacity())
    address = buffer.ptr
    del buffer
    assert [(each.what, each.ptr, each.offset) for each in found] == [("overrun", address, 112)]
    assert "RMM guard" in found[0].report
    ptr = guard.allocate(256)
    guard.deallocate(ptr, 256)
    guard.deallocate(ptr, 256)
    ptr = guard.allocate(256)
    guard.deallocate(ptr, 512)
    assert [each.what for each in found[1:]] == ["double_free", "wrong_size"]
    with pytest.raises(TypeError, match="cannot be called"):
        rmm.mr.GuardResourceAdaptor(cuda, handler=3)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        rmm.mr.GuardResourceAdaptor(cuda, red_zone_bytes=-1)


@pytest.mark.program("""
    import rmm
    guard = rmm.mr.GuardResourceAdaptor(rmm.mr.CudaMemoryResource(), capture_stacks=False)
    ptr = guard.allocate(256)
    guard.deallocate(ptr, 256)
    guard.deallocate(ptr, 256)
""")
def test_without_a_handler_the_guard_ends_the_process(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode < 0
    assert "freed twice" in done.stderr


# --- host memory


def test_registered_host_memory_serves_pools() -> None:
    host = rmm.mr.RegisteredHostMemoryResource(threads=1)
    assert host.numa_node is None
    assert rmm.mr.RegisteredHostMemoryResource(numa_node=0).numa_node == 0
    pool = rmm.mr.PoolMemoryResource(host, 2 * MIB)
    buffer = rmm.DeviceBuffer(size=3, mr=pool)
    buffer.copy_from_host(b"abc")
    assert copy.copy(buffer).tobytes() == b"abc"
    with pytest.raises(ValueError, match="no NUMA node"):
        rmm.mr.RegisteredHostMemoryResource(numa_node=-1)
    with pytest.raises(RuntimeError, match="both near_device and numa_node"):
        rmm.mr.RegisteredHostMemoryResource(near_device=True, numa_node=0)


def test_a_pinned_pool_gives_memory_back() -> None:
    pool = rmm.mr.PinnedPoolMemoryResource("2MiB", allow_pageable=True)
    del_me = rmm.DeviceBuffer(size=1 << 22, mr=pool)
    assert pool.pool_size() >= 6 << 20
    del del_me
    assert pool.release_unused() >= 6 << 20
    assert (pool.pool_size(), pool.pageable_bytes) == (0, 0)
