# SPDX-License-Identifier: Apache-2.0

from typing import Literal, Self

from typing_extensions import disjoint_base

from rmm.mr._exported_memory import ExportedMemory
from rmm.pylibrmm.memory_resource._base import DeviceMemoryResource, UpstreamResourceAdaptor
from rmm.pylibrmm.memory_resource._capabilities import _Pool, _Suballocator, _Trimmable, _TrimmableOnRequest
from rmm.pylibrmm.scopes import tag as _tag

__all__ = [
    "ArenaMemoryResource",
    "BinningMemoryResource",
    "CachedMemoryResource",
    "ConfiguredMemoryResource",
    "ElasticPoolMemoryResource",
    "FixedSizeMemoryResource",
    "PoolMemoryResource",
]

@disjoint_base
class PoolMemoryResource(UpstreamResourceAdaptor, _Pool, _TrimmableOnRequest):
    def __new__(
        cls,
        upstream_mr: DeviceMemoryResource,
        initial_pool_size: int | str | None = None,
        maximum_pool_size: int | str | None = None,
    ) -> Self: ...

class ArenaMemoryResource(UpstreamResourceAdaptor, _Suballocator):
    def __new__(
        cls,
        upstream_mr: DeviceMemoryResource,
        arena_size: int | str | None = None,
        dump_log_on_failure: bool = False,
    ) -> Self: ...

class FixedSizeMemoryResource(UpstreamResourceAdaptor, _Suballocator):
    def __new__(
        cls, upstream_mr: DeviceMemoryResource, block_size: int | str = ..., blocks_to_preallocate: int = 128
    ) -> Self: ...

@disjoint_base
class BinningMemoryResource(UpstreamResourceAdaptor, _Suballocator):
    def __new__(
        cls, upstream_mr: DeviceMemoryResource, min_size_exponent: int = -1, max_size_exponent: int = -1
    ) -> Self: ...
    def add_bin(self, allocation_size: int | str, bin_resource: DeviceMemoryResource | None = None) -> None: ...
    @property
    def bin_mrs(self) -> list[DeviceMemoryResource]: ...

class ElasticPoolMemoryResource(DeviceMemoryResource, _Pool, _Trimmable):
    def __new__(
        cls,
        initial_pool_size: int | str = 0,
        maximum_pool_size: int | str | None = None,
        *,
        chunk_size: int | str | None = None,
        decay_seconds: float | None = None,
        peer_access: bool = False,
        share_descriptors: bool = False,
        share_fabric: bool = False,
        gpu_direct_rdma: bool = False,
    ) -> Self: ...
    def tick(self) -> int: ...
    def set_pausable(self, tag: _tag) -> None: ...
    def pause(
        self, contents: Literal["dropped", "pageable", "pinned"] = "pageable", *, tag: _tag | None = None
    ) -> None: ...
    def resume(self, *, tag: _tag | None = None) -> None: ...
    def retain_host_memory(self, on: bool = True) -> None: ...
    def kept_contents(self, ptr: int, nbytes: int) -> memoryview | None: ...
    def export_descriptors(self, ptr: int, nbytes: int) -> ExportedMemory: ...
    def export_fabric(self, ptr: int, nbytes: int) -> ExportedMemory: ...
    @property
    def is_paused(self) -> bool: ...
    @property
    def mapped_bytes(self) -> int: ...
    @property
    def chunk_bytes(self) -> int: ...
    @property
    def has_virtual_memory(self) -> bool: ...

@disjoint_base
class CachedMemoryResource(UpstreamResourceAdaptor, _Pool, _Trimmable):
    def __new__(
        cls,
        upstream_mr: DeviceMemoryResource,
        initial_size: int | str = 0,
        maximum_size: int | str | None = None,
        block_size: int | str = ...,
    ) -> Self: ...

def expect_pool_sizes(initial_pool_size: int | str | None, maximum_pool_size: int | str | None) -> None: ...
def pool_behind(resource: DeviceMemoryResource) -> _Suballocator | None: ...
def check_configuration(configuration: str) -> None: ...

@disjoint_base
class ConfiguredMemoryResource(DeviceMemoryResource, _Pool, _Trimmable):
    def __new__(cls, configuration: str) -> Self: ...
    @property
    def configuration(self) -> str: ...
    @property
    def explanation(self) -> str: ...
