# SPDX-License-Identifier: Apache-2.0
"""Numba on RMM's memory: `numba.cuda.set_memory_manager(RMMNumbaManager)`, or in the environment
`NUMBA_CUDA_MEMORY_MANAGER=rmm.allocators.numba`."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba import cuda
from numba.cuda import GetIpcHandleMixin, HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer

from rmm.pylibrmm.device_buffer import DeviceBuffer
from rmm.pylibrmm.memory_resource import available_device_memory, get_current_device_resource
from rmm.pylibrmm.memory_resource._pools import pool_behind

__all__ = ["RMMNumbaManager"]


def _as_pointer(address: int) -> Any:
    """Converts an address to the pointer type of the driver binding that Numba uses."""
    binding = getattr(cuda.cudadrv.driver, "binding", None)
    uses_binding = getattr(cuda.cudadrv.driver, "USE_NV_BINDING", binding is not None)
    return binding.CUdeviceptr(address) if uses_binding and binding is not None else ctypes.c_uint64(address)


class RMMNumbaManager(GetIpcHandleMixin, HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """A plug-in of Numba that allocates device memory from the resource of the device.

    Host memory is Numba's own. While `numba.cuda.defer_cleanup()` is active, no memory is freed.

    Parameters
    ----------
    *args : object
        The arguments of Numba.
    **kwargs : object
        The arguments of Numba by name.

    Examples
    --------
    >>> from numba import cuda  # doctest: +SKIP
    >>> cuda.set_memory_manager(RMMNumbaManager)  # doctest: +SKIP
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deferred: list[DeviceBuffer] = []  # buffers to free when clean-up is no longer deferred

    def initialize(self) -> None:
        """Do nothing. Numba requires this method."""

    def memalloc(self, size: int) -> Any:
        """Allocate device memory.

        Parameters
        ----------
        size : int
            The bytes.

        Returns
        -------
        numba.cuda.MemoryPointer
            The memory.

        Raises
        ------
        MemoryError
            If there is not enough memory.
        """
        buffer = DeviceBuffer(size=size)
        address = buffer.ptr
        # A unique key instead of the address: a later allocation may get that before this finalizer runs.
        key = object()
        if address:
            self.allocations[key] = buffer  # until the pointer is finalized, or the context is reset
        return MemoryPointer(weakref.proxy(self.context), _as_pointer(address), size, finalizer=self._finalizer(key))

    def _finalizer(self, key: object) -> Callable[[], None]:
        """Returns the finalizer of an allocation. It has no reference to the manager, which belongs to a context."""
        allocations = self.allocations
        deallocations = self.deallocations
        deferred = self._deferred

        def finalize() -> None:
            buffer = allocations.pop(key, None)
            if buffer is not None and deallocations.is_disabled:
                deferred.append(buffer)

        return finalize

    @contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Delay all frees while this context manager is active."""
        try:
            with super().defer_cleanup():
                yield
        finally:
            if not self.deallocations.is_disabled:
                self._deferred.clear()

    def reset(self) -> None:
        """Free all memory of the context."""
        super().reset()
        self._deferred.clear()

    def get_memory_info(self) -> Any:
        """Return the free and the total bytes of the device. Free memory of the pool counts as free.

        A maximum of the pool, or a limit, may allow less than that.

        Returns
        -------
        numba.cuda.MemoryInfo
            The free and the total bytes.
        """
        free, total = available_device_memory()
        pool = pool_behind(get_current_device_resource())
        return MemoryInfo(free=free + (0 if pool is None else pool.figures()["free_bytes"]), total=total)

    @property
    def interface_version(self) -> int:
        """Version of Numba's interface that this class implements."""
        return 1


_numba_memory_manager = RMMNumbaManager  # Numba imports this name
