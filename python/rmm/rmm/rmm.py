# SPDX-License-Identifier: Apache-2.0
"""Starting over with other resources, and being told when someone does."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, SupportsIndex, TypeVar

from rmm import mr

__all__ = ["RMMError", "is_initialized", "register_reinitialize_hook", "reinitialize", "unregister_reinitialize_hook"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class RMMError(Exception):
    """An error with a number."""

    def __init__(self, errcode: int, msg: str) -> None:
        self.errcode = errcode
        super().__init__(msg)

    def __reduce__(self) -> tuple[type[RMMError], tuple[int, str]]:
        return type(self), (self.errcode, str(self))


_hooks: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []


def reinitialize(
    pool_allocator: bool = False,
    managed_memory: bool = False,
    initial_pool_size: int | str | None = None,
    maximum_pool_size: int | str | None = None,
    devices: SupportsIndex | Iterable[int] | None = 0,
    logging: bool = False,
    log_file_name: str | None = None,
) -> None:
    """Replaces the resources of all devices.

    Buffers that exist stay valid: each keeps the resource that it came from. To let that go as well, delete the
    buffers in a hook.

    Parameters
    ----------
    pool_allocator:
        Whether to put a pool on top.
    managed_memory:
        Whether to use managed memory.
    initial_pool_size:
        Bytes that each pool takes at once, as int or string; half of the free memory of its device if None.
    maximum_pool_size:
        Bytes that each pool takes at most; no limit if None.
    devices:
        Number or numbers of the devices that get such a resource; the others get the initial one.
    logging:
        Whether to log each allocation and deallocation.
    log_file_name:
        Name of the log; see `rmm.mr.LoggingResourceAdaptor`.
    """
    if not pool_allocator and not (initial_pool_size is None and maximum_pool_size is None):
        text = "initial_pool_size and maximum_pool_size are ignored, for there is no pool: pass pool_allocator=True with them"
        warnings.warn(text, stacklevel=2)
    for function, args, kwargs in reversed(_hooks):
        function(*args, **kwargs)
    mr._initialize(
        pool_allocator=pool_allocator,
        managed_memory=managed_memory,
        initial_pool_size=initial_pool_size,
        maximum_pool_size=maximum_pool_size,
        devices=devices,
        logging=logging,
        log_file_name=log_file_name,
    )


def is_initialized() -> bool:
    """Whether every device that has a resource has a usable one. True from import on."""
    return mr.is_initialized()


def register_reinitialize_hook(func: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Callable[_P, _R]:
    """Has `reinitialize` call `func(*args, **kwargs)` before it replaces resources, the last one registered first."""
    _hooks.append((func, args, kwargs))
    return func


def unregister_reinitialize_hook(func: Callable[..., Any]) -> None:
    """Removes all registrations of `func`."""
    _hooks[:] = [hook for hook in _hooks if hook[0] != func]
