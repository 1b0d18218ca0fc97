# SPDX-License-Identifier: Apache-2.0
"""Memory resources, and which of them serves which device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmm.pylibrmm.memory_resource import _memory_resource, experimental
from rmm.pylibrmm.memory_resource._memory_resource import (
    AlignedResourceAdaptor,
    ArenaMemoryResource,
    BinningMemoryResource,
    CachedMemoryResource,
    CallbackMemoryResource,
    ConfiguredMemoryResource,
    CudaAsyncManagedMemoryResource,
    CudaAsyncMemoryResource,
    CudaAsyncViewMemoryResource,
    CudaMemoryResource,
    DeviceMemoryResource,
    ElasticPoolMemoryResource,
    FailureCallbackResourceAdaptor,
    FixedSizeMemoryResource,
    GuardResourceAdaptor,
    LimitingResourceAdaptor,
    LoggingResourceAdaptor,
    ManagedMemoryResource,
    MemoryReservation,
    PinnedHostMemoryResource,
    PinnedPoolMemoryResource,
    PoolMemoryResource,
    PrefetchResourceAdaptor,
    RegisteredHostMemoryResource,
    SamHeadroomMemoryResource,
    StatisticsResourceAdaptor,
    SystemMemoryResource,
    ThreadSafeResourceAdaptor,
    TraceResourceAdaptor,
    TrackingResourceAdaptor,
    UpstreamResourceAdaptor,
    available_device_memory,
    get_current_device_resource,
    get_per_device_resource,
    set_current_device_resource,
    set_per_device_resource,
    use_unrounded_sizes,
)

__all__ = [
    "AlignedResourceAdaptor",
    "ArenaMemoryResource",
    "BinningMemoryResource",
    "CachedMemoryResource",
    "CallbackMemoryResource",
    "ConfiguredMemoryResource",
    "CudaAsyncManagedMemoryResource",
    "CudaAsyncMemoryResource",
    "CudaAsyncViewMemoryResource",
    "CudaMemoryResource",
    "DeviceMemoryResource",
    "ElasticPoolMemoryResource",
    "FailureCallbackResourceAdaptor",
    "FixedSizeMemoryResource",
    "GuardResourceAdaptor",
    "LimitingResourceAdaptor",
    "LoggingResourceAdaptor",
    "ManagedMemoryResource",
    "MemoryReservation",
    "PinnedHostMemoryResource",
    "PinnedPoolMemoryResource",
    "PoolMemoryResource",
    "PrefetchResourceAdaptor",
    "RegisteredHostMemoryResource",
    "SamHeadroomMemoryResource",
    "StatisticsResourceAdaptor",
    "SystemMemoryResource",
    "ThreadSafeResourceAdaptor",
    "TraceResourceAdaptor",
    "TrackingResourceAdaptor",
    "UpstreamResourceAdaptor",
    "available_device_memory",
    "experimental",
    "get_current_device_resource",
    "get_per_device_resource",
    "set_current_device_resource",
    "set_per_device_resource",
    "use_unrounded_sizes",
]

if TYPE_CHECKING:
    from rmm.mr._registry import (
        _flush_logs as _flush_logs,
    )
    from rmm.mr._registry import (
        _initialize as _initialize,
    )
    from rmm.mr._registry import (
        disable_logging as disable_logging,
    )
    from rmm.mr._registry import (
        enable_logging as enable_logging,
    )
    from rmm.mr._registry import (
        get_log_filenames as get_log_filenames,
    )
    from rmm.mr._registry import (
        is_initialized as is_initialized,
    )
else:

    def __getattr__(name: str) -> Any:
        """What later releases have here of rmm.mr: functions over the resources of all devices."""
        return _memory_resource.__getattr__(name)
