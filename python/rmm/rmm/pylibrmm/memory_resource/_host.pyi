# SPDX-License-Identifier: Apache-2.0

from typing import Self

from rmm.pylibrmm.memory_resource._base import DeviceMemoryResource
from rmm.pylibrmm.memory_resource._capabilities import _Pool, _Trimmable

__all__ = [
    "PinnedHostMemoryResource",
    "PinnedPoolMemoryResource",
    "RegisteredHostMemoryResource",
    "SamHeadroomMemoryResource",
    "SystemMemoryResource",
]

class SystemMemoryResource(DeviceMemoryResource):
    def __new__(cls) -> Self: ...

class SamHeadroomMemoryResource(DeviceMemoryResource):
    def __new__(cls, headroom: int | str) -> Self: ...

class PinnedHostMemoryResource(DeviceMemoryResource):
    def __new__(cls) -> Self: ...

class RegisteredHostMemoryResource(DeviceMemoryResource):
    def __new__(cls, *, near_device: bool = False, numa_node: int | None = None, threads: int = 0) -> Self: ...
    @property
    def numa_node(self) -> int | None: ...

class PinnedPoolMemoryResource(DeviceMemoryResource, _Pool, _Trimmable):
    def __new__(
        cls,
        initial_pool_size: int | str,
        maximum_pool_size: int | str | None = None,
        *,
        near_device: bool = False,
        numa_node: int | None = None,
        threads: int = 0,
        allow_pageable: bool = False,
    ) -> Self: ...
    @property
    def pageable_bytes(self) -> int: ...
