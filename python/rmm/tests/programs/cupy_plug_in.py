# SPDX-License-Identifier: Apache-2.0
"""Allocates for CuPy on two streams, also more than there is. A stand-in has the functions of CuPy that the plug-in uses."""

from __future__ import annotations

import sys
import types
from typing import Any

import rmm
import rmm.mr
import rmm.statistics
from rmm.allocators.cupy import rmm_cupy_allocator
from rmm.pylibrmm.stream import DEFAULT_STREAM, Stream


class Unowned:
    def __init__(self, ptr: int, size: int, owner: Any, device: int) -> None:
        self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device


class Pointer:
    def __init__(self, mem: Unowned, offset: int) -> None:
        self.mem = mem


class OutOfMemory(MemoryError):
    def __init__(self, size: int, total: int) -> None:
        super().__init__(f"{size} bytes, and {total} are in use")


def use() -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size="1MiB", maximum_pool_size="8MiB")
    rmm.statistics.enable_statistics()
    for stream in (DEFAULT_STREAM, Stream()):
        cuda.stream = types.SimpleNamespace(ptr=stream.__cuda_stream__()[1], __cuda_stream__=stream.__cuda_stream__)
        arrays = [rmm_cupy_allocator(size) for size in (0, 100, 2 << 20)]
        try:
            arrays.append(rmm_cupy_allocator(1 << 40))
        except MemoryError as error:
            print(error)
        del arrays
        stream.synchronize()
    counts = rmm.statistics.get_statistics()
    assert counts is not None
    assert counts.current_bytes == 0


cupy: Any = types.ModuleType("cupy")
cuda: Any = types.ModuleType("cupy.cuda")
cupy.cuda = cuda
cuda.UnownedMemory, cuda.MemoryPointer = Unowned, Pointer
cuda.memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemory)
cuda.get_current_stream = lambda: cuda.stream
sys.modules.update({"cupy": cupy, "cupy.cuda": cuda})
try:
    use()
finally:
    rmm.reinitialize()
