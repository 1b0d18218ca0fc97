# SPDX-License-Identifier: Apache-2.0
"""Documents for tools/trace/report.html as rmm-trace makes them, from made-up runs.

`report_documents.py FOLDER` writes a page for each.
"""

from __future__ import annotations

import bisect
import functools
import json
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).resolve().parent.parent.parent / "tools" / "trace" / "report.html"
MARKER = "RMM_REPORT_DOCUMENT"
MIB = 1 << 20
GIB = 1 << 30
CLASSES = [4096, 65536, MIB, 16 * MIB, 256 * MIB, -1]

Document = dict[str, Any]


@dataclass
class Block:
    """One allocation; `end` is -1 while it is live."""

    at: int
    size: int
    begin: int
    tag: int
    stream: int
    stack: int
    thread: int = 0
    end: int = -1
    number: int = 0


@dataclass
class Run:
    """A made-up run of a program on one pool, and the events that it leaves."""

    limit: int = 8 * GIB
    region: int = GIB
    now: int = 0
    blocks: list[Block] = field(default_factory=list)
    live: list[Block] = field(default_factory=list)  # by address
    events: list[tuple[int, int, int]] = field(
        default_factory=list
    )  # time, kind (1, -1, 0: failure), number of the block
    failures: list[Document] = field(default_factory=list)
    regions: list[list[int]] = field(default_factory=list)  # at, size, from

    def allocate(self, size: int, tag: int = 0, stream: int = 0, stack: int = -1) -> Block | None:
        size = (size + 255) // 256 * 256
        at = self.place(size)
        if at is None:
            held: dict[int, list[int]] = {}
            for one in self.live:
                sums = held.setdefault(one.tag, [0, 0])
                sums[0] += one.size
                sums[1] += 1
            holders = sorted(([tag_, *sums] for tag_, sums in held.items()), key=lambda row: -row[1])
            live = sum(one.size for one in self.live)
            self.failures.append(
                {
                    "t": self.now,
                    "event": len(self.events),
                    "bytes": size,
                    "tag": tag,
                    "stream": stream,
                    "thread": 0,
                    "stack": stack,
                    "live": live,
                    "reserved": sum(one[1] for one in self.regions),
                    "free_largest": max((end - begin for begin, end in self.holes()), default=0),
                    "holders": holders[:10],
                    "report": f"asked: {size} bytes, on stream {stream}, device 0\npool: at most {self.limit} bytes; {live} live",
                }
            )
            self.events.append((self.now, 0, -1))
            return None
        block = Block(at, size, self.now, tag, stream, stack, number=len(self.blocks))
        self.events.append((self.now, 1, len(self.blocks)))
        self.blocks.append(block)
        bisect.insort(self.live, block, key=lambda one: one.at)
        return block

    def free(self, block: Block) -> None:
        block.end = self.now
        del self.live[bisect.bisect_left(self.live, block.at, key=lambda one: one.at)]
        self.events.append((self.now, -1, block.number))

    def holes(self) -> list[tuple[int, int]]:
        found = []
        for at, size, _ in self.regions:
            begin = at
            for one in self.live:
                if at <= one.at < at + size:
                    if one.at > begin:
                        found.append((begin, one.at))
                    begin = one.at + one.size
            if begin < at + size:
                found.append((begin, at + size))
        return found

    def place(self, size: int) -> int | None:
        fitting = [hole for hole in self.holes() if hole[1] - hole[0] >= size]
        if fitting:
            return min(fitting, key=lambda hole: (hole[1] - hole[0], hole[0]))[0]
        reserved = sum(one[1] for one in self.regions)
        wanted = max(self.region, size)
        if reserved + wanted > self.limit:
            return None
        at = (
            0
            if not self.regions
            else self.regions[-1][0] + self.regions[-1][1] + (0 if len(self.regions) % 3 else 4 * GIB)
        )
        self.regions.append([at, wanted, self.now])
        return at


def columns(blocks: list[Block]) -> Document:
    names = {
        "at": "at",
        "size": "size",
        "from": "begin",
        "to": "end",
        "tag": "tag",
        "stream": "stream",
        "thread": "thread",
        "stack": "stack",
    }
    return {name: [getattr(one, attribute) for one in blocks] for name, attribute in names.items()}


def reduced(run: Run, streams: int = 3, number: int = 0, reserved_from: str = "recorded") -> Document:
    """The part of the document that is about one device."""
    duration = run.events[-1][0] if run.events else 0
    tags = sorted({one.tag for one in run.blocks})
    bounds = CLASSES
    live = 0
    by_tag = dict.fromkeys(tags, 0)
    by_class = [0] * len(bounds)
    by_stream = [0] * streams
    timeline: Document = {
        "t": [],
        "event": [],
        "live": [],
        "reserved": [],
        "tag": {"of": tags, "bytes": [[] for _ in tags]},
        "class": {"of": bounds, "bytes": [[] for _ in bounds]},
        "stream": {"of": list(range(streams)), "bytes": [[] for _ in range(streams)]},
    }
    steps = min(160, max(len(run.events), 1))
    step = max(duration // steps + 1, 1)
    rate: Document = {"begin": 0, "step": step, "allocations": [0] * steps, "frees": [0] * steps, "bytes": [0] * steps}
    at_peak = [0] * 64
    now_by_size = [0] * 64
    count_by_size = [0] * 64
    bytes_by_size = [0] * 64
    counts = reserved = grown = 0
    peak = (0, 0, 0, 0)  # live, time, count, reserved
    stride = max(1, len(run.events) // 4000)
    for event, (time, kind, index) in enumerate(run.events):
        slot = min(time // step, steps - 1)
        if kind != 0:
            one = run.blocks[index]
            change = kind * one.size
            live += change
            counts += kind
            by_tag[one.tag] += change
            by_class[next(k for k, bound in enumerate(bounds) if bound < 0 or one.size <= bound)] += change
            by_stream[one.stream] += change
            power = (one.size - 1).bit_length()
            now_by_size[power] += change
            if kind > 0:
                rate["allocations"][slot] += 1
                rate["bytes"][slot] += one.size
                count_by_size[power] += 1
                bytes_by_size[power] += one.size
            else:
                rate["frees"][slot] += 1
        while grown < len(run.regions) and run.regions[grown][2] <= time:
            reserved += run.regions[grown][1]
            grown += 1
        is_peak = live > peak[0]
        if is_peak:
            peak = (live, time, counts, reserved)
            at_peak = now_by_size[:]
        if event % stride == 0 or event == len(run.events) - 1 or kind == 0 or is_peak:
            timeline["t"].append(time)
            timeline["event"].append(event)
            timeline["live"].append(live)
            timeline["reserved"].append(reserved)
            for column, value in zip(timeline["tag"]["bytes"], by_tag.values(), strict=True):
                column.append(value)
            for column, value in zip(timeline["class"]["bytes"], by_class, strict=True):
                column.append(value)
            for column, value in zip(timeline["stream"]["bytes"], by_stream, strict=True):
                column.append(value)
    left = [one for one in run.blocks if one.end < 0]
    groups: dict[tuple[int, int], list[Block]] = {}
    for one in left:
        groups.setdefault((one.tag, one.stack), []).append(one)
    grouped = sorted(groups.items(), key=lambda item: -sum(one.size for one in item[1]))
    powers = [k for k, count in enumerate(count_by_size) if count]
    shown = range(powers[0], powers[-1] + 1) if powers else range(0)
    reserved_now = sum(size for _, size, _ in run.regions)
    allocations = sum(1 for _, kind, _ in run.events if kind > 0)
    return {
        "device": number,
        "reserved_from": reserved_from,
        "summary": {
            "events": len(run.events),
            "allocations": allocations,
            "frees": sum(1 for _, kind, _ in run.events if kind < 0),
            "failures": len(run.failures),
            "duration": duration,
            "threads": 1 if run.events else 0,
            "streams": len({one.stream for one in run.blocks}),
            "peak_live": peak[0],
            "peak_live_time": peak[1],
            "peak_live_count": peak[2],
            "peak_reserved": reserved_now,
            "peak_reserved_time": run.regions[-1][2] if run.regions else 0,
            "reserved_at_peak": peak[3],
            "fragmentation_at_peak": 1 - peak[0] / peak[3] if peak[3] else None,
            "allocated": sum(one.size for one in run.blocks),
            "live_at_end": sum(one.size for one in left),
            "live_at_end_count": len(left),
            "small": 0,
        },
        "timeline": timeline,
        "rate": rate if run.events else {"begin": 0, "step": 1, "allocations": [], "frees": [], "bytes": []},
        "sizes": {
            "bound": [1 << k for k in shown],
            "count": [count_by_size[k] for k in shown],
            "bytes": [bytes_by_size[k] for k in shown],
            "live": [at_peak[k] for k in shown],
        },
        "map": {
            "base": "0x7f0000000000",
            "regions": {
                "at": [one[0] for one in run.regions],
                "size": [one[1] for one in run.regions],
                "from": [one[2] for one in run.regions],
                "to": [-1] * len(run.regions),
            },
            "blocks": columns(run.blocks),
            "small": None,
        },
        "largest": columns(sorted(run.blocks, key=lambda one: -one.size)[:200]),
        "longest": columns(
            sorted(run.blocks, key=lambda one: (duration if one.end < 0 else one.end) - one.begin, reverse=True)[:200]
        ),
        "leaks": {
            "bytes": sum(one.size for one in left),
            "count": len(left),
            "groups": {
                "bytes": [sum(one.size for one in group) for _, group in grouped],
                "count": [len(group) for _, group in grouped],
                "tag": [tag for (tag, _), _ in grouped],
                "stack": [stack for (_, stack), _ in grouped],
                "first": [group[0].begin for _, group in grouped],
                "last": [group[-1].begin for _, group in grouped],
            },
        },
        "failures": run.failures,
    }


FRAMES = [
    "rmm::device_buffer::device_buffer(unsigned long, rmm::cuda_stream_view, rmm::mr::device_memory_resource*)",
    "model::linear::forward(tensor const&)",
    "model::transformer_block::forward(tensor const&)",
    "train_step(batch const&) at train.cpp:118",
    "main at train.cpp:203",
    "loader::prefetch(int)",
    "optimizer::Adam::step()",
    "backward(tensor const&)",
    "0x7f3a00c0ffee",
]
STACKS = [[0, 1, 2, 3, 4], [0, 5, 4], [0, 6, 3, 4], [0, 7, 3, 4], [8, 4]]


def what_if(name: str, reserved: int, live: int, timeline: Document | None = None, **more: Any) -> Document:
    row: Document = {
        "name": name,
        "configuration": name,
        "recorded": False,
        "completed": True,
        "failures": 0,
        "first_failure": None,
        "peak_live": live,
        "peak_reserved": reserved,
        "fragmentation": 1 - live / reserved if reserved else None,
        "reserved_at_end": reserved,
        "upstream_calls": 12,
        "seconds": 0.042,
        "note": "",
        "reserved": None,
    }
    if timeline is not None:
        row["reserved"] = [min(reserved, max(value, int(value * 1.04))) for value in timeline["live"]]
    return row | more


def document(devices: list[Document], whatif: list[Document], **more: Any) -> Document:
    made: Document = {
        "schema": 1,
        "generator": "rmm-trace",
        "tags": ["", "model", "activations", "gradients", "optimizer", "loader", "workspace"],
        "trace": {
            "file": "train.rmmtrace",
            "format": "rmm trace 1",
            "process": 4711,
            "begin": "2026-05-04T09:30:00Z",
            "bytes": 94208,
            "lost": 0,
            "unknown_frees": 0,
            "damaged": None,
        },
        "streams": ["default", "0x55d0c8 (7)", "0x55d1f0 (9)"],
        "threads": [4711],
        "frames": FRAMES,
        "stacks": STACKS,
        "devices": devices,
        "whatif": whatif,
    }
    return made | more


def training(limit: int = 8 * GIB, steps: int = 12, leak: int = 0, seed: int = 1) -> Run:
    """Weights and an optimizer that stay; each step a pyramid of activations, and gradients."""
    dice = random.Random(seed)
    run = Run(limit=limit)

    def tick(microseconds: float) -> None:
        run.now += int(microseconds * 1000 * dice.uniform(0.5, 1.5))

    kept = []
    for layer in range(24):
        tick(300)
        kept.append(run.allocate(48 * MIB + layer % 3 * 8 * MIB, 1, 0, 0))
    for _ in range(24):
        tick(200)
        kept.append(run.allocate(20 * MIB, 4, 0, 2))
    for number in range(steps):
        batch = run.allocate(dice.randrange(60, 120) * MIB, 5, 2, 1)
        if leak and number % 2 == 0:
            run.allocate(leak, 6, 0, 4)
        activations = []
        for _ in range(24):
            tick(900)
            activations.append(run.allocate(int(dice.uniform(40, 110) * MIB), 2, 0, 0))
            workspace = run.allocate(int(dice.lognormvariate(14, 1.6)) + 256, 6, 1, 4)
            small = [run.allocate(int(dice.lognormvariate(8, 1.5)) + 1, 0, 1, -1) for _ in range(3)]
            tick(150)
            for one in [workspace, *small]:
                if one:
                    run.free(one)
        for one in reversed(activations):
            tick(1200)
            gradient = run.allocate(int(dice.uniform(10, 40) * MIB), 3, 0, 3)
            if one:
                run.free(one)
            tick(300)
            if gradient:
                run.free(gradient)
        if batch:
            run.free(batch)
        tick(4000)
    if not leak:
        for one in kept:
            if one:
                tick(50)
                run.free(one)
    return run


def normal() -> Document:
    device = reduced(training())
    live = device["summary"]["peak_live"]
    timeline = device["timeline"]
    rows = [
        what_if("pool", device["summary"]["peak_reserved"], live, None, recorded=True),
        what_if("elastic", int(live * 1.04), live, timeline),
        what_if("arena", int(live * 1.31), live, timeline, upstream_calls=31),
        what_if("binning", int(live * 1.22), live),
        what_if("cuda", live, live, timeline, upstream_calls=3456, note="every allocation is a call of the driver"),
        what_if(
            "pool, at most 2 GiB",
            2 * GIB,
            int(1.9 * GIB),
            configuration="pool,max=2GiB",
            completed=False,
            failures=3,
            first_failure={
                "event": 211,
                "t": 21_400_000,
                "bytes": 88 * MIB,
                "text": "the pool holds 2.0 GiB of at most 2.0 GiB",
            },
        ),
    ]
    return document([device], rows)


def out_of_memory() -> Document:
    device = reduced(training(limit=3 * GIB, steps=4, seed=3))
    live = device["summary"]["peak_live"]
    return document(
        [device],
        [
            what_if(
                "pool",
                3 * GIB,
                live,
                recorded=True,
                completed=False,
                failures=device["summary"]["failures"],
                configuration="pool,max=3GiB",
            ),
            what_if("elastic", int(live * 1.004), live, configuration="elastic,max=3GiB"),
        ],
    )


def leak() -> Document:
    return document([reduced(training(steps=16, leak=96 * MIB))], [])


def empty() -> Document:
    return document([], [], tags=[""], streams=[], threads=[], frames=[], stacks=[])


def single() -> Document:
    run = Run(limit=GIB, region=2 * MIB)
    run.allocate(1000)
    return document([reduced(run, streams=1)], [], tags=[""], streams=["default"], frames=[], stacks=[])


def bare() -> Document:
    """No tags, no stacks, no figures of what was reserved: what an old CSV log has."""
    run = training(steps=3)
    for one in run.blocks:
        one.tag, one.stack, one.stream = 0, -1, 0
    device = reduced(run, streams=1)
    device["timeline"]["reserved"] = None
    device["reserved_from"] = None
    for name in ("peak_reserved", "peak_reserved_time", "reserved_at_peak", "fragmentation_at_peak"):
        device["summary"][name] = None
    about = {
        "file": "log.csv",
        "format": "csv",
        "process": None,
        "begin": None,
        "bytes": 5000,
        "lost": 17,
        "unknown_frees": 3,
        "damaged": "cut off at line 812",
    }
    return document([device], [], trace=about, tags=[""], streams=["0"], frames=[], stacks=[])


def two_devices() -> Document:
    return document(
        [reduced(training(steps=3)), reduced(training(steps=5, seed=9, leak=10 * MIB), number=1, reserved_from="pool")],
        [],
    )


HARM = "document.documentElement.dataset.attacked=1"
ATTACK = f'</script><script>{HARM}</script><img src=x onerror="{HARM}">&lt;b&gt;\u202e\u0000'


def hostile() -> Document:
    """Every text is an attempt to become markup."""
    run = training(limit=3 * GIB, steps=3, seed=3, leak=8 * MIB)
    device = reduced(run)
    device["reserved_from"] = ATTACK
    device["map"]["base"] = ATTACK
    for failure in device["failures"]:
        failure["report"] = ATTACK
    rows = [
        what_if(
            ATTACK,
            8 * GIB,
            7 * GIB,
            device["timeline"],
            note=ATTACK,
            first_failure={"event": 1, "t": 1, "bytes": 1, "text": ATTACK},
            failures=1,
            completed=False,
        )
    ]
    about = {
        "file": ATTACK,
        "format": ATTACK,
        "process": ATTACK,
        "begin": ATTACK,
        "bytes": 1,
        "lost": 0,
        "unknown_frees": 0,
        "damaged": ATTACK,
    }
    return document(
        [device, reduced(training(steps=1))],
        rows,
        generator=ATTACK,
        trace=about,
        tags=[""] + [ATTACK] * 6,
        streams=[ATTACK] * 3,
        threads=[ATTACK],
        frames=[ATTACK] * len(FRAMES),
    )


def huge() -> Document:
    """As large as a document gets: what a trace of ten million events is reduced to."""
    dice = random.Random(5)
    count, points, groups = 40_000, 8192, 12
    duration = 600 * 10**9
    size, region = 24 * GIB, GIB
    blocks = []
    cursor = 0
    for number in range(count):
        begin = duration * number // count
        length = int(dice.lognormvariate(13, 2)) // 256 * 256 + 256
        if cursor + length > size:
            cursor = 0
        blocks.append(
            Block(
                cursor + cursor // (8 * GIB) * GIB,
                length,
                begin,
                dice.randrange(40),
                dice.randrange(20),
                dice.randrange(5000),
                dice.randrange(16),
                begin + int(dice.expovariate(1 / 4e10)),
            )
        )
        cursor += length
    time = [duration * k // (points - 1) for k in range(points)]
    shares = [
        [int(dice.uniform(0.6, 1) * GIB * (1 + (k * (group + 3) // 700) % 5) / (1 + group / 4)) for k in range(points)]
        for group in range(groups)
    ]
    live = [sum(values) for values in zip(*shares, strict=True)]
    top = max(live)
    peak = live.index(top)
    ten = [[sum(shares[j][k] for j in range(groups) if j % 10 == group) for k in range(points)] for group in range(10)]
    regions = size // region
    cells = [64] * regions
    small = {
        "time": [duration * k // 256 for k in range(256)],
        "cells": cells,
        "size": region // 64,
        "fill": [
            "".join(chr(48 + max(0, int(dice.gauss(20, 12)) % 64)) for _ in range(64 * regions)) for _ in range(256)
        ],
    }
    rows = sorted(blocks, key=lambda one: -one.size)[:200]
    device: Document = {
        "device": 0,
        "reserved_from": "pool",
        "summary": {
            "events": 10_000_000,
            "allocations": 5_000_000,
            "frees": 4_990_000,
            "failures": 0,
            "duration": duration,
            "threads": 16,
            "streams": 20,
            "peak_live": top,
            "peak_live_time": time[peak],
            "peak_live_count": 120_000,
            "peak_reserved": int(top * 1.2),
            "peak_reserved_time": time[peak],
            "reserved_at_peak": int(top * 1.2),
            "fragmentation_at_peak": 1 - 1 / 1.2,
            "allocated": 40 * top,
            "live_at_end": live[-1],
            "live_at_end_count": 10_000,
            "small": 4_960_000,
        },
        "timeline": {
            "t": time,
            "event": [10_000_000 * k // (points - 1) for k in range(points)],
            "live": live,
            "reserved": [int(top * 1.2)] * points,
            "tag": {"of": [*range(1, groups), -1], "bytes": shares},
            "class": {"of": [256 << 2 * k for k in range(9)] + [-1], "bytes": ten},
            "stream": {"of": [*range(groups - 1), -1], "bytes": shares},
        },
        "rate": {
            "begin": 0,
            "step": duration // 512,
            **{name: [dice.randrange(1, 20_000) for _ in range(512)] for name in ("allocations", "frees", "bytes")},
        },
        "sizes": {
            "bound": [256 << k for k in range(22)],
            **{name: [dice.randrange(1, 1_000_000) for _ in range(22)] for name in ("count", "bytes", "live")},
        },
        "map": {
            "base": "0x7f0000000000",
            "regions": {
                "at": [k * region + k // 8 * GIB for k in range(regions)],
                "size": [region] * regions,
                "from": [0] * regions,
                "to": [-1] * regions,
            },
            "blocks": columns(blocks),
            "small": small,
        },
        "largest": columns(rows),
        "longest": columns(rows),
        "leaks": {
            "bytes": live[-1],
            "count": 10_000,
            "groups": {
                "bytes": sorted((dice.randrange(1, 10**7) for _ in range(200)), reverse=True),
                "count": [50] * 200,
                "tag": [dice.randrange(40) for _ in range(200)],
                "stack": [dice.randrange(5000) for _ in range(200)],
                "first": [1] * 200,
                "last": [duration - 1] * 200,
            },
        },
        "failures": [],
    }
    frames = [f"library::part_{k % 97}::function_{k}(std::vector<int> const&, unsigned long)" for k in range(8000)]
    stacks = [[dice.randrange(8000) for _ in range(20)] for _ in range(5000)]
    return document(
        [device],
        [what_if("elastic", int(top * 1.03), top, device["timeline"])],
        frames=frames,
        stacks=stacks,
        tags=[""] + [f"tag {k}" for k in range(1, 40)],
        streams=[f"{0x55D000 + 8 * k:#x} ({k})" for k in range(20)],
        threads=list(range(4711, 4727)),
    )


SAMPLES = {
    made.__name__: functools.cache(made)
    for made in (normal, out_of_memory, leak, empty, single, bare, two_devices, hostile, huge)
}


def page(made: Document) -> str:
    """The template with this document in it."""
    text = json.dumps(made, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    before, marker, after = TEMPLATE.read_text(encoding="utf-8").partition(f"\n{MARKER}\n")
    assert marker, f"{TEMPLATE} has no line {MARKER}"
    return f"{before}\n{text}\n{after}"


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in SAMPLES.items():
        (folder / f"{name}.html").write_text(page(make()), encoding="utf-8")


if __name__ == "__main__":
    main()
