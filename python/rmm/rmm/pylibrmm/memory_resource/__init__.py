# SPDX-License-Identifier: Apache-2.0
"""Memory resources, and functions that set and return the resource of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmm.pylibrmm.memory_resource import _memory_resource
from rmm.pylibrmm.memory_resource import experimental as experimental
from rmm.pylibrmm.memory_resource._device import CudaAsyncManagedMemoryResource as CudaAsyncManagedMemoryResource
from rmm.pylibrmm.memory_resource._memory_resource import *  # noqa: F403

if TYPE_CHECKING:
    from rmm.pylibrmm.memory_resource._memory_resource import _flush_logs as _flush_logs
    from rmm.pylibrmm.memory_resource._memory_resource import _initialize as _initialize
else:  # mypy re-exports exactly the names that `*` imports
    __all__ = [*_memory_resource.__all__, "CudaAsyncManagedMemoryResource", "experimental"]
    __getattr__ = _memory_resource.__getattr__
