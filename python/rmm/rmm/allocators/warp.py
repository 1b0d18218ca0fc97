# SPDX-License-Identifier: Apache-2.0
"""NVIDIA Warp on RMM's memory: `warp.set_cuda_allocator(RMMAllocator())`."""

from __future__ import annotations

from rmm.pylibrmm.device_buffer import DeviceBuffer
from rmm.pylibrmm.memory_resource._memory_resource import DeviceMemoryResource
from rmm.pylibrmm.stream import Stream

__all__ = ["RMMAllocator"]


class RMMAllocator:
    """An allocator of Warp that allocates from RMM. One object can serve all devices and all threads.

    Memory is allocated, and freed, in the order of the stream that is Warp's current one when the array is made. Keep an array
    that another stream uses until that stream is done; Warp's own pool waits for all streams instead.

    To allocate while a graph is captured, announce the capture with `rmm.capture_scope`. Otherwise pools refuse it.

    Parameters
    ----------
    mr : rmm.mr.DeviceMemoryResource, optional
        The resource to allocate from. None means the one that is set for the device at the time of each allocation.

    Examples
    --------
    >>> import warp  # doctest: +SKIP
    >>> warp.set_cuda_allocator(RMMAllocator())  # doctest: +SKIP
    >>> with warp.ScopedAllocator("cuda:0", RMMAllocator(rmm.mr.ManagedMemoryResource())):  # doctest: +SKIP
    ...     array = warp.zeros(1000, device="cuda:0")
    """

    def __init__(self, mr: DeviceMemoryResource | None = None) -> None:
        if mr is not None and not isinstance(mr, DeviceMemoryResource):
            raise TypeError(f"mr has to be a resource of RMM, and is a {type(mr).__name__}")
        self._mr = mr
        self._live: dict[int, DeviceBuffer] = {}

    def allocate(self, size_in_bytes: int) -> int:
        """Allocate memory on the current device. Warp calls it, with the device of the array as the current one.

        Parameters
        ----------
        size_in_bytes : int
            The bytes.

        Returns
        -------
        int
            The address.

        Raises
        ------
        MemoryError
            If there is not enough, with the report of the resource.
        """
        import warp

        buffer = DeviceBuffer(size=size_in_bytes, stream=Stream(warp.get_cuda_device().stream), mr=self._mr)
        address = buffer.ptr
        if address:
            self._live[address] = buffer
        return address

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Free memory. Warp calls it when an array is gone.

        Parameters
        ----------
        ptr : int
            The address.
        size_in_bytes : int
            The bytes.

        Raises
        ------
        ValueError
            If the memory is not from this allocator.
        """
        if ptr and self._live.pop(ptr, None) is None:  # the entry kept the memory; removing it freed the memory
            raise ValueError(f"0x{ptr:x} is not memory of this allocator")

    def __repr__(self) -> str:
        return f"RMMAllocator({'' if self._mr is None else repr(self._mr)})"
