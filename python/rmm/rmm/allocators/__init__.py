# SPDX-License-Identifier: Apache-2.0
"""CuPy, Numba and PyTorch on RMM's memory, so that one pool serves them all.

>>> import rmm.allocators
>>> rmm.allocators.enable("cupy", "torch")  # doctest: +SKIP
('cupy', 'torch')
"""

from __future__ import annotations

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


_switches = {"cupy": _enable_cupy, "numba": _enable_numba, "torch": _enable_torch}


def enable(*frameworks: str) -> tuple[str, ...]:
    """Lets frameworks allocate from the resources that are set for the devices, now and later.

    Do it before they allocate anything: PyTorch refuses to change once it has, and Numba uses what was set when it first
    used a device.

    Parameters
    ----------
    frameworks:
        "cupy", "numba", "torch"; all that are installed if none is named.

    Returns
    -------
    tuple
        The names of those that do so now.
    """
    unknown = [name for name in frameworks if name not in _switches]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of the frameworks that RMM knows: {', '.join(_switches)}")
    names = frameworks or tuple(name for name in _switches if find_spec(name) is not None)
    for name in names:
        _switches[name]()
    return tuple(names)
