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
    """Makes `resource` that of the current device for a block of code.

    At its end the one from before is set again. What is allocated meanwhile may outlive the block, and keeps `resource`
    alive. The setting is that of the device, not of the thread.

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
    """Lets a block of code have at most `limit` bytes of the current device's resource at a time. MemoryError above.

    Parameters
    ----------
    limit:
        Bytes, as int or string such as "4GiB", or a share of the device's memory such as "80%".

    >>> import rmm
    >>> with rmm.memory_limit("1MiB"):
    ...     rmm.DeviceBuffer(size=2 << 20)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    MemoryError: ...
    """
    adaptor = LimitingResourceAdaptor(get_per_device_resource(current_device()), _bytes_of(limit))
    with using(adaptor):
        yield adaptor
