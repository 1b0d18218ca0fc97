# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rmm.pylibrmm.helper import parse_bytes
from rmm.pylibrmm.memory_resource import (
    DeviceMemoryResource,
    LimitingResourceAdaptor,
    available_device_memory,
    get_per_device_resource,
    set_per_device_resource,
)
from rmm.pylibrmm.memory_resource._registry import current_device

__all__ = ["memory_limit", "using"]


@contextmanager
def using(resource: DeviceMemoryResource) -> Iterator[DeviceMemoryResource]:
    """Set the current device's resource for the duration of a `with` statement. All threads that use the device get it.

    The previous resource is set again at the end. Memory that was allocated inside may live longer, and keeps `resource` alive.

    Parameters
    ----------
    resource : rmm.mr.DeviceMemoryResource
        The resource.

    Raises
    ------
    TypeError
        If `resource` is not a resource.

    Examples
    --------
    >>> import rmm
    >>> with rmm.using(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")) as pool:
    ...     buffer = rmm.DeviceBuffer(size=1000)
    >>> buffer.mr is pool
    True
    """
    device = current_device()
    before = get_per_device_resource(device)
    set_per_device_resource(device, resource)
    try:
        yield resource
    finally:
        set_per_device_resource(device, before)


def _bytes_of(limit: int | str) -> int:
    if isinstance(limit, str) and limit.rstrip().endswith("%"):
        try:
            share = float(limit.rstrip()[:-1])
        except ValueError:
            share = -1.0
        if not 0 <= share <= 100:
            raise ValueError(f"Could not parse {limit!r} as a share of the device's memory: write 0% to 100%")
        return int(available_device_memory()[1] * share / 100)
    size: int = parse_bytes(limit)
    if size < 0:
        raise ValueError(f"a limit of {size} bytes is below 0")
    return size


@contextmanager
def memory_limit(limit: int | str) -> Iterator[LimitingResourceAdaptor]:
    """Limit the bytes in use of the current device's resource, in a `with` statement.

    Allocations beyond the limit raise MemoryError.

    Parameters
    ----------
    limit : int or str
        The most bytes, as an int or a str such as "4GiB", or a share of the device's memory such as "80%".

    Raises
    ------
    ValueError
        If the text is not a size or a share, or the limit is below 0.

    Examples
    --------
    >>> import rmm
    >>> with rmm.memory_limit("1MiB"):
    ...     rmm.DeviceBuffer(size=2 << 20)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    MemoryError: ...
    """
    adaptor = LimitingResourceAdaptor(get_per_device_resource(current_device()), _bytes_of(limit))
    with using(adaptor):
        yield adaptor
