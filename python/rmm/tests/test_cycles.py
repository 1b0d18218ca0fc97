# SPDX-License-Identifier: Apache-2.0
"""Resources that hold functions which refer to them: the garbage collector frees them once none of their memory is live."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rmm
import rmm.mr
from rmm.pylibrmm.stream import Stream


@pytest.fixture(autouse=True)
def only_when_asked() -> Iterator[None]:
    """Turns automatic garbage collection off."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Owner:
    """An object with a resource that calls its methods."""

    def __init__(self, wrap: Callable[[Any], Any] = lambda resource: resource) -> None:
        self.upstream = rmm.mr.CudaMemoryResource()
        self.resource = wrap(rmm.mr.CallbackMemoryResource(self.allocate, self.deallocate))
        self.freed: list[int] = []

    def allocate(self, nbytes: int, stream: Stream) -> int:
        return self.upstream.allocate(nbytes, stream)

    def deallocate(self, ptr: int, nbytes: int, stream: Stream) -> None:
        self.freed.append(nbytes)
        self.upstream.deallocate(ptr, nbytes, stream)


def kept_owner() -> Any:
    """Returns an owner that the collector has kept although nothing refers to it, not even a weak reference; else None."""
    return next((each for each in gc.get_objects() if type(each) is Owner), None)


layers: list[Callable[[Any], Any]] = [
    lambda resource: resource,
    rmm.mr.StatisticsResourceAdaptor,
    lambda resource: rmm.mr.LimitingResourceAdaptor(rmm.mr.TrackingResourceAdaptor(resource), 1 << 30),
    rmm.mr.BinningMemoryResource,
    lambda resource: rmm.mr.PoolMemoryResource(resource, 0),
]


@pytest.mark.parametrize("wrap", layers)
def test_callbacks_of_their_owner_are_collected(wrap: Any) -> None:
    owner = Owner(wrap)
    ended = weakref.ref(owner)
    del owner
    assert ended() is not None
    gc.collect()
    assert ended() is None


@pytest.mark.parametrize("wrap", layers[:3])
def test_callbacks_are_collected_after_the_last_deallocation_only(wrap: Any) -> None:
    owner = Owner(wrap)
    ended, freed = weakref.ref(owner), owner.freed
    buffer = rmm.DeviceBuffer(size=1024, mr=owner.resource)
    second = rmm.DeviceBuffer(size=512, mr=owner.resource)
    del owner
    for _ in range(2):
        gc.collect()
    assert ended() is not None
    buffer.resize(2048)
    assert freed == [1024]
    del buffer
    gc.collect()
    assert ended() is not None
    del second
    gc.collect()
    assert freed == [1024, 2048, 512]
    assert ended() is None


def test_memory_without_a_buffer_keeps_the_functions_too() -> None:
    owner = Owner()
    ended, freed, resource = weakref.ref(owner), owner.freed, owner.resource
    ptr = resource.allocate(256)
    del owner
    gc.collect()
    resource.deallocate(ptr, 256)
    assert freed == [256]
    del resource
    gc.collect()
    assert ended() is None


def test_a_live_buffer_in_the_cycle_is_not_collected_and_crashes_nothing() -> None:
    owner: Any = Owner()
    owner.buffer = rmm.DeviceBuffer(size=1024, mr=owner.resource)
    freed = owner.freed
    del owner
    for _ in range(2):
        gc.collect()
    assert freed == []
    kept_owner().buffer = None  # breaks the cycle: the buffer needs the function, see lent_callables
    gc.collect()
    assert freed == [1024]
    assert kept_owner() is None


pools: list[Callable[[Any], Any]] = [
    lambda resource: rmm.mr.PoolMemoryResource(resource, 1 << 20),
    lambda resource: rmm.mr.CachedMemoryResource(resource, initial_size=1 << 20, block_size=1 << 18),
    lambda resource: rmm.mr.StatisticsResourceAdaptor(rmm.mr.PoolMemoryResource(resource, 1 << 20)),
    lambda resource: rmm.mr.PoolMemoryResource(rmm.mr.StatisticsResourceAdaptor(resource), 1 << 20),
]


@pytest.mark.parametrize("wrap", pools)
def test_a_pool_with_memory_gives_it_back_and_is_collected_with_its_owner(wrap: Any) -> None:
    owner = Owner(wrap)
    ended, freed = weakref.ref(owner), owner.freed
    ptr = owner.resource.allocate(1000)
    owner.resource.deallocate(ptr, 1000)
    del owner
    gc.collect()
    assert sum(freed) >= 1 << 20
    assert ended() is None


@pytest.mark.parametrize("wrap", pools)
def test_memory_of_a_pool_that_is_in_use_keeps_its_owner(wrap: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    owner: Any = Owner(wrap)
    owner.buffer = rmm.DeviceBuffer(size=1024, mr=owner.resource)
    freed = owner.freed
    del owner
    for _ in range(2):
        gc.collect()
    owner = kept_owner()
    rmm.DeviceBuffer(size=1 << 21, mr=owner.resource)  # still usable
    owner.buffer = owner.resource = None
    del owner
    gc.collect()
    assert kept_owner() is None
    assert sum(freed) >= 1 << 20
    assert unraisable == []


def test_an_owner_that_was_kept_is_safe_when_it_allocates_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    owner: Any = Owner()
    owner.buffer = rmm.DeviceBuffer(size=1024, mr=owner.resource)
    freed = owner.freed
    del owner
    gc.collect()
    owner = kept_owner()
    owner.buffer = None
    owner.buffer = rmm.DeviceBuffer(size=2048, mr=owner.resource)  # the resource is not finalized again
    del owner
    gc.collect()
    kept_owner().buffer = None
    gc.collect()
    assert kept_owner() is None
    assert freed == [1024, 2048]
    assert unraisable == []


def test_functions_that_refer_to_no_pool_free_its_memory() -> None:
    upstream, freed = rmm.mr.CudaMemoryResource(), []

    def deallocate(ptr: int, nbytes: int, stream: Stream) -> None:
        freed.append(nbytes)
        upstream.deallocate(ptr, nbytes, stream)

    pool = rmm.mr.FixedSizeMemoryResource(rmm.mr.CallbackMemoryResource(upstream.allocate, deallocate), 4096, 16)
    del pool
    assert sum(freed) >= 16 * 4096


def test_a_pool_that_keeps_unused_memory_keeps_its_owner_until_it_is_removed() -> None:
    owner: Any = Owner(lambda resource: rmm.mr.FixedSizeMemoryResource(resource, 4096, 16))
    freed = owner.freed
    del owner
    gc.collect()
    assert freed == []
    kept_owner().resource = None  # the documented limit of CallbackMemoryResource: the pool must be removed
    gc.collect()
    assert sum(freed) >= 16 * 4096
    assert kept_owner() is None


def test_zero_bytes_null_pointers_and_too_many_deallocations_do_no_harm() -> None:
    calls: list[int] = []
    resource = rmm.mr.CallbackMemoryResource(lambda nbytes, stream: 0, lambda ptr, nbytes, stream: calls.append(ptr))
    assert resource.allocate(0) == 0
    resource.deallocate(0, 0)
    resource.deallocate(512, 1)  # never allocated
    resource.deallocate(512, 1)
    assert calls == [0, 512, 512]


def test_a_deallocation_that_raises_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __init__(self) -> None:
            self.resource = rmm.mr.CallbackMemoryResource(lambda nbytes, stream: 256, self.fail)

        def fail(self, ptr: int, nbytes: int, stream: Stream) -> None:
            raise KeyError(ptr)

    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(unraisable.exc_type))
    failing = Failing()
    failing.resource.deallocate(failing.resource.allocate(256), 256)
    assert seen == [KeyError]
    ended = weakref.ref(failing)
    del failing
    gc.collect()
    assert ended() is None


@pytest.mark.parametrize("in_a_stack", [False, True])
def test_failure_callbacks_are_collected_with_the_buffers_that_they_could_drop(in_a_stack: bool) -> None:
    class Cache:
        def __init__(self) -> None:
            limited = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), 4096)
            self.resource: Any = rmm.mr.FailureCallbackResourceAdaptor(limited, self.drop)
            if in_a_stack:
                self.resource = rmm.mr.StatisticsResourceAdaptor(self.resource)
            self.kept: list[rmm.DeviceBuffer] = []

        def drop(self, nbytes: int) -> bool:
            return bool(self.kept) and self.kept.pop() is not None

    cache = Cache()
    for _ in range(10):
        cache.kept.append(rmm.DeviceBuffer(size=1024, mr=cache.resource))
    assert len(cache.kept) == 4
    ended = weakref.ref(cache)
    buffer = cache.kept[0]
    del cache
    gc.collect()
    assert ended() is not None
    buffer.resize(2048)  # calls the function
    del buffer
    gc.collect()
    assert ended() is None


def test_failure_callbacks_of_pools_are_collected_and_stay_as_long_as_they_may_be_called() -> None:
    class Cache:
        def __init__(self) -> None:
            self.pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 20, 1 << 20)
            self.pool.set_failure_callback(self.drop)
            self.kept: list[rmm.DeviceBuffer] = []

        def drop(self, nbytes: int) -> bool:
            return bool(self.kept) and self.kept.pop() is not None

    cache = Cache()
    for _ in range(8):
        cache.kept.append(rmm.DeviceBuffer(size=1 << 18, mr=cache.pool))
    ended = weakref.ref(cache)
    over = rmm.mr.StatisticsResourceAdaptor(cache.pool)
    del cache
    gc.collect()
    rmm.DeviceBuffer(size=1 << 18, mr=over)
    assert ended() is not None
    del over
    gc.collect()
    assert ended() is None


def test_a_failure_callback_of_a_pool_ends_when_another_takes_its_place() -> None:
    class Callback:
        def __call__(self, nbytes: int) -> bool:
            return False

    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 20, 1 << 20)
    first = Callback()
    ended = weakref.ref(first)
    pool.set_failure_callback(first)
    del first
    assert ended() is not None
    pool.set_failure_callback(lambda nbytes: False)
    assert ended() is None
    with pytest.raises(MemoryError):
        pool.allocate(1 << 30)
    pool.set_failure_callback(None)
    with pytest.raises(MemoryError):
        pool.allocate(1 << 30)


def test_functions_outlive_the_objects_of_python_that_hold_them() -> None:
    calls: list[str] = []
    upstream = rmm.mr.CudaMemoryResource()

    def allocate(nbytes: int, stream: Stream) -> int:
        calls.append("allocate")
        return upstream.allocate(nbytes, stream)

    resource: Any = rmm.mr.CallbackMemoryResource(allocate, upstream.deallocate)
    binning = rmm.mr.BinningMemoryResource(rmm.mr.CudaMemoryResource())
    binning.add_bin(1024, resource)
    del resource, allocate
    binning.bin_mrs.clear()  # now the resource belongs to C++ alone
    gc.collect()
    buffer = rmm.DeviceBuffer(size=1000, mr=binning)
    del buffer
    assert calls == ["allocate"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 20, 1 << 20),
        lambda: rmm.mr.CachedMemoryResource(rmm.mr.CudaAsyncMemoryResource(), maximum_size=1 << 20, block_size=1 << 18),
    ],
)
def test_a_failure_callback_outlives_the_pool_of_python(make: Any) -> None:
    calls: list[int] = []

    def give_up(nbytes: int) -> bool:
        calls.append(nbytes)
        return False

    pool = make()
    pool.set_failure_callback(give_up)
    del give_up
    binning = rmm.mr.BinningMemoryResource(rmm.mr.CudaMemoryResource())
    binning.add_bin(1 << 18, pool)
    del pool
    binning.bin_mrs.clear()  # now the pool belongs to C++ alone
    gc.collect()
    buffers = [rmm.DeviceBuffer(size=1 << 18, mr=binning) for _ in range(4)]
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=1 << 18, mr=binning)
    assert len(buffers) == 4
    assert calls == [1 << 18]


@pytest.mark.parametrize("change", [rmm.DeviceBuffer.resize, rmm.DeviceBuffer.reserve])
def test_a_buffer_keeps_the_stream_of_a_change_that_failed(change: Any) -> None:
    buffer = rmm.DeviceBuffer(size=1000, mr=rmm.mr.CudaAsyncMemoryResource())
    with pytest.raises(MemoryError):
        change(buffer, 1 << 60, Stream())
    gc.collect()
    del buffer  # the simulator ends a process that frees on a stream which is gone


def test_a_buffer_is_freed_before_its_stream_when_both_are_collected() -> None:
    for resource in (rmm.mr.CudaAsyncMemoryResource(), rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 20)):
        cycle: list[Any] = [Stream()]
        cycle += [rmm.DeviceBuffer(size=1000, stream=cycle[0], mr=resource), cycle]
        del cycle
        gc.collect()  # the simulator ends a process that frees on a stream which is gone


program = """
import sys, threading
import rmm, rmm.mr

class Owner:
    def __init__(self):
        self.upstream = rmm.mr.CudaMemoryResource()
        self.resource = rmm.mr.CallbackMemoryResource(self.upstream.allocate, self.deallocate)
        self.buffer = rmm.DeviceBuffer(size=1000, mr=self.resource)
        self.pool = rmm.mr.PoolMemoryResource(rmm.mr.StatisticsResourceAdaptor(self.resource), 0)
        self.pool.set_failure_callback(self.fail)
        self.other = rmm.DeviceBuffer(size=1000, mr=self.pool)

    def deallocate(self, ptr, nbytes, stream):
        self.upstream.deallocate(ptr, nbytes, stream)

    def fail(self, nbytes):
        return False

if "thread" in sys.argv:
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 20)
    changed = threading.Event()

    def change():
        while True:
            pool.set_failure_callback(lambda nbytes: False)
            changed.set()

    threading.Thread(target=change, daemon=True).start()
    changed.wait()
    sys.exit()  # while the other thread waits for the GIL

owner = Owner()
if "set" in sys.argv:
    rmm.mr.set_current_device_resource(owner.pool)
if "keep" not in sys.argv:
    del owner
if "module" in sys.argv:
    sys.owner = Owner()
"""


def program_of(test: pytest.Function) -> list[str]:
    return ["-c", program, *test.callspec.params["arguments"]]  # type: ignore[misc]


@pytest.mark.parametrize(
    "arguments", [[], ["set"], ["keep"], ["set", "keep"], ["module"], ["set", "module"], ["thread"]]
)
def test_nothing_crashes_at_exit(arguments: list[str], done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, ""), arguments
