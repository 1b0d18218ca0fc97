# SPDX-License-Identifier: Apache-2.0

from typing import Self

from typing_extensions import disjoint_base

from rmm.pylibrmm.memory_resource._base import DeviceMemoryResource
from rmm.pylibrmm.scopes import tag as _tag

__all__ = ["SegmentSource"]

@disjoint_base
class SegmentSource:
    def __new__(cls, resource: DeviceMemoryResource, tag: _tag) -> Self: ...
    @property
    def allocate_address(self) -> int: ...
    @property
    def deallocate_address(self) -> int: ...
