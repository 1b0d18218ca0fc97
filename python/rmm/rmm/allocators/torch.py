# SPDX-License-Identifier: Apache-2.0
"""PyTorch on RMM's memory, in one of two ways.

All that PyTorch allocates, without a cache of PyTorch's own:

>>> import torch  # doctest: +SKIP
>>> from rmm.allocators.torch import rmm_torch_allocator
>>> torch.cuda.memory.change_current_allocator(rmm_torch_allocator)  # doctest: +SKIP

Or what a block of code allocates, by PyTorch's own allocator, which takes its segments from RMM:

>>> from rmm.allocators.torch import mem_pool
>>> with torch.cuda.use_mem_pool(mem_pool()):  # doctest: +SKIP
...     x = torch.zeros(1000, device="cuda")

Memory goes back to the resource that it came from, which lives as long as any of it. If there is not enough memory,
`torch.OutOfMemoryError` is raised, with the report of the resource. If RMM does not find this class in PyTorch's library,
`RuntimeError` is raised instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import Any

import rmm.librmm
from librmm.load import find_in

__all__ = ["mem_pool", "memory_snapshot", "memory_stats", "rmm_torch_allocator", "rmm_torch_mem_pool_allocator"]

_library_path = str(find_in(rmm.librmm.__path__, "_torch_allocator.so"))

# The setters of hooks that PyTorch's allocator may have, and the library's functions to set. Older releases have fewer hooks.
_hooks = {
    "set_init_fn": "torch_init",
    "set_reset_fn": "torch_empty_cache",
    "set_memory_fraction_fn": "torch_set_memory_fraction",
    "set_base_alloc_fn": "torch_base_allocation",
    "set_record_stream_fn": "torch_record_stream",
    "set_begin_allocate_to_pool": "torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "torch_end_allocate_to_pool",
    "set_release_pool": "torch_release_pool",
}


class _Counter(ctypes.Structure):
    """The C structure `torch_counter`."""

    _fields_ = [(name, ctypes.c_int64) for name in ("current", "peak", "allocated", "freed")]

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name, _ in self._fields_}  # type: ignore[misc]


class _Figures(ctypes.Structure):
    """The C structure `torch_figures`."""

    _fields_ = [
        ("blocks", _Counter * 3),
        ("bytes", _Counter * 3),
        ("reserved", _Counter),
        ("out_of_memory", ctypes.c_int64),
        ("postponed_bytes", ctypes.c_int64),
    ]


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(_library_path)
    for name, arguments in (
        ("torch_statistics", [ctypes.c_int, ctypes.POINTER(_Figures)]),
        ("torch_reset_peaks", [ctypes.c_int]),
        ("torch_reset_sums", [ctypes.c_int]),
    ):
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = ctypes.c_bool
    library.torch_place_of_segment.argtypes = [ctypes.c_void_p]
    library.torch_place_of_segment.restype = ctypes.c_int64
    return library


def _checked(is_there: bool, device: int) -> None:
    if not is_there:
        raise ValueError(f"there is no device {device}")


def _statistics(device: int) -> dict[str, Any]:
    """Returns PyTorch's statistics for a device, in the nested form of `torch.cuda.memory_stats_as_nested_dict`."""
    figures = _Figures()
    _checked(_library().torch_statistics(device, ctypes.byref(figures)), device)

    def divided(counters: Any) -> dict[str, dict[str, int]]:
        return {
            pool: counter.as_dict() for pool, counter in zip(("all", "small_pool", "large_pool"), counters, strict=True)
        }

    nothing = divided([_Counter()] * 3)
    waiting = divided([_Counter(figures.postponed_bytes), _Counter(), _Counter()])
    active = divided(figures.bytes)
    active["all"]["current"] += figures.postponed_bytes
    return {
        "allocation": divided(figures.blocks),
        "allocated_bytes": divided(figures.bytes),
        "requested_bytes": divided(figures.bytes),
        "active": divided(figures.blocks),
        "active_bytes": active,
        "reserved_bytes": divided([figures.reserved, _Counter(), figures.reserved]),
        "segment": nothing,
        "inactive_split": nothing,
        "inactive_split_bytes": waiting,
        "oversize_allocations": _Counter().as_dict(),
        "oversize_segments": _Counter().as_dict(),
        "max_split_size": -1,
        "num_alloc_retries": 0,
        "num_ooms": figures.out_of_memory,
        "num_sync_all_streams": 0,
        "num_device_alloc": 0,
        "num_device_free": 0,
    }


def memory_stats(device: int | None = None) -> dict[str, int]:
    """Return the statistics of PyTorch's memory, with the keys of `torch.cuda.memory_stats`.

    If `rmm_torch_allocator` is PyTorch's allocator, that function and those over it, such as `torch.cuda.max_memory_allocated`,
    return the same. "reserved" is the memory of the resource. Its peak is the largest value that was seen when the statistics
    were read or the cache was emptied.

    Parameters
    ----------
    device : int, optional
        The number of the device; the current one if None.

    Returns
    -------
    dict of str to int
        The statistics, by name.

    Raises
    ------
    ValueError
        If there is no such device.

    Examples
    --------
    >>> from rmm.allocators.torch import memory_stats
    >>> memory_stats(0)["allocated_bytes.all.current"]
    0
    """
    from rmm.pylibrmm.memory_resource._registry import current_device

    flat: dict[str, int] = {}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, part in value.items():
                add(f"{prefix}.{name}" if prefix else name, part)
        else:
            flat[prefix] = value

    add("", _statistics(current_device() if device is None else device))
    return dict(sorted(flat.items()))


_states_of_pytorch = {
    "live": "active_allocated",
    "graph": "active_pending_free",
    "free": "inactive",
    "cached": "inactive",
}


def _segments(device: int, snapshot: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Converts a pool's snapshot to segments of PyTorch. The tag of a block takes the place of its stack."""
    segments: list[dict[str, Any]] = []
    for block in snapshot["blocks"]:
        if block.get("paused"):
            continue
        end = None  # where the current segment ends; a range that begins there extends it
        for part in block["ranges"]:
            if part["state"] == "unmapped":
                continue
            address, nbytes = block["address"] + part["offset"], part["bytes"]
            if address != end:
                segments.append(_empty_segment(device, address))
            end = address + nbytes
            segment, state = segments[-1], _states_of_pytorch[part["state"]]
            frames = [_frame(part["tag"])] if "tag" in part else []
            segment["blocks"].append(
                {"address": address, "size": nbytes, "requested_size": nbytes, "state": state, "frames": frames}
            )
            segment["total_size"] += nbytes
            if state != "inactive":
                segment["active_size"] += nbytes
            if state == "active_allocated":
                segment["allocated_size"] += nbytes
                segment["requested_size"] += nbytes
    for segment in segments:
        segment["segment_type"] = "large" if segment["total_size"] > 1 << 20 else "small"
    return segments


def _frame(tag: str) -> dict[str, Any]:
    """Converts a tag to a stack frame. Flame graphs separate frames by semicolons and stacks by lines, so both are replaced."""
    return {"name": " ".join(tag.replace(";", ",").splitlines()), "filename": "", "line": 0}


def _empty_segment(device: int, address: int) -> dict[str, Any]:
    return {
        "device": device,
        "address": address,
        **dict.fromkeys(("total_size", "allocated_size", "active_size", "requested_size", "stream"), 0),
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [],
    }


def memory_snapshot() -> dict[str, Any]:
    """Return the memory of all devices' resources, in the form of `torch.cuda.memory._snapshot()`, for the viewers of PyTorch.

    If `rmm_torch_allocator` is PyTorch's allocator, that function and those over it (`torch.cuda.memory_snapshot`,
    `torch.cuda.memory._dump_snapshot`) return the same.

    It shows the resources that are set now. Each continuous range of a pool's memory is a segment, with the blocks of all
    libraries. Sizes are those that the pool rounds to. If the pool tracks tags, the tag of a block is its only stack frame. A
    resource without a pool has no segments. There are no traces; see `rmm-trace` instead.

    Returns
    -------
    dict
        The snapshot.

    Examples
    --------
    >>> import rmm
    >>> from rmm.allocators.torch import memory_snapshot
    >>> rmm.reinitialize(pool_allocator=True, initial_pool_size="2MiB")
    >>> [segment["total_size"] for segment in memory_snapshot()["segments"]]
    [2097152]
    """
    from rmm._cuda import gpu
    from rmm.pylibrmm.memory_resource._capabilities import _Suballocator
    from rmm.pylibrmm.memory_resource._pools import pool_behind
    from rmm.pylibrmm.memory_resource._registry import registered_resources

    segments: list[dict[str, Any]] = []
    seen: set[int] = set()
    for device, resource in sorted(registered_resources().items()):
        pool = pool_behind(resource)
        if pool is not None and id(pool) not in seen:  # one pool can serve several devices
            seen.add(id(pool))
            segments += _segments(device, _Suballocator.snapshot(pool))
    traces: list[list[Any]] = [[] for _ in range(gpu.getDeviceCount())]
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}, "external_annotations": []}


def _serve_statistics(torch_c: Any, allocator: Any) -> None:
    """Answers PyTorch's queries about memory while `allocator` is its allocator. Wraps functions, as there are no hooks."""

    def serve(name: str, answer: Any) -> None:
        original = getattr(torch_c, name, None)
        if original is None:
            return

        def function(*arguments: Any) -> Any:
            return answer(*arguments) if torch_c._cuda_getAllocator() is allocator else original(*arguments)

        function.__name__ = name
        setattr(torch_c, name, function)

    serve("_cuda_memoryStats", _statistics)
    serve("_cuda_resetPeakMemoryStats", lambda device: _checked(_library().torch_reset_peaks(device), device))
    serve("_cuda_resetAccumulatedMemoryStats", lambda device: _checked(_library().torch_reset_sums(device), device))
    snapshot_of_pytorch: Any = getattr(torch_c, "_cuda_memorySnapshot", None)

    def snapshot(pool: tuple[Any, ...] | None = None) -> Any:
        is_of_all = pool is None or tuple(pool[:2]) == (0, 0)
        return memory_snapshot() if is_of_all else snapshot_of_pytorch(pool)  # raises PyTorch's own exception

    serve("_cuda_memorySnapshot", snapshot)


def _cuda_of_torch() -> Any:
    """Returns `torch`; None if it is not installed, has no CUDA or finds no device."""
    try:
        import torch
    except ImportError:
        return None
    return torch if hasattr(torch._C, "_cuda_customAllocator") and torch.cuda.is_available() else None


def _make_allocator() -> Any:
    torch = _cuda_of_torch()
    if torch is None:
        return None
    made = torch.cuda.memory.CUDAPluggableAllocator(_library_path, alloc_fn_name="allocate", free_fn_name="deallocate")
    allocator = made.allocator()
    for hook, name in _hooks.items():
        if hasattr(allocator, hook):
            getattr(allocator, hook)(ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value)
    _serve_statistics(torch._C, allocator)
    return made


def _share_segments(storage_class: Any) -> None:
    """Makes tensors in segments of RMM usable by other processes.

    PyTorch tells them where a tensor lies in its segment, and CUDA maps the driver's whole allocation for them. The two begin
    at the same address in PyTorch's own segments, but not in one that a pool gave.
    """
    original = storage_class._share_cuda_

    def share(storage: Any, *arguments: Any) -> Any:
        shared = original(storage, *arguments)
        offset_at = 3  # of the tuple (device, handle, size, offset, and data for reference counting)
        offset = shared[offset_at]
        place = _library().torch_place_of_segment(storage.data_ptr() - offset)
        if place == -1:
            return shared  # not a segment of RMM
        if place < 0:
            raise RuntimeError(
                "the driver does not tell which of its allocations the tensor lies in: it cannot be shared"
            )
        return (*shared[:offset_at], place + offset, *shared[offset_at + 1 :])

    share.__name__ = original.__name__
    storage_class._share_cuda_ = share


def _make_mem_pool_allocator() -> Any:
    torch = _cuda_of_torch()
    if torch is None:
        return None
    _share_segments(torch.UntypedStorage)
    return torch.cuda.memory.CUDAPluggableAllocator(
        _library_path, alloc_fn_name="allocate_segment", free_fn_name="deallocate_segment"
    )


_makers = {
    "rmm_torch_allocator": _make_allocator,
    "rmm_torch_mem_pool_allocator": _make_mem_pool_allocator,
}


rmm_torch_allocator: Any
rmm_torch_mem_pool_allocator: Any


def __getattr__(name: str) -> Any:
    """Makes an allocator on first use, because that imports PyTorch. It is None if PyTorch cannot use a device."""
    if name not in _makers:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in globals():
        globals()[name] = _makers[name]()
    return globals()[name]


def mem_pool(**options: Any) -> Any:
    """Make a `torch.cuda.MemPool` whose segments come from the resource of the device.

    PyTorch's own allocator divides and keeps the segments, with its statistics, errors and CUDA graphs. They go back when the
    pool is destroyed.

    Parameters
    ----------
    **options : object
        The options of `torch.cuda.MemPool`.

    Returns
    -------
    torch.cuda.MemPool
        The pool.

    Raises
    ------
    RuntimeError
        If PyTorch has no CUDA or finds no device.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> from rmm.allocators.torch import mem_pool
    >>> with torch.cuda.use_mem_pool(mem_pool()):  # doctest: +SKIP
    ...     x = torch.zeros(1000, device="cuda")
    """
    made = __getattr__("rmm_torch_mem_pool_allocator")
    if made is None:
        raise RuntimeError("this PyTorch has no CUDA, or finds no device")
    import torch

    return torch.cuda.MemPool(made.allocator(), **options)
