# SPDX-License-Identifier: Apache-2.0
"""Memory resources, and which of them serves which device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmm.mr import _environment, experimental
from rmm.mr._registry import (
    _flush_logs,
    _initialize,
    disable_logging,
    enable_logging,
    get_current_device_resource_type,
    get_log_filenames,
    get_per_device_resource_type,
    is_initialized,
)
from rmm.pylibrmm.device_buffer import ImportedMemory
from rmm.pylibrmm.memory_resource import (
    AlignedResourceAdaptor,
    ArenaMemoryResource,
    BinningMemoryResource,
    CachedMemoryResource,
    CallbackMemoryResource,
    ConfiguredMemoryResource,
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

if TYPE_CHECKING:
    from rmm.mr._exported_memory import ExportedMemory

__all__ = [
    "AlignedResourceAdaptor",
    "ArenaMemoryResource",
    "BinningMemoryResource",
    "CachedMemoryResource",
    "CallbackMemoryResource",
    "ConfiguredMemoryResource",
    "CudaAsyncMemoryResource",
    "CudaAsyncViewMemoryResource",
    "CudaMemoryResource",
    "DeviceMemoryResource",
    "ElasticPoolMemoryResource",
    "ExportedMemory",
    "FailureCallbackResourceAdaptor",
    "FixedSizeMemoryResource",
    "GuardResourceAdaptor",
    "ImportedMemory",
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
    "_flush_logs",
    "_initialize",
    "available_device_memory",
    "disable_logging",
    "enable_logging",
    "experimental",
    "get_current_device_resource",
    "get_current_device_resource_type",
    "get_log_filenames",
    "get_per_device_resource",
    "get_per_device_resource_type",
    "is_initialized",
    "set_current_device_resource",
    "set_per_device_resource",
    "use_unrounded_sizes",
]


def __getattr__(name: str) -> Any:
    if name == "ExportedMemory":  # with it comes multiprocessing, which takes longer to import than all of this
        from rmm.mr._exported_memory import ExportedMemory

        globals()[name] = ExportedMemory
        return ExportedMemory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_environment.obey()
