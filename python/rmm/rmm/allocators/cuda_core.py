# SPDX-License-Identifier: Apache-2.0
"""`cuda.core` on RMM's memory, and RMM's pools and adaptors over memory resources of `cuda.core`.

>>> from cuda.core import Device  # doctest: +SKIP
>>> device = Device()  # doctest: +SKIP
>>> device.set_current()  # doctest: +SKIP
>>> device.memory_resource = RMMMemoryResource()  # doctest: +SKIP
"""

from __future__ import annotations

import inspect
import threading
from typing import Any

try:
    import cuda.core
    from cuda.bindings import driver
    from cuda.core import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Buffer, MemoryResource
    from cuda.core import Stream as CoreStream

    _release = tuple(map(int, cuda.core.__version__.split(".")[:2]))
except ImportError as error:
    raise ImportError(f"rmm.allocators.cuda_core needs cuda-core 1.1 or newer and cuda-bindings: {error}") from error
if _release < (1, 1):
    raise ImportError(f"rmm.allocators.cuda_core needs cuda-core 1.1 or newer, and found {cuda.core.__version__}")

from rmm._cuda import gpu
from rmm.mr.experimental import CudaAsyncManagedMemoryResource
from rmm.pylibrmm.memory_resource._memory_resource import (
    CallbackMemoryResource,
    DeviceMemoryResource,
    ManagedMemoryResource,
    PinnedHostMemoryResource,
    PinnedPoolMemoryResource,
    RegisteredHostMemoryResource,
    SamHeadroomMemoryResource,
    SystemMemoryResource,
)
from rmm.pylibrmm.memory_resource._registry import get_current_device_resource
from rmm.pylibrmm.stream import Stream

__all__ = ["CudaCoreMemoryResource", "RMMMemoryResource"]

_managed = (ManagedMemoryResource, CudaAsyncManagedMemoryResource)
_host = (
    PinnedHostMemoryResource,
    PinnedPoolMemoryResource,
    RegisteredHostMemoryResource,
    SamHeadroomMemoryResource,
    SystemMemoryResource,
)

# Since 1.2, buffers store the stream to free them on. Before, a dropped buffer was freed on the default stream.
_buffers_keep_streams = "stream" in inspect.signature(Buffer.from_handle).parameters


class _OnDevice:
    """A scope in which a device is the current one."""

    __slots__ = ("_before", "_device")

    def __init__(self, device: int) -> None:
        self._device = device

    def __enter__(self) -> None:
        self._before = gpu.getDevice()
        if self._before != self._device:
            gpu.setDevice(self._device)

    def __exit__(self, *exception: object) -> None:
        if self._before != self._device:
            gpu.setDevice(self._before)


class RMMMemoryResource(MemoryResource):  # type: ignore[misc]
    """A memory resource of `cuda.core` that allocates from RMM.

    Buffers keep the resource alive that they come from. They are freed in the order of the stream that `cuda.core` names: that
    of the allocation, of `close` or of `set_deallocation_stream`. With cuda-core 1.1, a buffer that is dropped, or closed
    without a stream, is freed in the order of both the stream of the allocation and the default stream.

    `cuda.core` keeps the resource of a device for each thread: set it in each thread that allocates. To allocate while a graph
    is built, announce the capture: `rmm.capture_scope(builder.stream)`. Buffers have no IPC descriptor.

    Parameters
    ----------
    mr : rmm.mr.DeviceMemoryResource, optional
        The resource to allocate from. None means the one that is set for the device at the time of each allocation.
    device_id : int, optional
        The number of the device; the current one if None.

    Examples
    --------
    >>> from cuda.core import Device  # doctest: +SKIP
    >>> device = Device()  # doctest: +SKIP
    >>> device.set_current()  # doctest: +SKIP
    >>> device.memory_resource = RMMMemoryResource()  # doctest: +SKIP
    >>> buffer = device.allocate(1000, stream=device.create_stream())  # doctest: +SKIP
    """

    def __init__(self, mr: DeviceMemoryResource | None = None, device_id: int | None = None) -> None:
        if mr is not None and not isinstance(mr, DeviceMemoryResource):
            raise TypeError(f"mr has to be a resource of RMM, and is a {type(mr).__name__}")
        self._mr = mr
        self._device = gpu.getDevice() if device_id is None else int(device_id)
        self._live: dict[int, tuple[DeviceMemoryResource, Any]] = {}  # by address: its resource and stream

    def allocate(self, size: int, *, stream: Any) -> Any:
        """Allocate memory in the order of a stream.

        Parameters
        ----------
        size : int
            The bytes.
        stream : cuda.core.Stream or cuda.core.graph.GraphBuilder
            The stream.

        Returns
        -------
        cuda.core.Buffer
            The memory.

        Raises
        ------
        MemoryError
            If there is not enough memory, with the report of the resource.
        TypeError
            If `stream` is not a stream of `cuda.core`.
        """
        core_stream = getattr(stream, "stream", stream)  # a graph builder has its stream in this attribute
        if not isinstance(core_stream, CoreStream):
            raise TypeError(f"stream has to be one of cuda.core, and is a {type(stream).__name__}")
        order = Stream(core_stream)
        with _OnDevice(self._device):
            mr = get_current_device_resource() if self._mr is None else self._mr
            address = mr.allocate(size, order)
            if address:
                self._live[address] = (mr, core_stream)
            try:
                if _buffers_keep_streams:
                    return Buffer.from_handle(address, size, mr=self, stream=stream)
                return Buffer.from_handle(address, size, mr=self)
            except BaseException:
                if address:
                    del self._live[address]
                    mr.deallocate(address, size, order)
                raise

    def deallocate(self, ptr: Any, size: int, *, stream: Any) -> None:
        """Free memory in the order of a stream. `cuda.core` calls it when a buffer is closed or dropped.

        Parameters
        ----------
        ptr : int
            The address.
        size : int
            The bytes.
        stream : cuda.core.Stream or cuda.core.graph.GraphBuilder
            The stream.

        Raises
        ------
        ValueError
            If the memory is not from this resource.
        """
        address = int(ptr)
        if not address:
            return
        source = self._live.pop(address, None)  # removed before the free: afterwards another thread can get the address
        if source is None:
            raise ValueError(f"0x{address:x} is not memory of this resource")
        mr, allocated_on = source
        with _OnDevice(self._device):
            mr.deallocate(address, size, Stream(stream if _buffers_keep_streams else _after_both(allocated_on, stream)))

    @property
    def device_id(self) -> int:
        """Number of the device."""
        return self._device

    @property
    def is_device_accessible(self) -> bool:
        """True."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host can access the memory. False for a `ConfiguredMemoryResource`, whose memory is unknown."""
        innermost = self._innermost()
        if isinstance(innermost, CudaCoreMemoryResource):
            return bool(innermost.cuda_core_resource.is_host_accessible)
        return isinstance(innermost, _host + _managed)

    @property
    def is_managed(self) -> bool:
        """Whether the memory is managed. False for a `ConfiguredMemoryResource`, whose memory is unknown."""
        innermost = self._innermost()
        if isinstance(innermost, CudaCoreMemoryResource):
            return bool(innermost.cuda_core_resource.is_managed)
        return isinstance(innermost, _managed)

    def _innermost(self) -> DeviceMemoryResource:
        """Returns the resource below all pools and adaptors."""
        with _OnDevice(self._device):
            resource: Any = get_current_device_resource() if self._mr is None else self._mr
        while True:
            upstream = getattr(resource, "upstream_mr", None) or getattr(resource, "source", None)
            if upstream is None:
                return resource  # type: ignore[no-any-return]
            resource = upstream

    def __repr__(self) -> str:
        return f"RMMMemoryResource({'' if self._mr is None else f'{self._mr!r}, '}device_id={self._device})"


def _after_both(allocated_on: Any, freed_on: Any) -> Any:
    """Returns a stream ordered after both streams. A dropped buffer passes the default stream, which waits for few others."""
    if freed_on != LEGACY_DEFAULT_STREAM:
        return freed_on
    if not int(allocated_on.handle):  # the stream of the allocation was closed
        driver.cuCtxSynchronize()
        return freed_on
    if allocated_on != freed_on:
        allocated_on.wait(freed_on)
    return allocated_on


class _Buffers:
    """Allocates from a resource of `cuda.core` and keeps its buffers. Must not refer to the RMM resource that calls it."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._live: dict[int, Any] = {}
        self._thread = threading.local()

    def allocate(self, nbytes: int, stream: Stream) -> int:
        if not nbytes:
            return 0
        if not hasattr(self._thread, "has_context"):  # cuda.core does not make a context for the thread
            gpu.setDevice(gpu.getDevice())
            self._thread.has_context = True
        try:
            buffer = self._source.allocate(nbytes, stream=_core_stream(stream))
        except Exception as error:
            if "OUT_OF_MEMORY" in str(error):
                raise MemoryError(str(error)) from error
            raise
        address = int(buffer.handle)
        self._live[address] = buffer
        return address

    def deallocate(self, address: int, nbytes: int, stream: Stream) -> None:
        if address:
            self._live.pop(address).close(_core_stream(stream))


def _core_stream(stream: Stream) -> Any:
    handle = stream.__cuda_stream__()[1]
    if handle in (0, 1):
        return LEGACY_DEFAULT_STREAM
    return PER_THREAD_DEFAULT_STREAM if handle == 2 else CoreStream.from_handle(handle)


class CudaCoreMemoryResource(CallbackMemoryResource):
    """A resource of RMM that allocates from a memory resource of `cuda.core`, for use below pools and adaptors.

    Parameters
    ----------
    cuda_core_resource : cuda.core.MemoryResource
        The resource. A `CUDAError` about missing memory becomes the `__cause__` of a MemoryError, any other error that of a
        RuntimeError.

    Examples
    --------
    >>> import rmm
    >>> from cuda.core import Device, DeviceMemoryResource  # doctest: +SKIP
    >>> Device().set_current()  # doctest: +SKIP
    >>> pool = rmm.mr.PoolMemoryResource(CudaCoreMemoryResource(DeviceMemoryResource(0)), "1MiB")  # doctest: +SKIP
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)  # doctest: +SKIP
    """

    _cuda_core_resource: Any

    def __new__(cls, cuda_core_resource: Any) -> CudaCoreMemoryResource:
        if not isinstance(cuda_core_resource, MemoryResource):
            raise TypeError(f"a memory resource of cuda.core is needed, not a {type(cuda_core_resource).__name__}")
        buffers = _Buffers(cuda_core_resource)
        made = super().__new__(cls, buffers.allocate, buffers.deallocate)
        made._cuda_core_resource = cuda_core_resource
        return made

    @property
    def cuda_core_resource(self) -> Any:
        """The memory resource of `cuda.core`."""
        return self._cuda_core_resource

    def __repr__(self) -> str:
        return f"CudaCoreMemoryResource({self._cuda_core_resource!r})"
