# SPDX-License-Identifier: Apache-2.0
"""CuPy on RMM's memory: `cupy.cuda.set_allocator(rmm_cupy_allocator)`."""

from __future__ import annotations

from functools import cache
from typing import Any

from rmm.pylibrmm.device_buffer import DeviceBuffer
from rmm.pylibrmm.memory_resource._memory_resource import current_device
from rmm.pylibrmm.stream import DEFAULT_STREAM, Stream

__all__ = ["rmm_cupy_allocator"]


@cache
def _cupy_cuda() -> Any:
    import cupy.cuda

    return cupy.cuda


def rmm_cupy_allocator(nbytes: int) -> Any:
    """Allocates `nbytes` bytes for CuPy, from the resource of the current device, on CuPy's current stream.

    The stream lives as long as the memory. Where there is not enough memory, CuPy's own `OutOfMemoryError` is raised, a
    `MemoryError`, with the report of the resource.

    >>> import cupy  # doctest: +SKIP
    >>> cupy.cuda.set_allocator(rmm_cupy_allocator)  # doctest: +SKIP
    """
    cuda = _cupy_cuda()
    stream = cuda.get_current_stream()
    try:
        buffer = DeviceBuffer(size=nbytes, stream=Stream(stream) if stream.ptr else DEFAULT_STREAM)
    except MemoryError as error:
        raise _out_of_memory(nbytes, error) from None
    # The device is given, for CuPy asks the driver where the memory is if it is not.
    return cuda.MemoryPointer(cuda.UnownedMemory(buffer.ptr, nbytes, buffer, current_device()), 0)


def _out_of_memory(nbytes: int, error: MemoryError) -> MemoryError:
    made: MemoryError = _cupy_cuda().memory.OutOfMemoryError(nbytes, 0)
    made.args = error.args
    made.__dict__.update(error.__dict__)  # its report
    return made
