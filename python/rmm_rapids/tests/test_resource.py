# SPDX-License-Identifier: Apache-2.0
"""EngineMemoryResource as a resource of RAPIDS."""

from __future__ import annotations

import gc
import inspect
import threading
from collections.abc import Callable

import pytest
import rmm
from rmm.pylibrmm.stream import PER_THREAD_DEFAULT_STREAM

from rmm_engine_rapids import EngineMemoryResource, Holder

GIB = 1 << 30
MIB = 1 << 20


def live(resource: EngineMemoryResource) -> tuple[int, int]:
    figures = resource.figures()
    assert figures is not None
    return figures.live_blocks, figures.live_bytes


def test_is_a_resource_of_rapids() -> None:
    resource = EngineMemoryResource("elastic,max=1GiB")
    assert isinstance(resource, rmm.mr.DeviceMemoryResource)
    assert (resource.configuration, resource.device) == ("elastic,max=1GiB", 0)
    assert repr(resource) == "EngineMemoryResource('elastic,max=1GiB', device=0)"


def test_allocates_and_gives_back() -> None:
    resource = EngineMemoryResource("pool,initial=16MiB,max=64MiB")
    block = resource.allocate(1000)
    assert block % 256 == 0
    assert live(resource) == (1, 1024)
    resource.deallocate(block, 1000)
    assert live(resource) == (0, 0)


def test_serves_the_stream_that_is_named() -> None:
    resource = EngineMemoryResource("pool,initial=16MiB")
    block = resource.allocate(1000, PER_THREAD_DEFAULT_STREAM)
    resource.deallocate(block, 1000, PER_THREAD_DEFAULT_STREAM)
    assert resource.allocate(1000, PER_THREAD_DEFAULT_STREAM) == block
    resource.deallocate(block, 1000, PER_THREAD_DEFAULT_STREAM)


def test_serves_device_buffers() -> None:
    resource = EngineMemoryResource("elastic,max=1GiB")
    buffer = rmm.DeviceBuffer(size=5000, mr=resource)
    assert live(resource) == (1, 5120)
    del buffer
    assert live(resource) == (0, 0)


def test_serves_many_threads() -> None:
    resource = EngineMemoryResource("pool,initial=64MiB,max=1GiB")
    failures: list[BaseException] = []

    def work(size: int) -> None:
        try:
            for _ in range(200):
                blocks = [resource.allocate(size) for _ in range(8)]
                assert len(set(blocks)) == 8
                for block in blocks:
                    resource.deallocate(block, size)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(size,)) for size in (100, 5000, 70_000, 1_000_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert live(resource) == (0, 0)


def test_is_an_upstream_of_statistics() -> None:
    resource = EngineMemoryResource("elastic,max=1GiB")
    counted = rmm.mr.StatisticsResourceAdaptor(resource)
    buffer = rmm.DeviceBuffer(size=5000, mr=counted)
    assert counted.allocation_counts.current_bytes == 5000
    assert live(resource)[0] == 1
    del buffer
    assert counted.allocation_counts.current_bytes == 0
    assert counted.get_upstream() is resource


def test_is_an_upstream_of_a_limit() -> None:
    resource = EngineMemoryResource("elastic,max=1GiB")
    limited = rmm.mr.LimitingResourceAdaptor(resource, 10_000)
    block = limited.allocate(8000)
    with pytest.raises(MemoryError, match="Exceeded memory limit"):
        limited.allocate(8000)
    limited.deallocate(block, 8000)
    assert limited.get_allocated_bytes() == 0
    assert live(resource) == (0, 0)


def test_is_an_upstream_of_tracking_and_pools() -> None:
    resource = EngineMemoryResource("pool,initial=64MiB,max=1GiB")
    tracked = rmm.mr.TrackingResourceAdaptor(resource)
    block = tracked.allocate(1000)
    assert tracked.get_allocated_bytes() == 1000
    tracked.deallocate(block, 1000)
    pool = rmm.mr.PoolMemoryResource(resource, MIB, 4 * MIB)
    assert live(resource) == (1, MIB)
    pool.deallocate(pool.allocate(1000), 1000)
    del pool
    assert live(resource) == (0, 0)


def test_exhaustion_calls_failure_callbacks() -> None:
    resource = EngineMemoryResource("pool,initial=1MiB,max=4MiB")
    held = [resource.allocate(3 * MIB)]

    def free_and_try_again(asked: int) -> bool:
        assert asked == 2 * MIB
        if not held:
            return False
        resource.deallocate(held.pop(), 3 * MIB)
        return True

    retried = rmm.mr.FailureCallbackResourceAdaptor(resource, free_and_try_again)
    retried.deallocate(retried.allocate(2 * MIB), 2 * MIB)
    assert held == []


def test_exhaustion_has_a_report() -> None:
    resource = EngineMemoryResource("pool,initial=1MiB,max=4MiB")
    assert resource.report() is None
    block = resource.allocate(MIB)
    with pytest.raises(MemoryError, match=r"pool: .* at most 4") as failure:
        resource.allocate(8 * MIB)
    assert str(failure.value).count("out_of_memory") == 1
    report = resource.report()
    assert report is not None
    assert (report.asked_bytes, report.maximum_bytes, report.live_bytes, report.device) == (8 * MIB, 4 * MIB, MIB, 0)
    assert report.failures == 1
    assert "asked: 8" in report.text
    resource.deallocate(block, MIB)


def test_each_resource_keeps_its_own_report() -> None:
    first = EngineMemoryResource("pool,initial=1MiB,max=4MiB")
    second = EngineMemoryResource("pool,initial=1MiB,max=4MiB")

    def fail() -> None:
        with pytest.raises(MemoryError):
            first.allocate(8 * MIB)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    report = first.report()
    assert report is not None
    assert report.asked_bytes == 8 * MIB
    assert second.report() is None


@pytest.mark.parametrize("configuration", ["elastic,max=1GiB", "pool,initial=1MiB,max=1GiB"])
def test_trims(configuration: str, free_memory: Callable[[], int], slack: int) -> None:
    resource = EngineMemoryResource(configuration)
    before = free_memory()
    resource.deallocate(resource.allocate(100 * MIB), 100 * MIB)
    assert before - free_memory() >= 100 * MIB
    assert resource.trim_to(0) >= 100 * MIB
    assert before - free_memory() <= slack
    assert resource.trim_to() == 0


def test_unsupported_calls_raise_errors() -> None:
    resource = EngineMemoryResource("cuda")
    assert resource.figures() is None
    with pytest.raises(RuntimeError, match="cannot give memory back"):
        resource.trim_to(0)
    for configuration in ("cuda", "elastic"):
        with pytest.raises(RuntimeError, match="lacks the option `tags`"):
            EngineMemoryResource(configuration).live_by_tag()
    resource.deallocate(resource.allocate(100), 100)


def test_lists_what_has_no_tag() -> None:
    resource = EngineMemoryResource("elastic,max=1GiB,tags,statistics")
    assert resource.live_by_tag() == []
    blocks = [resource.allocate(MIB) for _ in range(3)]
    assert resource.live_by_tag() == [Holder(tag="", bytes=3 * MIB, allocations=3)]
    for block in blocks:
        resource.deallocate(block, MIB)
    assert resource.live_by_tag() == []


@pytest.mark.parametrize(
    ("configuration", "device", "error", "text"),
    [
        ("elastik", None, ValueError, "unknown resource 'elastik'"),
        ("pool,size=1GiB", None, ValueError, "size"),
        ("pool", 1000, ValueError, "device"),
        ("pool", -1, ValueError, "there is no device -1"),
        (5, None, TypeError, "a text such as 'elastic,max=80%', not 5"),
    ],
)
def test_refuses_bad_configurations_and_devices(
    configuration: str, device: int | None, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        EngineMemoryResource(configuration, device)


def test_the_pool_lives_as_long_as_its_blocks(free_memory: Callable[[], int], slack: int) -> None:
    before = free_memory()
    resource = EngineMemoryResource("pool,initial=64MiB")
    buffer = rmm.DeviceBuffer(size=1000, mr=rmm.mr.StatisticsResourceAdaptor(resource))
    del resource
    gc.collect()
    assert before - free_memory() >= 64 * MIB
    del buffer
    gc.collect()
    assert before - free_memory() <= slack


def test_can_be_subclassed() -> None:
    class Named(EngineMemoryResource):
        name = "mine"

    resource = Named("elastic,max=1GiB")
    assert resource.name == "mine"
    resource.deallocate(resource.allocate(10), 10)


def test_methods_take_no_other_object() -> None:
    with pytest.raises(TypeError):
        EngineMemoryResource.trim_to(5)  # type: ignore[arg-type]


def test_docstrings_have_parameters_and_signatures() -> None:
    assert "nbytes" in str(inspect.signature(EngineMemoryResource.trim_to))
    assert "Parameters" in (EngineMemoryResource.__doc__ or "")
    assert (EngineMemoryResource.figures.__doc__ or "").startswith("Tells what the pool has")
