# SPDX-License-Identifier: Apache-2.0

from collections.abc import Callable
from typing import Self

from typing_extensions import disjoint_base

from rmm.pylibrmm.memory_resource._base import DeviceMemoryResource, UpstreamResourceAdaptor
from rmm.pylibrmm.stream import Stream

__all__ = ["CallbackMemoryResource", "FailureCallbackResourceAdaptor"]

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
