# SPDX-License-Identifier: Apache-2.0

from typing import Self

from typing_extensions import disjoint_base

from rmm.pylibrmm.stream import Stream

__all__ = ["DeviceMemoryResource", "UpstreamResourceAdaptor"]

@disjoint_base
class DeviceMemoryResource:
    def allocate(self, nbytes: int, stream: Stream = ...) -> int: ...
    def deallocate(self, ptr: int, nbytes: int, stream: Stream = ...) -> None: ...

@disjoint_base
class UpstreamResourceAdaptor(DeviceMemoryResource):
    def __new__(cls, upstream_mr: DeviceMemoryResource, *args: object, **kwargs: object) -> Self: ...
    @property
    def upstream_mr(self) -> DeviceMemoryResource: ...
    def get_upstream(self) -> DeviceMemoryResource: ...
