# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

import rmm
from rmm._build_facts import cuda_backend
from rmm._cuda import gpu

KIB, MIB = 1 << 10, 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=count, default=5000, help="number of allocations (%(default)s)")


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number


def run(options: argparse.Namespace) -> int:
    device = gpu.getDevice()  # raises an error if there is no device
    where = "the simulated CUDA runtime" if cuda_backend == "sim" else gpu.deviceGetName(device)
    print(f"rmm {rmm.__version__} on {where}: {options.steps:,} buffers, 200 of them alive at a time")
    print(f"\n{'resource':<10} {'us a buffer':>12} {'peak in use':>14} {'taken':>14}")
    for name, make in _resources.items():
        free_before = rmm.mr.available_device_memory()[0]
        try:
            resource = make()
        except Exception as error:
            print(f"{name:<10} {str(error).splitlines()[0]}")
            continue
        counted = rmm.mr.StatisticsResourceAdaptor(resource)
        seconds, free_after = _replace_buffers(counted, options.steps)
        taken = free_before - free_after
        peak = counted.allocation_counts.peak_bytes
        print(f"{name:<10} {seconds / options.steps * 1e6:>12.2f} {peak / MIB:>10.1f} MiB {taken / MIB:>10.1f} MiB")
        del resource, counted
    return 0


def _replace_buffers(resource: rmm.mr.DeviceMemoryResource, steps: int) -> tuple[float, int]:
    """Replaces 200 live buffers one by one, `steps` times. Returns the seconds, and the device's free memory at the end."""
    random_numbers = random.Random(1)
    sizes = [int(random_numbers.lognormvariate(0, 1.5) * 64 * KIB) + 1 for _ in range(steps)]
    places = [random_numbers.randrange(200) for _ in range(steps)]
    buffers: list[rmm.DeviceBuffer | None] = [None] * 200
    begin = time.perf_counter()
    for size, place in zip(sizes, places, strict=True):
        buffers[place] = None
        buffers[place] = rmm.DeviceBuffer(size=size, mr=resource)
    return time.perf_counter() - begin, rmm.mr.available_device_memory()[0]


_resources: dict[str, Callable[[], rmm.mr.DeviceMemoryResource]] = {
    "cuda": rmm.mr.CudaMemoryResource,
    "async": rmm.mr.CudaAsyncMemoryResource,
    "pool": lambda: rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 0),
    "arena": lambda: rmm.mr.ArenaMemoryResource(rmm.mr.CudaMemoryResource(), "256MiB"),
}
