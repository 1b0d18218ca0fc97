# SPDX-License-Identifier: Apache-2.0
"""Functions for the resources of all devices."""

from __future__ import annotations

import atexit
import warnings
import weakref
from collections.abc import Callable, Iterable
from operator import index
from typing import SupportsIndex

from rmm._cuda import gpu
from rmm.pylibrmm.memory_resource import (
    CallbackMemoryResource,
    CudaMemoryResource,
    DeviceMemoryResource,
    LoggingResourceAdaptor,
    ManagedMemoryResource,
    PoolMemoryResource,
    UpstreamResourceAdaptor,
    get_current_device_resource,
    get_per_device_resource,
    set_per_device_resource,
)
from rmm.pylibrmm.memory_resource._adaptors import name_of_log
from rmm.pylibrmm.memory_resource._capabilities import _Keeper
from rmm.pylibrmm.memory_resource._pools import expect_pool_sizes
from rmm.pylibrmm.memory_resource._registry import (
    expect_device,
    forget_registered_resources,
    registered_resources,
    without_trace,
)

__all__ = [
    "disable_logging",
    "enable_logging",
    "get_current_device_resource_type",
    "get_log_filenames",
    "get_per_device_resource_type",
    "is_initialized",
]


def _numbers_of(devices: SupportsIndex | Iterable[int]) -> list[int]:
    try:
        return [index(devices)]  # type: ignore[arg-type]
    except TypeError:  # includes arrays, whose __index__ works for one element only
        return [index(device) for device in devices]  # type: ignore[union-attr]


def _initialize(
    pool_allocator: bool = False,
    managed_memory: bool = False,
    initial_pool_size: int | str | None = None,
    maximum_pool_size: int | str | None = None,
    devices: SupportsIndex | Iterable[int] | None = 0,
    logging: bool = False,
    log_file_name: str | None = None,
) -> None:
    """Replaces the resources as `rmm.reinitialize` does, but calls no hooks."""
    numbers = [0] if devices is None else _numbers_of(devices)

    def make() -> DeviceMemoryResource:
        resource: DeviceMemoryResource = ManagedMemoryResource() if managed_memory else CudaMemoryResource()
        if pool_allocator:
            resource = PoolMemoryResource(resource, initial_pool_size, maximum_pool_size)
        if logging:
            resource = LoggingResourceAdaptor(resource, log_file_name)
        return resource

    try:
        before = gpu.getDevice()
    except gpu.CUDARuntimeError as error:
        forget_registered_resources()
        warnings.warn(f"No resource was set, because there is no CUDA device: {error}", stacklevel=3)
        return
    for device in numbers:
        expect_device(device)
    if pool_allocator:
        expect_pool_sizes(initial_pool_size, maximum_pool_size)
    if logging:
        name_of_log(log_file_name)  # raises ValueError if no log is named
    earlier = {device: _reference_to(without_trace(each)) for device, each in registered_resources().items()}
    forget_registered_resources()  # first, because an old pool and a new one may not fit together
    try:
        for device in numbers:
            gpu.setDevice(device)
            set_per_device_resource(device, make())
    except BaseException:
        forget_registered_resources()
        for device, reference in earlier.items():
            resource = reference()
            if resource is not None:
                set_per_device_resource(device, resource)
        raise
    finally:
        gpu.setDevice(before)


def _reference_to(resource: DeviceMemoryResource) -> Callable[[], DeviceMemoryResource | None]:
    """Returns a function that returns the resource, or None if that is gone. It keeps only a resource that holds no memory."""
    if isinstance(resource, (UpstreamResourceAdaptor, CallbackMemoryResource, _Keeper)):
        return weakref.ref(resource)
    return lambda: resource


def _log_of(resource: DeviceMemoryResource) -> LoggingResourceAdaptor | None:
    log = without_trace(resource)
    return log if isinstance(log, LoggingResourceAdaptor) else None


def get_per_device_resource_type(device: int) -> type[DeviceMemoryResource]:
    """Return the class of a device's resource.

    Parameters
    ----------
    device : int
        The number of the device.

    Returns
    -------
    type
        The class.

    Raises
    ------
    ValueError
        If there is no such device.

    Examples
    --------
    >>> import rmm
    >>> rmm.mr.get_per_device_resource_type(0).__name__
    'CudaMemoryResource'
    """
    return type(get_per_device_resource(device))


def get_current_device_resource_type() -> type[DeviceMemoryResource]:
    """Return the class of the current device's resource.

    Returns
    -------
    type
        The class.

    Examples
    --------
    >>> import rmm
    >>> rmm.mr.get_current_device_resource_type().__name__
    'CudaMemoryResource'
    """
    return type(get_current_device_resource())


def is_initialized() -> bool:
    """Return True, because every device always has a usable resource.

    Returns
    -------
    bool
        True as soon as the package is imported.

    Examples
    --------
    >>> import rmm
    >>> rmm.mr.is_initialized()
    True
    """
    return all(isinstance(resource, DeviceMemoryResource) for resource in registered_resources().values())


def enable_logging(log_file_name: str | None = None) -> None:
    """Log the allocations from each device's resource that was set or used before this call; if none was, from device 0's.

    Devices that are first used later are not logged.

    Parameters
    ----------
    log_file_name : str, optional
        The name of the log; see `rmm.mr.LoggingResourceAdaptor`.

    Raises
    ------
    ValueError
        If `log_file_name` is None and RMM_LOG_FILE is not set.
    rmm.LogFileError
        If the file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import rmm
    >>> rmm.enable_logging(os.path.join(tempfile.mkdtemp(), "log.csv"))
    >>> buffer = rmm.DeviceBuffer(size=1000)
    >>> rmm.disable_logging()
    """
    before = gpu.getDevice()
    try:
        for device in sorted(registered_resources()) or [0]:
            resource = get_per_device_resource(device)
            if _log_of(resource) is None:
                gpu.setDevice(device)  # the number of the current device becomes part of the file name
                set_per_device_resource(device, LoggingResourceAdaptor(resource, log_file_name))
    finally:
        gpu.setDevice(before)


def disable_logging() -> None:
    """Remove the log from each device whose resource is a `LoggingResourceAdaptor`, also if `enable_logging` did not set it.

    A log below another adaptor stays.

    Examples
    --------
    >>> import os, tempfile
    >>> import rmm
    >>> rmm.enable_logging(os.path.join(tempfile.mkdtemp(), "log.csv"))
    >>> rmm.disable_logging()
    >>> rmm.get_log_filenames()
    {0: None}
    """
    for device, resource in registered_resources().items():
        log = _log_of(resource)
        if log is not None:
            log.flush()
            set_per_device_resource(device, log.get_upstream())


def get_log_filenames() -> dict[int, str | None]:
    """Return the log of each device whose resource was set or used.

    Returns
    -------
    dict of int to str or None
        The names of the files, by device; None for a device without a log.

    Examples
    --------
    >>> import rmm
    >>> rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
    >>> rmm.get_log_filenames()
    {0: None}
    """
    logs = {device: _log_of(resource) for device, resource in registered_resources().items()}
    return {device: None if log is None else log.get_file_name() for device, log in logs.items()}


def _flush_logs() -> None:
    """Writes the buffered lines of all logs."""
    for resource in registered_resources().values():
        log = _log_of(resource)
        if log is not None:
            log.flush()


atexit.register(_flush_logs)  # at exit, registered resources are not destroyed, so nothing else flushes their logs
