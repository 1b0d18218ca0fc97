# SPDX-License-Identifier: Apache-2.0
"""Memory resources for CUDA: one pool for CuPy, Numba, PyTorch and your own buffers.

>>> import rmm
>>> rmm.reinitialize(pool_allocator=True, initial_pool_size="1MiB")
>>> buffer = rmm.DeviceBuffer(size=100)
>>> buffer.size
100
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__distribution__ = "rmm-engine"  # lets _installation, which is imported next, recognise this file

from rmm import _cuda as _cuda
from rmm import _lib as _lib
from rmm import mr
from rmm import pylibrmm as pylibrmm
from rmm._errors import LogFileError, ReportedMemoryError
from rmm._memory_limit import memory_limit, using
from rmm._version import __git_commit__ as __git_commit__
from rmm._version import __version__ as __version__
from rmm.mr._registry import disable_logging, enable_logging, get_log_filenames
from rmm.pylibrmm.device_buffer import DeviceBuffer
from rmm.pylibrmm.logger import (
    flush_logger,
    get_flush_level,
    get_logging_level,
    level_enum,
    logging_level,
    set_flush_level,
    set_logging_level,
    should_log,
)
from rmm.pylibrmm.scopes import GraphMemory, capture_scope, tag
from rmm.rmm import (
    RMMError,
    is_initialized,
    register_reinitialize_hook,
    reinitialize,
    unregister_reinitialize_hook,
)

__all__ = [
    "DeviceBuffer",
    "GraphMemory",
    "LogFileError",
    "RMMError",
    "ReportedMemoryError",
    "capture_scope",
    "disable_logging",
    "enable_logging",
    "flush_logger",
    "get_flush_level",
    "get_log_filenames",
    "get_logging_level",
    "is_initialized",
    "level_enum",
    "logging_level",
    "memory_limit",
    "mr",
    "register_reinitialize_hook",
    "reinitialize",
    "set_flush_level",
    "set_logging_level",
    "should_log",
    "tag",
    "unregister_reinitialize_hook",
    "using",
]

# Modules and older names that are imported on first use. dir() does not list the older names: tools such as help() read
# everything that dir() lists, and these names import frameworks.
_lazy_modules = ("allocators", "memory_report", "statistics")
_older_names = {
    "rmm_cupy_allocator": ("rmm.allocators.cupy", "rmm_cupy_allocator"),
    "RMMNumbaManager": ("rmm.allocators.numba", "RMMNumbaManager"),
    "_numba_memory_manager": ("rmm.allocators.numba", "_numba_memory_manager"),
    "rmm_torch_allocator": ("rmm.allocators.torch", "rmm_torch_allocator"),
}


def __getattr__(name: str) -> Any:
    if name in _lazy_modules:
        return import_module(f"rmm.{name}")
    if name in _older_names:
        module, attribute = _older_names[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_lazy_modules} - {"Any", "annotations", "import_module"})
