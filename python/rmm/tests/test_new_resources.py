# SPDX-License-Identifier: Apache-2.0
"""Resources that RMM's own package does not have: pools that give memory back, configurations, traces"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmm
from rmm.pylibrmm.stream import Stream

MIB = 1 << 20


def free_memory() -> int:
    return rmm.mr.available_device_memory()[0]


@pytest.mark.usefixtures("device_alone")
def test_an_elastic_pool_grows_and_gives_back() -> None:
    free = free_memory()
    pool = rmm.mr.ElasticPoolMemoryResource("4MiB", "64MiB")
    assert pool.pool_size() == 4 * MIB
    buffers = [rmm.DeviceBuffer(size=16 * MIB, mr=pool) for _ in range(3)]
    assert pool.pool_size() >= 48 * MIB
    assert pool.figures()["live_bytes"] == 48 * MIB
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=32 * MIB, mr=pool)
    del buffers[1:]
    released = pool.release_unused()
    assert released >= 32 * MIB
    assert pool.pool_size() == 16 * MIB
    assert free_memory() <= free - 16 * MIB
    del buffers
    assert pool.trim_to(0) == 16 * MIB
    assert pool.pool_size() == 0


@pytest.mark.usefixtures("device_alone")
def test_an_elastic_pool_can_be_paused() -> None:
    pool = rmm.mr.ElasticPoolMemoryResource()
    buffer = rmm.DeviceBuffer(size=1000, mr=pool)
    buffer.copy_from_host(b"abc" * 100)
    address, free = buffer.ptr, free_memory()
    pool.pause()
    assert pool.is_paused
    assert free_memory() > free
    with pytest.raises(RuntimeError):
        rmm.DeviceBuffer(size=1, mr=pool)
    pool.resume()
    assert not pool.is_paused
    assert buffer.ptr == address
    assert buffer.tobytes()[:300] == b"abc" * 100


def test_invalid_arguments_of_an_elastic_pool_are_refused() -> None:
    pool = rmm.mr.ElasticPoolMemoryResource()
    with pytest.raises(RuntimeError):
        pool.resume()
    with pytest.raises(ValueError, match='"dropped", "pageable" or "pinned"'):
        pool.pause("somewhere")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="256"):
        rmm.mr.ElasticPoolMemoryResource(100)
    with pytest.raises(RuntimeError):
        rmm.mr.ElasticPoolMemoryResource("2MiB", "1MiB")
    with pytest.raises(ValueError, match="below 0"):
        rmm.mr.ElasticPoolMemoryResource(decay_seconds=-1)
    with pytest.raises(OverflowError):
        rmm.mr.ElasticPoolMemoryResource(-1)


def test_unused_memory_goes_back_after_the_decay_time() -> None:
    pool = rmm.mr.ElasticPoolMemoryResource(decay_seconds=0)
    rmm.DeviceBuffer(size=4 * MIB, mr=pool)
    pool.tick()  # notes the unused memory
    pool.tick()  # gives it back, because it is still unused
    assert pool.pool_size() == 0
    assert rmm.mr.ElasticPoolMemoryResource("4MiB").tick() == 0


def test_a_front_cache_gives_back_to_its_upstream(cuda: rmm.mr.CudaMemoryResource) -> None:
    upstream = rmm.mr.StatisticsResourceAdaptor(cuda)
    cache = rmm.mr.CachedMemoryResource(upstream, initial_size="1MiB", block_size="1MiB")
    assert cache.upstream_mr is upstream
    assert cache.pool_size() == MIB
    buffer = rmm.DeviceBuffer(size=1000, mr=cache)
    assert cache.figures()["live_bytes"] == 1024
    del buffer
    assert cache.release_unused() == MIB
    assert upstream.allocation_counts.current_bytes == 0
    with pytest.raises(RuntimeError):
        rmm.mr.CachedMemoryResource(cuda, block_size=0)
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=2 * MIB, mr=rmm.mr.CachedMemoryResource(cuda, maximum_size=MIB))


@pytest.mark.parametrize(
    "make",
    [
        lambda: rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "4MiB"),
        lambda: rmm.mr.ConfiguredMemoryResource("pool,initial=4MiB"),
        lambda: rmm.mr.ConfiguredMemoryResource("pool,initial=4MiB,thread_safe,statistics"),
    ],
)
@pytest.mark.usefixtures("device_alone")
def test_a_pool_gives_whole_blocks_back(make: Callable[[], Any]) -> None:
    free = free_memory()
    pool = make()
    buffer = rmm.DeviceBuffer(size=1000, mr=pool)
    other = rmm.DeviceBuffer(size=8 * MIB, mr=pool)
    held = pool.pool_size()
    assert held >= 12 * MIB
    del other
    assert pool.trim_to(held) == 0
    assert pool.trim_to("4MiB") == held - 4 * MIB
    assert pool.trim_to(0) == 0  # its only block is in use
    assert pool.pool_size() == 4 * MIB
    del buffer
    assert pool.trim_to(0) == 4 * MIB
    assert pool.pool_size() == 0
    assert free_memory() == free


@pytest.mark.parametrize("text", ["cuda", "arena,size=4MiB"])
def test_a_configured_resource_that_cannot_give_back_returns_0(text: str) -> None:
    resource = rmm.mr.ConfiguredMemoryResource(text)
    assert resource.trim_to("1MiB") == resource.release_unused() == 0


@pytest.mark.usefixtures("device_alone")
def test_an_async_pool_gives_back() -> None:
    free = free_memory()
    resource = rmm.mr.CudaAsyncMemoryResource(release_threshold=1 << 30)
    stream = Stream()
    buffer = rmm.DeviceBuffer(size=64 * MIB, mr=resource, stream=stream)
    del buffer
    stream.synchronize()
    assert free_memory() < free
    assert resource.release_unused() >= 64 * MIB
    assert free_memory() == free


def test_pinned_memory_in_a_pool() -> None:
    pool = rmm.mr.PinnedPoolMemoryResource("1MiB", threads=2)
    assert pool.pool_size() == MIB
    buffer = rmm.DeviceBuffer(size=3, mr=pool)
    buffer.copy_from_host(b"abc")
    assert buffer.tobytes() == b"abc"
    assert pool.figures()["live_bytes"] == 256
    with pytest.raises(ValueError, match="no NUMA node"):
        rmm.mr.PinnedPoolMemoryResource(0, numa_node=-2)
    with pytest.raises(RuntimeError, match="both near_device and numa_node"):
        rmm.mr.PinnedPoolMemoryResource(0, near_device=True, numa_node=0)


@pytest.mark.parametrize("text", ["cuda", "pool,initial=1MiB", "recommended,initial=1MiB"])
def test_configurations_become_resources(text: str) -> None:
    resource = rmm.mr.ConfiguredMemoryResource(text)
    assert resource.configuration == text
    assert (resource.explanation != "") == text.startswith("recommended")
    assert repr(resource) == f"ConfiguredMemoryResource({text!r})"
    rmm.mr.set_current_device_resource(resource)
    assert rmm.DeviceBuffer.to_device(b"abc").tobytes() == b"abc"


@pytest.mark.parametrize(
    ("text", "error"), [("no such thing", ValueError), ("pool,initial=much", ValueError), (None, TypeError)]
)
def test_configurations_are_checked(text: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        rmm.mr.ConfiguredMemoryResource(text)


def test_a_trace_is_written(cuda: rmm.mr.CudaMemoryResource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = rmm.mr.TraceResourceAdaptor(cuda, tmp_path / "x.rmmtrace")
    rmm.DeviceBuffer(size=100, mr=tracer)
    tracer.flush()
    assert tracer.get_file_name() == str(tmp_path / "x.rmmtrace")
    assert tracer.get_lost_events() == 0
    assert (tmp_path / "x.rmmtrace").stat().st_size > 100
    with pytest.raises(ValueError, match="RMM_TRACE_FILE"):
        rmm.mr.TraceResourceAdaptor(cuda)
    monkeypatch.setenv("RMM_TRACE_FILE", str(tmp_path / "y.rmmtrace"))
    assert rmm.mr.TraceResourceAdaptor(cuda).get_file_name() == str(tmp_path / "y.rmmtrace")


@pytest.mark.parametrize("name", ["PoolMemoryResource", "ArenaMemoryResource", "FixedSizeMemoryResource"])
def test_figures_count_what_is_allocated(name: str, cuda: rmm.mr.CudaMemoryResource) -> None:
    resource = getattr(rmm.mr, name)(cuda, MIB)
    before = resource.figures()
    buffer = rmm.DeviceBuffer(size=256, mr=resource)
    after = resource.figures()
    assert before["live_bytes"] == 0
    assert after["live_bytes"] >= 256
    assert after["live_bytes"] + after["free_bytes"] == after["reserved_bytes"]
    assert buffer.size == 256


def make_keeper(name: str, cuda: rmm.mr.CudaMemoryResource) -> Any:
    match name:
        case "ArenaMemoryResource" | "FixedSizeMemoryResource":
            return getattr(rmm.mr, name)(cuda, MIB)
        case "CachedMemoryResource" | "PoolMemoryResource":
            return getattr(rmm.mr, name)(cuda, 8 * MIB)
        case "ElasticPoolMemoryResource" | "PinnedPoolMemoryResource":
            return getattr(rmm.mr, name)(8 * MIB)
        case "BinningMemoryResource":
            return rmm.mr.BinningMemoryResource(cuda, 20, 20)
        case "MemoryReservation":
            return rmm.mr.PoolMemoryResource(cuda, 16 * MIB).reserve(8 * MIB)
        case "ConfiguredMemoryResource":
            return rmm.mr.ConfiguredMemoryResource("elastic,initial=8MiB,statistics,limit=8MiB")
        case "CudaAsyncViewMemoryResource":
            return rmm.mr.ConfiguredMemoryResource("cuda_async_view")
    return getattr(rmm.mr, name)()


@pytest.mark.parametrize(
    "name",
    [
        "ArenaMemoryResource",
        "BinningMemoryResource",
        "CachedMemoryResource",
        "ConfiguredMemoryResource",
        "CudaAsyncMemoryResource",
        "CudaAsyncViewMemoryResource",
        "ElasticPoolMemoryResource",
        "FixedSizeMemoryResource",
        "MemoryReservation",
        "PinnedPoolMemoryResource",
        "PoolMemoryResource",
    ],
)
def test_every_pool_reports_allocated_and_held_bytes(name: str, cuda: rmm.mr.CudaMemoryResource) -> None:
    resource = make_keeper(name, cuda)
    before = resource.get_allocated_bytes()
    buffer = rmm.DeviceBuffer(size=MIB // 2 + 1, mr=resource)
    in_use = resource.get_allocated_bytes() - before
    assert buffer.size <= in_use <= MIB
    assert resource.pool_size() >= before + in_use
    if name in ("CachedMemoryResource", "MemoryReservation", "PoolMemoryResource"):
        assert resource.pool_size() == 8 * MIB
    del buffer
    rmm.pylibrmm.stream.DEFAULT_STREAM.synchronize()
    assert resource.get_allocated_bytes() == before


def test_bins_over_a_pool_report_the_memory_of_the_pool(small_pool: rmm.mr.PoolMemoryResource) -> None:
    resource = rmm.mr.BinningMemoryResource(small_pool, 10, 12)
    buffers = [rmm.DeviceBuffer(size=size, mr=resource) for size in (1000, MIB)]
    assert resource.get_allocated_bytes() == small_pool.get_allocated_bytes() > MIB
    assert resource.pool_size() == small_pool.pool_size()
    assert rmm.mr.ConfiguredMemoryResource("binning,smallest=1KiB,largest=1KiB").pool_size() > 0
    assert len(buffers) == 2


def test_a_configured_resource_without_a_pool_keeps_nothing() -> None:
    resource = rmm.mr.ConfiguredMemoryResource("cuda")
    buffer = rmm.DeviceBuffer(size=1000, mr=resource)
    assert (resource.get_allocated_bytes(), resource.pool_size()) == (0, 0)
    assert buffer.size == 1000


def test_figures_of_bins(cuda: rmm.mr.CudaMemoryResource) -> None:
    resource = rmm.mr.BinningMemoryResource(cuda, 18, 19)
    buffer = rmm.DeviceBuffer(size=256, mr=resource)
    assert resource.figures()["live_bytes"] == 1 << 18
    assert buffer.size == 256
