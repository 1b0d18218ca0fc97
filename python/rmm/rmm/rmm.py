# SPDX-License-Identifier: Apache-2.0
"""Functions that replace the resources of all devices, and hooks that run before that."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, SupportsIndex, TypeVar

from rmm import mr

__all__ = ["RMMError", "is_initialized", "register_reinitialize_hook", "reinitialize", "unregister_reinitialize_hook"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class RMMError(Exception):
    """An exception with an error number.

    Parameters
    ----------
    errcode : int
        The number.
    msg : str
        The message.

    Examples
    --------
    >>> import rmm
    >>> rmm.RMMError(2, "no memory").errcode
    2
    """

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
    """Replace the resources of all devices.

    Buffers stay valid, because each keeps the resource that it came from. To free the old resources, too, delete the buffers in
    a hook; see `register_reinitialize_hook`.

    Wrong arguments change no resource. The old resources are released before the new ones are made, because the device may have
    too little memory for both. If making one fails, no device keeps a new resource. A device then gets its old resource again
    if a variable or a buffer still uses it, or if it holds no memory itself, such as `ManagedMemoryResource`. Any other device
    has its initial resource then. Hooks have run in both cases.

    Parameters
    ----------
    pool_allocator : bool, optional
        Whether to use a pool.
    managed_memory : bool, optional
        Whether to use managed memory.
    initial_pool_size : int or str, optional
        The bytes that each pool takes when it is made; half of the free memory of its device if None.
    maximum_pool_size : int or str, optional
        The most bytes that each pool takes; no limit if None.
    devices : int or iterable of int, optional
        The devices that get such a resource. Other devices get the initial resource.
    logging : bool, optional
        Whether to log each allocation and deallocation.
    log_file_name : str, optional
        The name of the log; see `rmm.mr.LoggingResourceAdaptor`.

    Raises
    ------
    ValueError
        If there is no such device, a size cannot be read, or no log is named.
    RuntimeError
        If a size is not a multiple of 256, or the initial size is above the maximum.
    MemoryError
        If a pool does not fit.

    Examples
    --------
    >>> import rmm
    >>> rmm.reinitialize(pool_allocator=True, initial_pool_size="1MiB")
    >>> rmm.mr.get_current_device_resource()
    PoolMemoryResource(CudaMemoryResource())
    """
    if not pool_allocator and not (initial_pool_size is None and maximum_pool_size is None):
        text = "initial_pool_size and maximum_pool_size are ignored without a pool: pass pool_allocator=True, too"
        warnings.warn(text, stacklevel=2)
    for hook in reversed(_hooks.copy()):
        if any(hook is registered for registered in _hooks):  # an earlier hook may have unregistered it
            function, args, kwargs = hook
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
    """Return True, because every device always has a usable resource.

    Returns
    -------
    bool
        True as soon as the package is imported.

    Examples
    --------
    >>> import rmm
    >>> rmm.is_initialized()
    True
    """
    return mr.is_initialized()


def register_reinitialize_hook(func: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Callable[_P, _R]:
    """Register a function that `reinitialize` calls before it replaces resources. The function registered last is called first.

    Parameters
    ----------
    func : callable
        The function. It is called as `func(*args, **kwargs)`.
    *args : object
        Its positional arguments.
    **kwargs : object
        Its arguments by name.

    Returns
    -------
    callable
        `func`.

    Examples
    --------
    >>> import rmm
    >>> hook = rmm.register_reinitialize_hook(print, "new resources")
    >>> rmm.reinitialize()
    new resources
    >>> rmm.unregister_reinitialize_hook(hook)
    """
    _hooks.append((func, args, kwargs))
    return func


def unregister_reinitialize_hook(func: Callable[..., Any]) -> None:
    """Remove all registrations of a function.

    Parameters
    ----------
    func : callable
        The function that was passed to `register_reinitialize_hook`.

    Examples
    --------
    >>> import rmm
    >>> hook = rmm.register_reinitialize_hook(print, "new resources")
    >>> rmm.unregister_reinitialize_hook(hook)
    >>> rmm.reinitialize()
    """
    _hooks[:] = [hook for hook in _hooks if hook[0] != func]
