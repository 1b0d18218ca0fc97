#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times single calls of CuPy, on its own pool and on RMM's, and of `rmm.DeviceBuffer`, on the default stream and on another.

All run in one interpreter and take turns, round after round. Writes the median of the rounds and the shortest, in nanoseconds;
a call is made and what it returned dropped.

Interpreters differ by the seed of their hashes. To compare versions, give each the same one, in PYTHONHASHSEED.

    python benchmarks/calls.py --rounds 15
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import cupy

import rmm
from rmm.allocators.cupy import rmm_cupy_allocator
from rmm.pylibrmm.stream import Stream

nbytes = 1000


def nanoseconds(call: Callable[[], Any], calls: int) -> float:
    for _ in range(calls // 10):
        call()
    begin = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - begin) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=20000, help="number of calls in each timing")
    options = parser.parse_args()
    if options.rounds < 1 or options.calls < 1:
        parser.error("it takes at least one round and one call")

    rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1GiB"))
    own_pool = cupy.cuda.MemoryPool()
    stream = cupy.cuda.Stream(non_blocking=True)
    rmm_stream = Stream(stream)
    allocators = {"CuPy's pool": own_pool.malloc, "RMM": rmm_cupy_allocator}
    rows: list[tuple[str, str, Any, Any, Callable[[], Any]]] = []
    for where, scope in (("default stream", nullcontext()), ("stream of its own", stream)):
        for of, allocator in allocators.items():
            rows.append((f"cuda.alloc, {where}", of, scope, allocator, lambda: cupy.cuda.alloc(nbytes)))
        for of, allocator in allocators.items():
            rows.append((f"cupy.empty, {where}", of, scope, allocator, lambda: cupy.empty(nbytes, dtype="u1")))
    buffers: dict[str, Callable[[], Any]] = {
        "default stream": lambda: rmm.DeviceBuffer(size=nbytes),
        "stream of its own": lambda: rmm.DeviceBuffer(size=nbytes, stream=rmm_stream),
    }
    rows += [(f"DeviceBuffer, {where}", "RMM", nullcontext(), None, call) for where, call in buffers.items()]

    times: dict[tuple[str, str], list[float]] = {(call, of): [] for call, of, *_ in rows}
    gc.disable()
    for _ in range(options.rounds):
        for name, of, scope, allocator, call in rows:
            cupy.cuda.set_allocator(allocator)
            with scope:
                times[name, of].append(nanoseconds(call, options.calls))
    for (name, of), measured in times.items():
        print(f"{name:30} {of:12} median {statistics.median(measured):7,.0f} ns, least {min(measured):7,.0f} ns")


if __name__ == "__main__":
    main()
