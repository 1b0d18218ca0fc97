# SPDX-License-Identifier: Apache-2.0
"""Snapshots of pools: a dictionary, JSON, and a picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import rmm
from rmm.memory_snapshot import MemorySnapshot

MIB = 1 << 20

pools: dict[str, Callable[[], Any]] = {
    "pool": lambda: rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 4 * MIB),
    "elastic": lambda: rmm.mr.ElasticPoolMemoryResource(4 * MIB),
    "cached": lambda: rmm.mr.CachedMemoryResource(rmm.mr.CudaAsyncMemoryResource(), 4 * MIB),
    "arena": lambda: rmm.mr.ArenaMemoryResource(rmm.mr.CudaMemoryResource(), 4 * MIB),
    "fixed size": lambda: rmm.mr.FixedSizeMemoryResource(rmm.mr.CudaMemoryResource(), 4096, 1024),
    "binning": lambda: rmm.mr.BinningMemoryResource(rmm.mr.CudaMemoryResource(), 12, 12),
    "pinned": lambda: rmm.mr.PinnedPoolMemoryResource(4 * MIB),
    "configured": lambda: rmm.mr.ConfiguredMemoryResource("pool,initial=4MiB"),
    "configured behind adaptors": lambda: rmm.mr.ConfiguredMemoryResource("pool,initial=4MiB,scrub,statistics"),
    "reservation": lambda: rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 8 * MIB).reserve(4 * MIB),
}


@pytest.mark.parametrize("make", pools.values(), ids=pools.keys())
def test_ranges_add_up_to_the_figures_of(make: Callable[[], Any]) -> None:
    pool = make()
    kept = pool.allocate(1000)
    freed = pool.allocate(4000)
    pool.deallocate(freed, 4000)
    now = pool.snapshot()
    figures = pool.figures()
    nbytes: Counter[str] = Counter()
    for block in now["blocks"]:
        for part in block["ranges"]:
            nbytes[part["state"]] += part["bytes"]
    assert nbytes["live"] == now["live_bytes"] == figures["live_bytes"] > 0
    assert nbytes["cached"] + nbytes["free"] == now["free_bytes"] == figures["free_bytes"] > 0
    assert nbytes["cached"] == now["cached_bytes"]
    assert now["reserved_bytes"] == figures["reserved_bytes"]
    assert any(block["address"] <= kept < block["address"] + block["bytes"] for block in now["blocks"])
    pool.deallocate(kept, 1000)


def test_a_snapshot_names_the_streams_of_free_memory() -> None:
    pool = pools["pool"]()
    pool.deallocate(pool.allocate(256), 256)
    freed = pool.snapshot()["blocks"][0]["ranges"][0]
    assert freed == {"offset": 0, "bytes": freed["bytes"], "state": "cached", "stream": "legacy", "pending": True}


def test_a_snapshot_of_a_reservation_shows_its_memory_alone() -> None:
    pool = pools["pool"]()
    others = rmm.DeviceBuffer(size=1000, mr=pool)
    task = pool.reserve(MIB)
    assert [block["bytes"] for block in task.snapshot()["blocks"]] == [MIB]
    buffer = rmm.DeviceBuffer(size=2000, mr=task)
    assert repr(task.snapshot()) == (
        "<MemorySnapshot: 2 KiB live, 1022 KiB free, 1 MiB reserved in 1 blocks, fragmentation 0%>"
    )
    assert (others.size, buffer.size) == (1000, 2000)
    task.release()
    with pytest.raises(RuntimeError, match="has ended"):
        task.snapshot()


def sample(count: int = 1) -> MemorySnapshot:
    ranges = [
        {"offset": 0, "bytes": 256, "state": "live", "tag": "<b>&model"},
        {"offset": 256, "bytes": 256, "state": "cached", "stream": 7, "pending": True},
        {"offset": 512, "bytes": 1024, "state": "unmapped"},
        {"offset": 1536, "bytes": 512, "state": "free"},
    ]
    sums = dict.fromkeys(["graph_bytes", "cached_bytes", "caches"], 0)
    return MemorySnapshot(
        version=1,
        time_ns=1,
        live_bytes=256 * count,
        free_bytes=768 * count,
        reserved_bytes=1024 * count,
        largest_free_bytes=512,
        upstream_blocks=count,
        fragmentation=1 / 3,
        blocks=[{"address": 0x7000 * (1 + i), "bytes": 2048, "ranges": ranges} for i in range(count)],
        **sums,
    )


def test_json_and_back() -> None:
    now = sample(2)
    text = now.to_json()
    assert json.loads(text)["blocks"][1]["address"] == "0xe000"
    assert MemorySnapshot.from_json(text) == now
    taken = pools["pool"]().snapshot()
    assert MemorySnapshot.from_json(taken.to_json()) == taken


def test_bytes_by_tag() -> None:
    assert sample(3).bytes_by_tag() == {"<b>&model": 768}


def rectangles(html: str) -> list[tuple[str, int]]:
    """Class and width of the bars of the picture, which has to be well-formed."""
    picture = ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + len("</svg>")])
    bars = [each for each in picture.iter() if each.tag.endswith("rect") and each.get("class") is not None]
    return [(each.attrib["class"], int(each.attrib["width"])) for each in bars if each.get("height") == "18"]


def test_the_picture_shows_each_range() -> None:
    html = sample()._repr_html_()
    assert rectangles(html) == [("live", 80), ("cached", 80), ("unmapped", 320), ("free", 160)]
    assert "fragmentation <b>33%</b>" in html
    assert "&lt;b&gt;&amp;model" in html
    assert "<b>&model" not in html


def test_the_picture_stays_small() -> None:
    now = sample(50)
    block = now["blocks"][0]
    block["bytes"] = 20_000 * 512
    block["ranges"] = [{"offset": 256 * i, "bytes": 256, "state": "live" if i % 2 else "free"} for i in range(40_000)]
    html = now._repr_html_()
    assert len(html) < 100_000
    assert "and 38 smaller blocks" in html


def test_the_picture_of_an_empty_snapshot() -> None:
    empty = MemorySnapshot(sample(0), blocks=[], fragmentation=0.0)
    assert rectangles(empty._repr_html_()) == []
    assert repr(empty) == "<MemorySnapshot: 0 bytes live, 0 bytes free, 0 bytes reserved in 0 blocks, fragmentation 0%>"
