# SPDX-License-Identifier: Apache-2.0
"""Memory resources, and functions that set and return the resource of a device: all names of the modules beside this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmm.pylibrmm.memory_resource import _adaptors, _base, _callbacks, _capabilities, _device, _host, _pools, _registry
from rmm.pylibrmm.memory_resource._adaptors import *  # noqa: F403
from rmm.pylibrmm.memory_resource._base import *  # noqa: F403
from rmm.pylibrmm.memory_resource._callbacks import *  # noqa: F403
from rmm.pylibrmm.memory_resource._capabilities import *  # noqa: F403
from rmm.pylibrmm.memory_resource._device import *  # noqa: F403
from rmm.pylibrmm.memory_resource._device import CudaAsyncManagedMemoryResource as CudaAsyncManagedMemoryResource
from rmm.pylibrmm.memory_resource._host import *  # noqa: F403
from rmm.pylibrmm.memory_resource._pools import *  # noqa: F403
from rmm.pylibrmm.memory_resource._registry import *  # noqa: F403

# Extension modules that were compiled against older releases look for the registry's functions in this module.
__pyx_capi__ = vars(_registry)["__pyx_capi__"]

functions_of_mr = frozenset(
    (
        "_flush_logs",
        "_initialize",
        "disable_logging",
        "enable_logging",
        "get_current_device_resource_type",
        "get_log_filenames",
        "get_per_device_resource_type",
        "is_initialized",
    )
)

if TYPE_CHECKING:
    from rmm.mr._registry import _flush_logs as _flush_logs
    from rmm.mr._registry import _initialize as _initialize
    from rmm.mr._registry import disable_logging as disable_logging
    from rmm.mr._registry import enable_logging as enable_logging
    from rmm.mr._registry import get_current_device_resource_type as get_current_device_resource_type
    from rmm.mr._registry import get_log_filenames as get_log_filenames
    from rmm.mr._registry import get_per_device_resource_type as get_per_device_resource_type
    from rmm.mr._registry import is_initialized as is_initialized
else:  # mypy re-exports exactly the names that `*` imports
    __all__ = [
        *_adaptors.__all__,
        *_base.__all__,
        *_callbacks.__all__,
        *_capabilities.__all__,
        *_device.__all__,
        *_host.__all__,
        *_pools.__all__,
        *_registry.__all__,
    ]

    def __getattr__(name: str) -> Any:
        """Returns functions of rmm.mr that other releases have in this module, too."""
        if name not in functions_of_mr:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from rmm.mr import _registry  # imported here, because it imports this module

        return getattr(_registry, name)
