# SPDX-License-Identifier: Apache-2.0

from collections.abc import Callable, Iterable
from typing import Self

from typing_extensions import disjoint_base

from rmm.pylibrmm.memory_resource._base import DeviceMemoryResource, UpstreamResourceAdaptor
from rmm.pylibrmm.stream import Stream

__all__ = ["CallbackMemoryResource", "FailureCallbackResourceAdaptor", "SpillResourceAdaptor"]

@disjoint_base
class CallbackMemoryResource(DeviceMemoryResource):
    def __new__(
        cls,
        allocate_func: Callable[[int, Stream], int],
        deallocate_func: Callable[[int, int, Stream], None],
    ) -> Self: ...

@disjoint_base
class FailureCallbackResourceAdaptor(UpstreamResourceAdaptor):
    def __new__(cls, upstream_mr: DeviceMemoryResource, callback: Callable[[int], bool]) -> Self: ...

@disjoint_base
class SpillResourceAdaptor(UpstreamResourceAdaptor):
    def __new__(
        cls,
        upstream_mr: DeviceMemoryResource,
        spill: Callable[[int], int] | None = None,
        *,
        maximum: int | str | None = None,
        spill_above: float = 1.0,
        watermarks: Iterable[tuple[float, float, Callable[[int], object]]] | None = None,
    ) -> Self: ...
    def get_allocated_bytes(self) -> int: ...
    def get_maximum(self) -> int: ...
    def figures(self) -> dict[str, int]: ...
