# SPDX-License-Identifier: Apache-2.0
"""SpillResourceAdaptor: a function that frees memory before the pool runs out, and watermarks."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import rmm

KIB = 1024


def pool(kib: int = 64) -> rmm.mr.PoolMemoryResource:
    return rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), kib * KIB, kib * KIB)


def buffer(kib: int, resource: rmm.mr.DeviceMemoryResource) -> rmm.DeviceBuffer:
    return rmm.DeviceBuffer(size=kib * KIB, mr=resource)


class Cache:
    """Buffers of 8 KiB that can be spilled."""

    def __init__(self, **options: Any) -> None:
        self.asked: list[int] = []
        self.buffers: list[rmm.DeviceBuffer] = []
        self.spilled: list[bytes] = []
        self.resource = rmm.mr.SpillResourceAdaptor(pool(), self.spill, **options)

    def add(self, count: int) -> None:
        for _ in range(count):
            self.buffers.append(buffer(8, self.resource))

    def spill(self, nbytes: int) -> int:
        self.asked.append(nbytes)
        freed = 0
        while freed < nbytes and self.buffers:
            spilled = self.buffers.pop()
            self.spilled.append(spilled.tobytes())
            freed += spilled.size
        return freed


def test_memory_is_spilled_before_the_pool_fails() -> None:
    cache = Cache(maximum="1MiB")
    cache.add(8)
    assert cache.asked == []
    other = buffer(20, cache.resource)
    assert cache.asked == [20 * KIB]
    assert [len(spilled) for spilled in cache.spilled] == [8 * KIB] * 3
    assert cache.resource.get_allocated_bytes() == 60 * KIB
    assert cache.resource.figures() == {"calls": 1, "asked_bytes": 20 * KIB, "freed_bytes": 24 * KIB}
    assert other.size == 20 * KIB


def test_memory_is_spilled_before_the_use_rises_above_a_share() -> None:
    cache = Cache(maximum=64 * KIB, spill_above=0.5)
    cache.add(6)
    assert cache.asked == [8 * KIB, 8 * KIB]
    assert len(cache.buffers) == 4
    assert cache.resource.get_maximum() == 64 * KIB


def test_a_function_that_frees_nothing_lets_the_report_through() -> None:
    resource = rmm.mr.SpillResourceAdaptor(pool(), lambda nbytes: 0)
    with pytest.raises(rmm.ReportedMemoryError) as caught:
        buffer(65, resource)
    assert caught.value.report.asked_bytes == 65 * KIB
    assert resource.figures()["calls"] == 1
    assert resource.get_allocated_bytes() == 0


def fail(raised: type[BaseException]) -> Callable[[int], int]:
    def mine(nbytes: int) -> int:
        raise raised("MyError")

    return mine


@pytest.mark.parametrize("raised", [RuntimeError, MemoryError])
@pytest.mark.parametrize("where", ["failure", "share", "watermark"])
def test_exceptions_arrive_with_their_traceback(raised: type[Exception], where: str) -> None:
    if where == "watermark":
        resource = rmm.mr.SpillResourceAdaptor(pool(), maximum=64 * KIB, watermarks=[(0.5, 0.25, fail(raised))])
    else:
        above = 0.5 if where == "share" else 1
        resource = rmm.mr.SpillResourceAdaptor(pool(), fail(raised), maximum=72 * KIB, spill_above=above)
    with pytest.raises(raised, match="MyError") as caught:
        buffer(65 if where == "failure" else 40, resource)
    assert "mine" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert resource.get_allocated_bytes() == 0


def test_other_exceptions_are_the_cause() -> None:
    resource = rmm.mr.SpillResourceAdaptor(pool(), fail(KeyError))
    with pytest.raises(RuntimeError, match="MyError") as caught:
        buffer(65, resource)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("result", "cause"), [(None, TypeError), (-1, OverflowError), ("1", TypeError), (True, TypeError)]
)
def test_a_result_that_is_no_size_is_an_error(result: Any, cause: type[Exception]) -> None:
    resource = rmm.mr.SpillResourceAdaptor(pool(), lambda nbytes: result)
    with pytest.raises(RuntimeError) as caught:
        buffer(65, resource)
    assert isinstance(caught.value.__cause__, cause)


def test_watermarks_are_told_once_until_the_use_was_low() -> None:
    told: list[tuple[str, int]] = []
    cache = Cache(
        maximum=64 * KIB,
        watermarks=[
            (0.5, 0.25, lambda nbytes: told.append(("half", nbytes))),
            (0.75, 0.5, lambda nbytes: told.append(("more", nbytes))),
        ],
    )
    cache.add(8)
    assert told == [("half", 40 * KIB), ("more", 56 * KIB)]
    del cache.buffers[4:]
    cache.add(3)
    assert told[2:] == [("more", 56 * KIB)]
    cache.buffers.clear()
    cache.add(5)
    assert told[3:] == [("half", 40 * KIB)]


def test_functions_may_allocate_from_the_adaptor() -> None:
    calls: list[int] = []

    def spill(nbytes: int) -> int:
        calls.append(nbytes)
        with pytest.raises(MemoryError):
            buffer(100, resource)
        buffer(1, resource)
        return 0

    resource = rmm.mr.SpillResourceAdaptor(pool(), spill, maximum=64 * KIB, spill_above=0.5)
    buffer(33, resource)
    assert calls == [KIB]


def test_other_threads_run_while_a_function_waits() -> None:
    entered, may_leave = threading.Event(), threading.Event()

    def spill(nbytes: int) -> int:
        entered.set()
        assert may_leave.wait(300)
        return 0

    resource = rmm.mr.SpillResourceAdaptor(pool(), spill, maximum=64 * KIB, spill_above=0.5)
    worker = threading.Thread(target=lambda: buffer(33, resource))
    worker.start()
    assert entered.wait(300)
    assert rmm.DeviceBuffer.to_device(b"abc").tobytes() == b"abc"
    may_leave.set()
    worker.join()


def test_no_spill_for_requests_above_the_maximum() -> None:
    cache = Cache(maximum=32 * KIB)
    cache.add(3)
    for size in (65 * KIB, 1 << 62):
        with pytest.raises(MemoryError):
            rmm.DeviceBuffer(size=size, mr=cache.resource)
    assert cache.asked == []


def test_spill_for_requests_above_the_maximum_if_the_pool_has_as_much() -> None:
    cache = Cache(maximum=32 * KIB)
    cache.add(4)
    assert buffer(40, cache.resource).size == 40 * KIB
    assert cache.asked == [40 * KIB]
    assert cache.buffers == []


def test_without_a_function_nothing_is_asked() -> None:
    resource = rmm.mr.SpillResourceAdaptor(pool(), maximum=KIB)
    assert buffer(2, resource).size == 2 * KIB
    with pytest.raises(MemoryError):
        buffer(65, resource)
    assert resource.figures()["calls"] == 0


def test_options_are_checked() -> None:
    upstream = pool()
    with pytest.raises(TypeError, match="3 cannot be called"):
        rmm.mr.SpillResourceAdaptor(upstream, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="None cannot be called"):
        rmm.mr.SpillResourceAdaptor(upstream, watermarks=[(0.5, 0.2, None)])  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="lower share"):
        rmm.mr.SpillResourceAdaptor(upstream, watermarks=[(0.5, 0.6, print)])
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        rmm.mr.SpillResourceAdaptor(upstream, spill_above=2)
    with pytest.raises(RuntimeError, match="above 0"):
        rmm.mr.SpillResourceAdaptor(upstream, maximum=0)


def test_functions_are_collected_with_the_buffers_that_they_could_spill() -> None:
    cache = Cache(maximum=64 * KIB, watermarks=[(0.5, 0.25, lambda nbytes: None)])
    cache.add(10)
    ended = weakref.ref(cache)
    del cache
    gc.collect()
    assert ended() is None


def test_functions_stay_as_long_as_buffers_may_call_them() -> None:
    cache = Cache(maximum=64 * KIB)
    cache.add(8)
    ended, held = weakref.ref(cache), cache.buffers[0]
    del cache
    gc.collect()
    assert ended() is not None
    held.resize(16 * KIB)  # calls the function
    del held
    gc.collect()
    assert ended() is None


def test_the_pool_below_is_found() -> None:
    resource = rmm.mr.SpillResourceAdaptor(rmm.mr.ElasticPoolMemoryResource(), lambda nbytes: 0)
    assert isinstance(resource.get_upstream(), rmm.mr.ElasticPoolMemoryResource)
    rmm.mr.set_current_device_resource(resource)
    try:
        assert rmm.DeviceBuffer(size=100).size == 100
        assert resource.get_allocated_bytes() == 0
    finally:
        rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
