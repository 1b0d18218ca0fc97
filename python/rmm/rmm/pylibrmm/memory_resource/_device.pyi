# SPDX-License-Identifier: Apache-2.0

from typing import Self

from typing_extensions import disjoint_base

from rmm.pylibrmm.memory_resource._base import DeviceMemoryResource
from rmm.pylibrmm.memory_resource._capabilities import _Keeper, _Trimmable

__all__ = ["CudaAsyncMemoryResource", "CudaAsyncViewMemoryResource", "CudaMemoryResource", "ManagedMemoryResource"]

class CudaMemoryResource(DeviceMemoryResource):
    def __new__(cls) -> Self: ...

class ManagedMemoryResource(DeviceMemoryResource):
    def __new__(cls) -> Self: ...

class CudaAsyncMemoryResource(DeviceMemoryResource, _Keeper, _Trimmable):
    def __new__(
        cls,
        initial_pool_size: int | str | None = None,
        release_threshold: int | str | None = None,
        enable_ipc: bool = False,
        enable_fabric: bool = False,
    ) -> Self: ...
    def pool_handle(self) -> int: ...

@disjoint_base
class CudaAsyncViewMemoryResource(DeviceMemoryResource, _Keeper):
    def __new__(cls, pool_handle: object) -> Self: ...
    def pool_handle(self) -> int: ...

class CudaAsyncManagedMemoryResource(DeviceMemoryResource, _Keeper):
    def __init__(self, release_threshold: int | str | None = None) -> None: ...
    def pool_handle(self) -> int: ...
