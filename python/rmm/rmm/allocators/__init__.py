# SPDX-License-Identifier: Apache-2.0
"""CuPy, Numba, PyTorch and Warp on RMM's memory, so that one pool serves them all.

>>> import rmm.allocators
>>> rmm.allocators.enable("cupy", "torch")  # doctest: +SKIP
('cupy', 'torch')
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["enable"]


def _enable_cupy() -> None:
    import cupy

    from rmm.allocators.cupy import rmm_cupy_allocator

    cupy.cuda.set_allocator(rmm_cupy_allocator)


def _enable_numba() -> None:
    from numba import cuda

    from rmm.allocators.numba import RMMNumbaManager

    cuda.set_memory_manager(RMMNumbaManager)


def _enable_torch() -> None:
    import torch

    from rmm.allocators.torch import rmm_torch_allocator

    if rmm_torch_allocator is None:
        raise RuntimeError("this PyTorch has no CUDA, or finds no device")
    torch.cuda.memory.change_current_allocator(rmm_torch_allocator)


def _enable_warp() -> None:
    import warp

    from rmm.allocators.warp import RMMAllocator

    if not hasattr(warp, "set_cuda_allocator"):
        version = getattr(warp, "__version__", "of an unknown version")
        raise RuntimeError(f"Warp {version} cannot change its allocator: RMM needs warp-lang 1.13 or newer")
    warp.set_cuda_allocator(RMMAllocator())


def _is_usable(name: str) -> bool:
    """Returns whether a framework is installed and can use CUDA. Warp counts only once imported: asking would initialise it."""
    if name == "warp":
        warp = sys.modules.get(name)
        return hasattr(warp, "set_cuda_allocator") and bool(warp.is_cuda_available())  # type: ignore[union-attr]
    if find_spec(name) is None:
        return False
    if name == "torch":
        from rmm.allocators.torch import rmm_torch_allocator

        return rmm_torch_allocator is not None
    return True


_switches = {"cupy": _enable_cupy, "numba": _enable_numba, "torch": _enable_torch, "warp": _enable_warp}


def enable(*frameworks: str) -> tuple[str, ...]:
    """Make frameworks allocate from the resources of the devices, also from resources that are set later.

    Call it before the frameworks allocate: PyTorch cannot change its allocator afterwards, and Numba keeps the one of its first
    use of a device.

    Parameters
    ----------
    *frameworks : {"cupy", "numba", "torch", "warp"}
        The frameworks. Without names, all that are installed, except a PyTorch without CUDA or a device, and a Warp that is not
        imported yet.

    Returns
    -------
    tuple of str
        The names of the frameworks that were changed.

    Raises
    ------
    ValueError
        If a name is none of these.
    ModuleNotFoundError
        If a named framework is not installed.
    RuntimeError
        If "torch" or "warp" is named, and has no CUDA or finds no device; if the Warp is older than 1.13; or if PyTorch has
        allocated already. Frameworks that come before the failing one are changed then.

    Examples
    --------
    >>> import rmm.allocators
    >>> rmm.allocators.enable("cupy", "torch")  # doctest: +SKIP
    ('cupy', 'torch')
    """
    unknown = [name for name in frameworks if name not in _switches]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of the frameworks that RMM knows: {', '.join(_switches)}")
    names = frameworks or tuple(filter(_is_usable, _switches))
    for name in names:
        _switches[name]()
    return tuple(names)
