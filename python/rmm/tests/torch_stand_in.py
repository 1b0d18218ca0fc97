# SPDX-License-Identifier: Apache-2.0
"""A stand-in for what rmm.sleep uses of PyTorch, on the simulator: pools that take whole segments from an allocator."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

_allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_deallocate = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_numbers = itertools.count(1)


class Allocator:
    def __init__(self, allocate: int, deallocate: int) -> None:
        self.allocate = _allocate(allocate)
        self.deallocate = _deallocate(deallocate)


class MemPool:
    """A pool that keeps the segments of freed tensors until it ends."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.id = (0, next(_numbers))
        self.unused: list[tuple[int, int, int]] = []

    def take(self, nbytes: int, device: int) -> int:
        for segment in self.unused:
            if segment[1:] == (nbytes, device):
                self.unused.remove(segment)
                return segment[0]
        ptr = self.allocator.allocate(nbytes, device, None)
        if ptr is None:
            raise MemoryError
        return int(ptr)

    def __del__(self) -> None:
        for ptr, nbytes, device in self.unused:
            self.allocator.deallocate(ptr, nbytes, device, None)


class Tensor:
    def __init__(self, torch: Torch, pool: MemPool, nbytes: int, device: int) -> None:
        self.ptr = pool.take(nbytes, device)
        self.nbytes = nbytes
        self._torch, self._pool, self._allocator, self._device = torch, weakref.ref(pool), pool.allocator, device

    def __del__(self) -> None:
        if not hasattr(self, "_pool"):
            return
        segment = (self.ptr, self.nbytes, self._device)
        pool = self._pool()
        if pool is None:
            self._torch.without_pool.append((self._allocator, segment))
        else:
            pool.unused.append(segment)


class CUDAGraph:
    """A graph that refers to the pool that it was captured into."""

    pool: MemPool


class Torch:
    """What stands for the module."""

    def __init__(self) -> None:
        self.pools: list[MemPool] = []  # those in use, outermost first
        self.without_pool: list[tuple[Allocator, tuple[int, int, int]]] = []  # segments, freed after their pool's end
        self._C = SimpleNamespace(_cuda_customAllocator=Allocator)
        self.cuda = SimpleNamespace(
            MemPool=self._make_pool,
            use_mem_pool=self._use_mem_pool,
            graph=self._graph,
            current_device=lambda: 0,
            empty_cache=self._empty_cache,
        )
        self._by_id: dict[Any, weakref.ref[MemPool]] = {}

    def empty(self, nbytes: int) -> Tensor | None:
        """A tensor of the pool in use; None without one."""
        return Tensor(self, self.pools[0], nbytes, 0) if self.pools else None

    def _make_pool(self, allocator: Allocator) -> MemPool:
        pool = MemPool(allocator)
        self._by_id[pool.id] = weakref.ref(pool)
        return pool

    def _empty_cache(self) -> None:
        for allocator, (ptr, nbytes, device) in self.without_pool:
            allocator.deallocate(ptr, nbytes, device, None)
        self.without_pool.clear()

    @contextmanager
    def _use_mem_pool(self, pool: MemPool, device: int) -> Iterator[None]:
        self.pools.append(pool)
        try:
            yield
        finally:
            self.pools.remove(pool)

    @contextmanager
    def _graph(self, graph: CUDAGraph, pool: Any, stream: Any, capture_error_mode: str) -> Iterator[None]:
        found = self._by_id[pool]()
        assert found is not None
        graph.pool = found
        with self._use_mem_pool(found, 0):
            yield
