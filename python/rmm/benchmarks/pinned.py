#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times pairs of an allocation and its free of page-locked memory: RMM's pool, cudaHostAlloc(), PyTorch and CuPy.

    python benchmarks/pinned.py --seconds 60

All run in one interpreter and take turns, round after round. Each is measured with one hole and with many: free blocks of
1 KiB between live ones. Some allocators call the driver for each block, so all make holes for a limited time, and the table
says how many. The times contain what a call from Python costs, about 0.1 to 1 µs.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import rmm
import rmm.mr

sizes = {"256 B": 256, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}
Make = Callable[[int], object]  # returns an object that frees its memory when it goes


class Block:
    """Memory of a resource of RMM."""

    __slots__ = ("nbytes", "ptr", "resource")

    def __init__(self, resource: Any, nbytes: int) -> None:
        self.ptr = resource.allocate(nbytes)
        self.nbytes = nbytes
        self.resource = resource

    def __del__(self) -> None:
        self.resource.deallocate(self.ptr, self.nbytes)


class Pair:
    """An allocator: how it allocates and frees, and the blocks that it was given to make holes."""

    def __init__(self, name: str, pair: Callable[[int], object], make: Make | None) -> None:
        self.name = name
        self.pair = pair
        self.make = make
        self.live: list[object] = []
        self.holes = 0

    def make_holes(self, wanted: int, seconds: float) -> None:
        assert self.make is not None
        end = time.monotonic() + seconds
        blocks: list[object] = []
        while len(blocks) < 2 * wanted and (len(blocks) % 256 != 0 or time.monotonic() < end):
            blocks.append(self.make(1024))
        self.live = blocks[::2]
        self.holes = len(blocks) - len(self.live)
        del blocks
        gc.collect()


def rmm_pool() -> Pair:
    pool = rmm.mr.PinnedPoolMemoryResource("512MiB", "1GiB")
    allocate, deallocate = pool.allocate, pool.deallocate

    def pair(nbytes: int) -> None:
        deallocate(allocate(nbytes), nbytes)

    return Pair("rmm.mr.PinnedPoolMemoryResource", pair, lambda nbytes: Block(pool, nbytes))


def cuda_runtime() -> Pair:
    """cudaHostAlloc() and cudaFreeHost(), with as little between as Python allows."""
    library = None
    for name in ("libcudart.so.13", "libcudart.so.12", None):
        try:
            library = ctypes.CDLL(name)
            allocate, free = library.cudaHostAlloc, library.cudaFreeHost
            break
        except (OSError, AttributeError):
            continue
    else:
        raise ImportError("no libcudart.so is loaded")
    allocate.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint]
    free.argtypes = [ctypes.c_void_p]
    ptr = ctypes.c_void_p()
    where = ctypes.byref(ptr)

    def pair(nbytes: int) -> None:
        if allocate(where, nbytes, 0) != 0 or free(ptr) != 0:
            raise MemoryError("cudaHostAlloc or cudaFreeHost failed")

    return Pair("cudaHostAlloc", pair, None)  # it keeps no free memory, so it has no holes


def pytorch() -> Pair:
    import torch

    empty, uint8 = torch.empty, torch.uint8

    def make(nbytes: int) -> object:
        return empty(nbytes, dtype=uint8, pin_memory=True)

    return Pair("torch.empty(pin_memory=True)", make, make)


def cupy_pool() -> Pair:
    import cupy

    pool = cupy.cuda.PinnedMemoryPool()
    return Pair("cupy.cuda.PinnedMemoryPool", pool.malloc, pool.malloc)


def candidates() -> list[Pair]:
    if find_spec("torch") is not None:
        import torch

        torch.empty(1, device="cuda")  # PyTorch loads the CUDA runtime, which cuda_runtime() then finds
    found = []
    for make in (rmm_pool, cuda_runtime, pytorch, cupy_pool):
        try:
            pair = make()
            pair.pair(256)
        except Exception as error:  # a library that is missing, or has no device
            print(f"not measured: {make.__name__}: {type(error).__name__}: {str(error)[:150]}")
            continue
        found.append(pair)
    return found


def nanoseconds(pair: Callable[[int], object], nbytes: int, seconds: float) -> float:
    """Returns the nanoseconds of a pair, measured for that time at least."""
    pair(nbytes)
    calls = 1
    while True:
        begin = time.perf_counter_ns()
        for _ in range(calls):
            pair(nbytes)
        taken = time.perf_counter_ns() - begin
        if taken > seconds * 1e9:
            return taken / calls
        calls *= 2


def measure(all_pairs: list[Pair], rounds: int, until: float) -> None:
    for what, nbytes in sizes.items():
        times: dict[str, list[float]] = {each.name: [] for each in all_pairs}
        for _ in range(rounds):
            for each in all_pairs:
                times[each.name].append(nanoseconds(each.pair, nbytes, 0.01))
            if time.monotonic() > until:
                break
        for each in all_pairs:
            values = times[each.name]
            print(
                f"{what} | {each.holes} | {each.name} | {statistics.median(values):.0f} | {min(values):.0f}", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--holes", type=int, default=65536)
    options = parser.parse_args()
    begin = time.monotonic()
    all_pairs = candidates()
    print("size | holes | allocator | ns a pair, median | least")
    gc.disable()
    with_holes = [each for each in all_pairs if each.make is not None]
    for each in with_holes:
        each.make_holes(1, 1)
    measure(all_pairs, options.rounds, begin + options.seconds * 0.3)
    for each in with_holes:
        each.make_holes(options.holes, options.seconds / 3 / max(len(with_holes), 1))
    measure(with_holes, options.rounds, begin + options.seconds * 0.9)
    print(f"ended after {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
