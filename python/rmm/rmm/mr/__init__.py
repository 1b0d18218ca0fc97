# SPDX-License-Identifier: Apache-2.0
"""Memory resources, and functions that set the resource of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmm.mr import _environment, _registry
from rmm.mr import experimental as experimental
from rmm.mr._registry import *  # noqa: F403
from rmm.mr._registry import _flush_logs as _flush_logs
from rmm.mr._registry import _initialize as _initialize
from rmm.pylibrmm.device_buffer import ImportedMemory as ImportedMemory
from rmm.pylibrmm.memory_resource import _memory_resource
from rmm.pylibrmm.memory_resource._memory_resource import *  # noqa: F403

if TYPE_CHECKING:
    from rmm.mr._exported_memory import ExportedMemory as ExportedMemory
else:  # mypy re-exports exactly the names that `*` imports
    __all__ = [
        *_registry.__all__,
        *_memory_resource.__all__,
        "ExportedMemory",
        "ImportedMemory",
        "_flush_logs",
        "_initialize",
        "experimental",
    ]


def __getattr__(name: str) -> Any:
    if name == "ExportedMemory":  # imports multiprocessing, which takes longer than all of this
        from rmm.mr._exported_memory import ExportedMemory

        globals()[name] = ExportedMemory
        return ExportedMemory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_environment.obey()
