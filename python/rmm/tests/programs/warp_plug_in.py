# SPDX-License-Identifier: Apache-2.0
"""Makes and drops arrays on two streams, also too large ones. Warp needs a GPU, so a stand-in has what the allocator uses."""

from __future__ import annotations

import sys
import types
from typing import Any

import rmm
import rmm.mr
from rmm.allocators.warp import RMMAllocator
from rmm.pylibrmm.stream import Stream


class Array:
    def __init__(self, nbytes: int) -> None:
        self.deleter, self.capacity = warp.allocator.deallocate, nbytes
        self.ptr: int | None = warp.allocator.allocate(nbytes) if nbytes else None

    def __del__(self) -> None:
        if getattr(self, "ptr", None) is not None:
            self.deleter(self.ptr, self.capacity)


def use() -> None:
    rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "8MiB"))
    own = rmm.mr.StatisticsResourceAdaptor(rmm.mr.ManagedMemoryResource())
    device = types.SimpleNamespace()
    warp.get_cuda_device = lambda: device
    for allocator in (RMMAllocator(), RMMAllocator(own)):
        warp.allocator = allocator
        for device.stream in (Stream(), Stream()):
            arrays = [Array(nbytes) for nbytes in (0, 1000, 2 << 20, 100_000)]
            try:
                arrays.append(Array(1 << 40))
            except MemoryError as error:
                print(error)
            del arrays
            device.stream.synchronize()
    assert own.allocation_counts.current_bytes == 0


warp: Any = types.ModuleType("warp")
sys.modules["warp"] = warp
try:
    use()
finally:
    rmm.reinitialize()
