#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times allocations of NVIDIA Warp and of `cuda.core`, on their own memory and on RMM's.

    python benchmarks/other_frameworks.py --rounds 15

All run in one interpreter and take turns, round after round, each time in another order. Writes the median of the rounds and
the shortest, in nanoseconds of an allocation with its free. In the topic "many sizes, some kept" 64 blocks are live, and each
allocation replaces the oldest.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import rmm
import rmm.mr

sizes = {"256 B": 256, "1 MiB": 1 << 20}


class Candidate(NamedTuple):
    """An allocator. `prepare` lets the library use it, and `make` returns an object that frees its memory when it goes."""

    library: str
    name: str
    prepare: Callable[[], None]
    make: Callable[[int], object]


def of_warp() -> list[Candidate]:
    import warp

    from rmm.allocators.warp import RMMAllocator

    warp.config.quiet = True
    warp.init()
    device = warp.get_device("cuda:0")
    empty, uint8 = warp.empty, warp.uint8

    def make(nbytes: int) -> object:
        return empty(nbytes, dtype=uint8, device=device)

    def using(allocator: Any, mempool: bool) -> Callable[[], None]:
        def prepare() -> None:
            warp.set_mempool_enabled(device, mempool)
            warp.set_cuda_allocator(allocator)

        return prepare

    library = f"Warp {warp.__version__}"
    return [
        Candidate(library, "its own, memory pool", using(None, True), make),
        Candidate(library, "its own, no memory pool", using(None, False), make),
        Candidate(library, "RMM, pool", using(RMMAllocator(), True), make),
        Candidate(library, "RMM, elastic pool", using(RMMAllocator(rmm.mr.ElasticPoolMemoryResource()), True), make),
    ]


def of_cuda_core() -> list[Candidate]:
    import cuda.core
    from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions

    from rmm.allocators.cuda_core import RMMMemoryResource

    device = Device(0)
    device.set_current()
    stream = device.create_stream()

    def of(name: str, resource: Any) -> Candidate:
        def make(nbytes: int) -> object:
            return resource.allocate(nbytes, stream=stream)

        return Candidate(f"cuda.core {cuda.core.__version__}", name, lambda: None, make)

    return [
        of("its own, the device's resource", device.memory_resource),
        of("its own, a pool of its own", DeviceMemoryResource(0, DeviceMemoryResourceOptions())),
        of("RMM, pool", RMMMemoryResource()),
        of("RMM, elastic pool", RMMMemoryResource(rmm.mr.ElasticPoolMemoryResource())),
    ]


def one_size(make: Callable[[int], object], nbytes: int) -> Callable[[], object]:
    return lambda: make(nbytes)


def many_sizes(make: Callable[[int], object]) -> Callable[[], object]:
    """Returns a call that replaces the oldest of 64 blocks. They go with the call."""
    chooser = random.Random(5)
    wanted = [chooser.choice([256, 1000, 5000, 100000, 3000000]) for _ in range(4096)]
    kept: list[object] = [None] * 64
    step = 0

    def call() -> None:
        nonlocal step
        step = (step + 1) % 4096
        kept[step % 64] = None
        kept[step % 64] = make(wanted[step])

    return call


def nanoseconds(call: Callable[[], object], seconds: float) -> float:
    """Returns the nanoseconds of a call, measured for that time at least."""
    for _ in range(200):
        call()
    calls = 50
    while True:
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        taken = time.perf_counter_ns() - begin
        if taken > seconds * 1e9:
            return taken / calls
        calls *= 2


def measure(candidate: Candidate, topic: str, seconds: float) -> float:
    candidate.prepare()
    call = one_size(candidate.make, sizes[topic]) if topic in sizes else many_sizes(candidate.make)
    return nanoseconds(call, seconds)


def candidates() -> list[Candidate]:
    found: list[Candidate] = []
    for make in (of_warp, of_cuda_core):
        try:
            found += make()
        except Exception as error:  # a library that is missing, or has no device
            print(f"not measured: {make.__name__[3:]}: {type(error).__name__}: {str(error)[:150]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.02, help="least time of each timing")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("it takes at least one round")

    rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1GiB"))
    measured: dict[tuple[str, int], list[float]] = {}
    failures: dict[tuple[str, int], str] = {}
    topics = [*sizes, "many sizes, some kept"]
    found = candidates()
    gc.disable()
    for _ in range(options.rounds):
        for topic in topics:
            for number in random.sample(range(len(found)), len(found)):
                try:
                    times = measured.setdefault((topic, number), [])
                    times.append(measure(found[number], topic, options.seconds))
                except Exception as error:
                    failures[topic, number] = f"{type(error).__name__}: {str(error)[:150]}"
    for topic in topics:
        for number, each in enumerate(found):
            times = measured[topic, number]
            begin = f"{topic:22} {each.library:16} {each.name:31}"
            if times:
                median = f"median {statistics.median(times):9,.0f} ns"
                print(f"{begin} {median}, least {min(times):9,.0f} ns, {len(times)} rounds")
            if (topic, number) in failures:
                print(f"{begin} failed: {failures[topic, number]}")
    return 0 if any(measured.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
