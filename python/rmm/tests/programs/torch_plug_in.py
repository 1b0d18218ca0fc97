# SPDX-License-Identifier: Apache-2.0
"""Calls the functions that PyTorch calls, on two streams, with a pool that grows."""

from __future__ import annotations

import ctypes

import rmm
import rmm.allocators.torch as rmm_torch
import rmm.mr
from rmm.pylibrmm.stream import Stream

library = ctypes.CDLL(rmm_torch._library_path)
library.allocate.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
library.allocate.restype = ctypes.c_void_p
library.deallocate.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
library.deallocate.restype = None
library.allocate_segment.argtypes = library.allocate.argtypes
library.allocate_segment.restype = ctypes.c_void_p
library.deallocate_segment.argtypes = library.deallocate.argtypes
library.deallocate_segment.restype = None
library.torch_record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


def allocate(nbytes: int, stream: int) -> int:
    ptr = library.allocate(nbytes, 0, stream)
    if ptr is None:  # PyTorch raises torch.OutOfMemoryError
        raise MemoryError(f"PyTorch asked for {nbytes} bytes")
    return int(ptr)


def use() -> None:
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "64MiB")
    rmm.mr.set_current_device_resource(pool)
    streams = [Stream(), Stream()]
    handles = [stream.__cuda_stream__()[1] for stream in streams]
    # Makes the stream that torch_record_stream() needs: ctypes cannot catch its C++ exceptions, but PyTorch does.
    segment = library.allocate_segment(2 << 20, 0, None)
    if segment is None:
        raise MemoryError(f"PyTorch asked for a segment of {2 << 20} bytes")
    library.deallocate_segment(segment, 2 << 20, 0, None)
    for _ in range(4):
        blocks = []
        try:
            for nbytes in (1000, 100_000, 3 << 20):
                blocks.append((allocate(nbytes, handles[0]), nbytes))
                library.torch_record_stream(blocks[-1][0], handles[1])
        finally:
            for ptr, nbytes in blocks:
                library.deallocate(ptr, nbytes, 0, handles[0])
    for stream in streams:
        stream.synchronize()
    library.torch_empty_cache()  # frees blocks whose free was delayed


try:
    use()
finally:
    rmm.reinitialize()
