# SPDX-License-Identifier: Apache-2.0
"""Buffers of cuda.core from a pool of RMM, and a pool of RMM over memory of cuda.core, on two streams."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

from cuda.core import Device, DeviceMemoryResource

import rmm
import rmm.mr
from rmm.allocators.cuda_core import CudaCoreMemoryResource, RMMMemoryResource
from rmm.pylibrmm.stream import Stream


def use() -> None:
    device = Device(0)
    device.set_current()
    streams = [device.create_stream() for _ in range(2)]
    rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "8MiB"))
    device.memory_resource = RMMMemoryResource()
    for stream in streams:
        use_buffers(device, stream)
    below = CudaCoreMemoryResource(DeviceMemoryResource(0))
    rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(below, "1MiB", "8MiB"))
    for stream in streams:
        kept = [rmm.DeviceBuffer(size=size, stream=Stream(stream)) for size in (1000, 3 << 20)]
        del kept
        stream.sync()


def use_buffers(device: Any, stream: Any) -> None:
    # In cuda.core 1.2, a buffer that is dropped while an exception is raised hides the exception, and a buffer that lives when
    # the interpreter ends is not freed.
    buffers = []
    try:
        for size in (0, 1000, 2 << 20):
            buffers.append(device.allocate(size, stream=stream))
        buffers[1].close(device.default_stream)
        with suppress(MemoryError):
            device.allocate(1 << 40, stream=stream)
    finally:
        for buffer in buffers:
            buffer.close()
    stream.sync()


try:
    use()
finally:
    gc.collect()
    rmm.reinitialize()
    gc.collect()
