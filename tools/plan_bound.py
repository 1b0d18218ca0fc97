#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes how little memory a recorded trace would need if each block had a planned address. Needs NumPy.

    plan_bound.py tests/traces/six-streams-sort.csv.gz
    rmm-trace export run.rmmtrace --to csv -o run.csv && plan_bound.py run.csv --write run-for-compare.csv

Reads the traces of tests/traces with the columns op,block,bytes,stream, and logs of logging_resource_adaptor, which
`rmm-trace export` makes of everything else. Blocks are rounded up to 256 bytes, as pools do.

A plan takes the blocks in some order, and gives each the smallest gap between the blocks that were placed before and live at
the same time. A block lives from its allocation to its free on the host, so a plan ignores that a stream must not use memory
before another stream has finished with it. A column gives each stream a region of its own, which needs no waiting. The
figures are the end of the highest block over the peak of live bytes. Each plan is checked: no two live blocks overlap.
"Known sizes" tells how far a program repeats itself: a plan of the first half of the trace knows blocks of at most that share
of the bytes in the second half.
"""

from __future__ import annotations

import argparse
import bisect
import csv
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Numbers = np.ndarray


@dataclass
class Blocks:
    """The blocks of a trace in the order of their allocations. Times are numbers of events."""

    bytes: Numbers
    begin: Numbers
    end: Numbers
    stream: Numbers
    peak: int  # of live bytes, before rounding
    never: int  # the end of blocks that are not freed

    @property
    def sizes(self) -> Numbers:
        return (self.bytes + 255) // 256 * 256

    def of(self, chosen: Numbers) -> Blocks:
        return Blocks(
            self.bytes[chosen], self.begin[chosen], self.end[chosen], self.stream[chosen], self.peak, self.never
        )


def read(path: Path) -> Blocks:
    """Reads a trace. Blocks of 0 bytes count as one byte, and a free without its block is left out."""
    rows: list[list[int]] = []
    live: dict[str, int] = {}
    streams: dict[str, int] = {}
    now = live_bytes = peak = 0
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        for now, row in enumerate(csv.DictReader(file)):
            action, name = (
                (row["op"], row["block"]) if "op" in row else (row["Action"], row["Pointer"] + row.get("Device", ""))
            )
            if action in ("a", "allocate"):
                live[name] = len(rows)
                nbytes = max(int(row["bytes" if "op" in row else "Size"]), 1)
                stream = row["stream" if "op" in row else "Stream"]
                rows.append([nbytes, now, -1, streams.setdefault(stream, len(streams))])
                live_bytes += nbytes
                peak = max(peak, live_bytes)
            elif action in ("f", "free") and name in live:
                block = rows[live.pop(name)]
                block[2] = now
                live_bytes -= block[0]
    nbytes, begin, end, stream = np.array(rows, dtype=np.int64).T
    return Blocks(nbytes, begin, np.where(end < 0, now + 1, end), stream, peak, never=now + 1)


def place(blocks: Blocks, order: Numbers) -> Numbers:
    """Returns the address of each block."""
    sizes = blocks.sizes
    at = np.zeros(len(order), dtype=np.int64)
    # The blocks that have a place, in the order in which they got it.
    begin, end, low, high = (np.empty(len(order), dtype=np.int64) for _ in range(4))
    for count, block in enumerate(order):
        size = sizes[block]
        beside = np.flatnonzero((begin[:count] < blocks.end[block]) & (end[:count] > blocks.begin[block]))
        place_of = 0
        if len(beside):
            lows, highs = low[beside], high[beside]
            by_address = np.argsort(lows)
            lows = lows[by_address]
            free_from = np.concatenate(([0], np.maximum.accumulate(highs[by_address])))
            gaps = np.append(lows, np.iinfo(np.int64).max) - free_from
            fitting = np.flatnonzero(gaps >= size)
            place_of = free_from[fitting[np.argmin(gaps[fitting])]]  # the space above the highest block is the largest
        at[block] = place_of
        begin[count], end[count] = blocks.begin[block], blocks.end[block]
        low[count], high[count] = place_of, place_of + size
    check(blocks, at)
    return at


def events_in_order(blocks: Blocks) -> list[tuple[int, bool, int]]:
    """Returns when a block begins or ends, whether it begins, and its number."""
    events = [(int(end), False, i) for i, end in enumerate(blocks.end)]
    return sorted(events + [(int(begin), True, i) for i, begin in enumerate(blocks.begin)])


def check(blocks: Blocks, at: Numbers) -> None:
    """Goes through the trace, and raises if a block would be where another one lives."""
    sizes = blocks.sizes
    live: list[tuple[int, int]] = []
    for _, begins, i in events_in_order(blocks):
        extent = (int(at[i]), int(at[i] + sizes[i]))
        k = bisect.bisect_left(live, extent)
        if not begins:
            assert live[k] == extent
            del live[k]
            continue
        if (k > 0 and live[k - 1][1] > extent[0]) or (k < len(live) and live[k][0] < extent[1]):
            raise AssertionError(f"block {i} is planned where another one lives")
        live.insert(k, extent)


orders: dict[str, Callable[[Blocks], Numbers]] = {
    "size": lambda b: np.lexsort((b.begin, -b.sizes)),
    "lifetime": lambda b: np.lexsort((b.begin, -(b.end - b.begin))),
    "size times lifetime": lambda b: np.lexsort((b.begin, -(b.sizes.astype(float) * (b.end - b.begin)))),
    "time": lambda b: np.arange(len(b.begin)),
}


def needed(blocks: Blocks, order: str) -> int:
    return int((place(blocks, orders[order](blocks)) + blocks.sizes).max())


def searched(blocks: Blocks, tries: int) -> int:
    """Returns the least memory of plans in random orders: by size times a power of the lifetime, with noise."""
    random = np.random.default_rng(1)
    sizes, lifetimes = np.log(blocks.sizes), np.log(blocks.end - blocks.begin)
    plans = [
        np.argsort(-(sizes + random.choice([0.1, 0.25, 0.5]) * lifetimes + random.normal(0, noise, len(sizes))))
        for noise in random.choice([0.05, 0.1, 0.2], tries)
    ]
    return min(int((place(blocks, order) + blocks.sizes).max()) for order in plans)


def known_sizes(blocks: Blocks) -> float:
    """Returns the share of the bytes in the second half of a trace whose blocks have a size of the first half."""
    is_first, sizes = blocks.begin < blocks.never // 2, blocks.sizes
    second = sizes[~is_first]
    return float(second[np.isin(second, sizes[is_first])].sum() / second.sum())


def write(blocks: Blocks, path: Path) -> None:
    """Writes the columns op,block,bytes,stream, which COMPARE_BENCH reads."""
    rows = [(f"{'a' if begins else 'f'},{i}", i) for now, begins, i in events_in_order(blocks) if now != blocks.never]
    path.write_text(
        "op,block,bytes,stream\n" + "".join(f"{row},{blocks.bytes[i]},{blocks.stream[i]}\n" for row, i in rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--tries", type=int, default=0, help="also search among so many random orders")
    parser.add_argument("--write", type=Path, help="write the only trace to this file for COMPARE_BENCH")
    options = parser.parse_args()
    if options.write and len(options.traces) > 1:
        parser.error("--write takes one trace")
    print(
        "| trace | blocks | peak, bytes | "
        + " | ".join(orders)
        + " | searched | a region for each stream | known sizes |"
    )
    print("|" + "---|" * (len(orders) + 6))
    for path in options.traces:
        blocks = read(path)
        if options.write:
            write(blocks, options.write)
        together = [needed(blocks, order) / blocks.peak for order in orders]
        best = f"{searched(blocks, options.tries) / blocks.peak:.3f}" if options.tries else "-"
        streams = [blocks.of(blocks.stream == stream) for stream in np.unique(blocks.stream)]
        apart = min(sum(needed(each, order) for each in streams) for order in orders) / blocks.peak
        figures = " | ".join(f"{figure:.3f}" for figure in together)
        row = f"{len(blocks.bytes):,} | {blocks.peak:,} | {figures} | {best} | {apart:.3f} | {known_sizes(blocks):.0%}"
        print(f"| `{path.name}` | {row} |", flush=True)


if __name__ == "__main__":
    main()
