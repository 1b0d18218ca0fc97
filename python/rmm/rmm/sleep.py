# SPDX-License-Identifier: Apache-2.0
"""Memory that can sleep: it goes back to the device for a while, and then returns to the same addresses.

>>> import rmm
>>> import rmm.sleep
>>> with rmm.sleep.region("weights", keep=True) as pool:
...     model = rmm.DeviceBuffer(size=5, mr=pool)
>>> model.copy_from_host(b"model")
>>> freed = rmm.sleep.pause("weights")  # others have the device
>>> rmm.sleep.resume("weights")
>>> model.tobytes()
b'model'

In a program that has imported PyTorch, its tensors of the region sleep as well. Nothing here imports PyTorch.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from rmm._build_facts import cuda_backend
from rmm._commands.simulate import is_simulated
from rmm._cuda import gpu
from rmm.pylibrmm.memory_resource._pools import ElasticPoolMemoryResource
from rmm.pylibrmm.scopes import tag as _tag

__all__ = ["Sleeper", "cuda_graph", "is_asleep", "pause", "region", "resume"]

Keep = bool | Literal["pageable", "pinned"]
_Contents = Literal["dropped", "pageable", "pinned"]

_no_torch = "this program has not imported PyTorch, or PyTorch finds no device"


def _contents_of(keep: Keep) -> _Contents:
    if keep is True:
        return "pinned"
    if keep is False:
        return "dropped"
    if keep in ("pageable", "pinned"):
        return keep
    raise ValueError(f'keep is {keep!r}; it takes True, False, "pageable" or "pinned"')


def _torch() -> Any:
    """Returns the module torch if the program has imported it and it can use a device; else None."""
    torch = sys.modules.get("torch")
    if torch is None or (cuda_backend == "sim" and not is_simulated()):
        return None
    # while another thread imports the module, attributes may be missing
    built_for_cuda = hasattr(getattr(torch, "_C", None), "_cuda_customAllocator") and hasattr(torch, "cuda")
    return torch if built_for_cuda and torch.cuda.is_available() else None


# One lock for all Sleepers: PyTorch ends the process if one of its pools ends while any thread is in any region.
_lock = threading.RLock()
_sleepers: weakref.WeakSet[Sleeper] = weakref.WeakSet()
_unused: list[Any] = []  # PyTorch's pools that are destroyed when no region is open


def _park(parts: dict[tuple[str, _Contents, int], _Part]) -> None:
    """Keeps PyTorch's pools of a destroyed Sleeper until no region is open."""
    _unused.extend(pool for part in parts.values() for pool in (part.mem_pool, part.graphs) if pool is not None)
    for part in parts.values():
        part.mem_pool = part.graphs = None


def _empty_cache() -> None:
    """Empties PyTorch's own cache."""
    torch = _torch()
    if torch is not None:
        torch.cuda.empty_cache()


@dataclass(eq=False)
class _Part:
    """The unit of memory that sleeps: one tag on one device, with one way to treat contents."""

    tag: str
    contents: _Contents
    device: int
    pool: ElasticPoolMemoryResource
    label: _tag
    asleep: bool = False
    open_scopes: int = 0
    # PyTorch's objects:
    source: Any = None  # the SegmentSource of the allocator
    allocator: Any = None  # calls `source`
    mem_pool: Any = None  # serves regions, and caches what their tensors have freed
    graphs: Any = None  # serves graph_pool()

    def make_mem_pool(self, torch: Any) -> Any:
        for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
            if "expandable_segments:True" in os.environ.get(name, ""):
                raise RuntimeError(f"{name} has expandable_segments:True, with which PyTorch's memory cannot sleep")
        if self.allocator is None:
            from rmm.allocators._torch_segments import SegmentSource

            self.source = SegmentSource(self.pool, self.label)
            self.allocator = torch._C._cuda_customAllocator(
                self.source.allocate_address, self.source.deallocate_address
            )
            # PyTorch uses it until the process ends, but does not own it.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.allocator))
        return torch.cuda.MemPool(self.allocator)


class _Threads(threading.local):
    """The regions that a thread is in, innermost last, and PyTorch's scope for the innermost. None stands for outside()."""

    def __init__(self) -> None:
        self.parts: list[_Part | None] = []
        self.scope: Any = None

    def leave(self) -> None:
        scope, self.scope = self.scope, None
        if scope is not None:
            scope.__exit__(None, None, None)

    def enter(self) -> None:
        """Makes PyTorch allocate from the innermost part. Its scopes are not nested: PyTorch does not define which counts."""
        part = self.parts[-1] if self.parts else None
        torch = None if part is None else _torch()
        if part is None or torch is None:
            return
        with _lock:  # so that threads that enter a new region together share one pool
            if part.mem_pool is None:
                part.mem_pool = part.make_mem_pool(torch)
        scope = torch.cuda.use_mem_pool(part.mem_pool, part.device)
        scope.__enter__()
        self.scope = scope


class Sleeper:
    """Memory in regions with tags. `pause` gives the memory of a tag back to the device, `resume` maps it to its addresses
    again.

    Each device has one elastic pool. The functions of the module are methods of one `Sleeper`, which is enough for most
    programs.

    Parameters
    ----------
    chunk_size : int or str, optional
        The bytes that are mapped at a time. Large chunks are mapped faster, and a tag holds a whole number of them.
    maximum_size : int or str, optional
        The most bytes of each device to hold; no limit if None.

    Examples
    --------
    >>> import rmm.sleep
    >>> sleeper = rmm.sleep.Sleeper(maximum_size="4GiB")
    >>> with sleeper.region("cache") as pool:
    ...     cache = rmm.DeviceBuffer(size=1000, mr=pool)
    >>> freed = sleeper.pause("cache")
    """

    def __init__(self, *, chunk_size: int | str = "32MiB", maximum_size: int | str | None = None) -> None:
        self._chunk_size = chunk_size
        self._maximum_size = maximum_size
        self._retains = False
        self._lock = _lock
        self._pools: dict[int, ElasticPoolMemoryResource] = {}
        self._parts: dict[tuple[str, _Contents, int], _Part] = {}
        self._threads = _Threads()
        self._graph_pools: weakref.WeakValueDictionary[tuple[Any, _Part], Any] = weakref.WeakValueDictionary()
        _sleepers.add(self)
        weakref.finalize(self, _park, self._parts).atexit = False

    def pool(self, device: int | None = None) -> ElasticPoolMemoryResource:
        """Return the pool of a device.

        Parameters
        ----------
        device : int, optional
            The number of the device; the current device if None.

        Returns
        -------
        ElasticPoolMemoryResource
            The pool. What is allocated from it outside of regions does not sleep.

        Examples
        --------
        >>> import rmm.sleep
        >>> rmm.sleep.Sleeper().pool().chunk_bytes == 32 << 20
        True
        """
        current = gpu.getDevice()
        device = current if device is None else device
        with self._lock:
            if device not in self._pools:
                gpu.setDevice(device)
                try:
                    self._pools[device] = ElasticPoolMemoryResource(
                        maximum_pool_size=self._maximum_size, chunk_size=self._chunk_size
                    )
                    self._pools[device].retain_host_memory(self._retains)
                finally:
                    gpu.setDevice(current)
            return self._pools[device]

    @contextmanager
    def region(self, tag: str = "default", *, keep: Keep = False) -> Iterator[ElasticPoolMemoryResource]:
        """Let the memory that a block of code allocates sleep with a tag.

        That is the memory of tensors that PyTorch allocates on the thread and the current device, and what the thread
        allocates from the pool that the block gets. Regions nest, and the innermost counts.

        Parameters
        ----------
        tag : str, optional
            The tag.
        keep : bool or {"pageable", "pinned"}, optional
            Whether `pause` keeps the contents, and in which memory of the host; True is pinned memory. A tag can have
            memory of each kind.

        Yields
        ------
        ElasticPoolMemoryResource
            The pool of the current device.

        Raises
        ------
        ValueError
            If `keep` has another value, or the tag ends with " (pageable)" or " (pinned)".
        RuntimeError
            If the tag is asleep or empty, or the device has no virtual memory.

        Examples
        --------
        >>> import rmm.sleep
        >>> with rmm.sleep.region("cache") as pool:
        ...     cache = rmm.DeviceBuffer(size=1000, mr=pool)
        """
        with self._open(tag, keep) as part, part.label, self._inside(part):
            yield part.pool

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Suspend the thread's regions for a block of code, so that its memory does not sleep.

        Examples
        --------
        >>> import rmm.sleep
        >>> sleeper = rmm.sleep.Sleeper()
        >>> with sleeper.region("cache") as pool, sleeper.outside():
        ...     stays = rmm.DeviceBuffer(size=1000, mr=pool)
        """
        with _tag(""), self._inside(None):
            yield

    @contextmanager
    def cuda_graph(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        *,
        tag: str = "default",
        keep: Keep = False,
    ) -> Iterator[None]:
        """Capture a graph as `torch.cuda.graph` does, and let the memory that it allocates sleep with a tag.

        Parameters
        ----------
        cuda_graph : torch.cuda.CUDAGraph
            The graph.
        pool : optional
            As in `torch.cuda.graph`. Graphs with the same pool and the same tag share memory.
        stream : torch.cuda.Stream, optional
            As in `torch.cuda.graph`.
        capture_error_mode : str, optional
            As in `torch.cuda.graph`.
        tag : str, optional
            The tag.
        keep : bool or {"pageable", "pinned"}, optional
            As of `region`.

        Raises
        ------
        RuntimeError
            If PyTorch has no CUDA or finds no device, or the tag is asleep.

        Examples
        --------
        >>> import rmm.sleep
        >>> graph = torch.cuda.CUDAGraph()  # doctest: +SKIP
        >>> with rmm.sleep.cuda_graph(graph, tag="graph", keep=True):  # doctest: +SKIP
        ...     y = model(x)
        """
        torch = _torch()
        if torch is None:
            raise RuntimeError(_no_torch)
        with self._open(tag, keep) as part, self._inside(None):
            mem_pool = self._graph_pool(torch, part, pool)
            # the pool must outlive the graph, which refers to it until it is destroyed
            weakref.finalize(cuda_graph, _unused.append, mem_pool).atexit = False
            with torch.cuda.graph(cuda_graph, pool=mem_pool.id, stream=stream, capture_error_mode=capture_error_mode):
                yield

    @contextmanager
    def graph_pool(self, tag: str, *, keep: Keep = False) -> Iterator[tuple[int, int]]:
        """Provide a pool for graphs that the block of code captures itself. Their memory sleeps with a tag.

        Parameters
        ----------
        tag : str
            The tag.
        keep : bool or {"pageable", "pinned"}, optional
            As of `region`.

        Yields
        ------
        tuple of int
            The pool, for `torch.cuda.graph(..., pool=...)`. All blocks with the tag get the same one.

        Raises
        ------
        RuntimeError
            If PyTorch has no CUDA or finds no device, or the tag is asleep.

        Examples
        --------
        >>> import rmm.sleep
        >>> sleeper, graph = rmm.sleep.Sleeper(), torch.cuda.CUDAGraph()  # doctest: +SKIP
        >>> with sleeper.graph_pool("graphs") as pool, torch.cuda.graph(graph, pool=pool):  # doctest: +SKIP
        ...     y = model(x)
        """
        torch = _torch()
        if torch is None:
            raise RuntimeError(_no_torch)
        with self._open(tag, keep) as part, self._inside(None):
            with self._lock:
                if part.graphs is None:
                    part.graphs = part.make_mem_pool(torch)
            yield part.graphs.id

    def pause(self, tag: str | None = None, *, keep: Keep | None = None) -> int:
        """Give memory back to the device. Its addresses stay reserved, and must not be used until `resume`.

        Waits for the device, and empties PyTorch's cache. Memory that is asleep stays so.

        Parameters
        ----------
        tag : str, optional
            The tag; all tags if None.
        keep : bool or {"pageable", "pinned"}, optional
            Whether to keep the contents; as the regions said if None.

        Returns
        -------
        int
            The bytes that the devices got back.

        Raises
        ------
        ValueError
            If there was no region with the tag.
        RuntimeError
            If a region or a capture with the tag has not ended.
        MemoryError
            If the host has no memory for the contents. That memory is awake then; what fell asleep before it stays asleep.

        Examples
        --------
        >>> import rmm.sleep
        >>> with rmm.sleep.region("cache") as pool:
        ...     cache = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> rmm.sleep.pause("cache") >= 32 << 20  # the least that is mapped at a time
        True
        >>> rmm.sleep.resume("cache")
        """
        contents = None if keep is None else _contents_of(keep)
        with self._lock:
            parts = [part for part in self._find(tag) if not part.asleep]
            for part in parts:
                if part.open_scopes:
                    raise RuntimeError(f"a region with the tag {part.tag!r} has not ended: end it before you pause it")
            pools = {part.device: part.pool for part in parts}
            before = sum(pool.mapped_bytes for pool in pools.values())
            self._drop_pools(parts)  # PyTorch frees the memory that no tensor uses
            _empty_cache()
            for pool in pools.values():
                pool.release_unused()  # otherwise resume() would map unused memory again
            for part in parts:
                part.pool.pause(contents or part.contents, tag=part.label)
                part.asleep = True
            # Not below 0: pools can grow meanwhile, in other threads.
            return max(0, before - sum(pool.mapped_bytes for pool in pools.values()))

    def resume(self, tag: str | None = None) -> None:
        """Map memory to the addresses again, and restore the contents that were kept. Memory that is awake stays so.

        Parameters
        ----------
        tag : str, optional
            The tag; all tags if None.

        Raises
        ------
        ValueError
            If there was no region with the tag.
        MemoryError
            If the device has not enough memory. What woke up before that stays awake, and a later call wakes the rest.

        Examples
        --------
        >>> import rmm.sleep
        >>> with rmm.sleep.region("cache") as pool:
        ...     cache = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> freed = rmm.sleep.pause()
        >>> rmm.sleep.resume("cache")
        """
        with self._lock:
            for part in self._find(tag):
                if part.asleep:
                    self._wake(part)
                    part.asleep = False

    def is_asleep(self, tag: str) -> bool:
        """Return whether memory with a tag is asleep, on any device.

        Parameters
        ----------
        tag : str
            The tag.

        Returns
        -------
        bool
            Whether it is; False for an unknown tag.

        Examples
        --------
        >>> import rmm.sleep
        >>> rmm.sleep.is_asleep("cache")
        False
        """
        with self._lock:
            return any(part.asleep for part in self._parts.values() if part.tag == tag)

    def tags(self) -> list[str]:
        """Return the tags of all regions so far.

        Returns
        -------
        list of str
            The tags, in the order of their first regions.

        Examples
        --------
        >>> import rmm.sleep
        >>> sleeper = rmm.sleep.Sleeper()
        >>> with sleeper.region("cache"):
        ...     pass
        >>> sleeper.tags()
        ['cache']
        """
        with self._lock:
            return list(dict.fromkeys(part.tag for part in self._parts.values()))

    def used_bytes(self) -> int:
        """Return the allocated bytes of all pools, asleep or awake.

        Returns
        -------
        int
            The bytes. PyTorch's segments count as a whole.

        Examples
        --------
        >>> import rmm.sleep
        >>> sleeper = rmm.sleep.Sleeper()
        >>> with sleeper.region("cache") as pool:
        ...     cache = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> sleeper.used_bytes()
        1024
        """
        with self._lock:
            return sum(pool.figures()["live_bytes"] for pool in self._pools.values())

    def release_unused(self) -> int:
        """Give awake, unused memory back to the devices. Includes memory that PyTorch's pools of regions cache.

        Returns
        -------
        int
            The bytes given back.

        Examples
        --------
        >>> import rmm.sleep
        >>> sleeper = rmm.sleep.Sleeper()
        >>> with sleeper.region("cache") as pool:
        ...     cache = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> del cache
        >>> sleeper.release_unused() == pool.chunk_bytes
        True
        """
        with self._lock:
            self._drop_pools(self._parts.values())
            _empty_cache()  # also frees pools that were dropped
            return sum(pool.release_unused() for pool in self._pools.values())

    @property
    def retain_host_memory(self) -> bool:
        """Whether `resume` keeps the host's memory, which makes the next `pause` faster. Setting it to False frees it."""
        return self._retains

    @retain_host_memory.setter
    def retain_host_memory(self, on: bool) -> None:
        with self._lock:
            self._retains = on
            for pool in self._pools.values():
                pool.retain_host_memory(on)

    def kept_contents(self, ptr: int, nbytes: int) -> memoryview | None:
        """Return the host's copy of memory that is asleep with its contents.

        Parameters
        ----------
        ptr : int
            The address in the device's memory.
        nbytes : int
            The bytes.

        Returns
        -------
        memoryview or None
            The copy, which must not be used after `resume`. None if the memory is awake, or if its contents were dropped.

        Examples
        --------
        >>> import rmm
        >>> import rmm.sleep
        >>> sleeper = rmm.sleep.Sleeper()
        >>> with sleeper.region("weights", keep=True) as pool:
        ...     model = rmm.DeviceBuffer(size=5, mr=pool)
        >>> model.copy_from_host(b"model")
        >>> freed = sleeper.pause()
        >>> bytes(sleeper.kept_contents(model.ptr, model.size))
        b'model'
        >>> sleeper.resume()
        """
        with self._lock:
            for pool in self._pools.values():
                kept = pool.kept_contents(ptr, nbytes)
                if kept is not None:
                    return kept
            return None

    # --- parts

    def _part(self, tag: str, keep: Keep) -> _Part:
        if not isinstance(tag, str):
            raise TypeError(f"a tag is a str, not {type(tag).__name__}")
        if tag.endswith((" (pageable)", " (pinned)")):
            raise ValueError(f"the tag {tag!r} has an ending that the pool uses for its own tags: choose another tag")
        contents = _contents_of(keep)
        torch = _torch()
        device = gpu.getDevice() if torch is None else torch.cuda.current_device()
        key = (tag, contents, device)
        if key not in self._parts:
            pool = self.pool(device)
            label = _tag(tag if contents == "dropped" else f"{tag} ({contents})")
            pool.set_pausable(label)
            self._parts[key] = _Part(tag, contents, device, pool, label)
        return self._parts[key]

    def _find(self, tag: str | None) -> list[_Part]:
        found = [part for part in self._parts.values() if tag is None or part.tag == tag]
        if not found and tag is not None:
            raise ValueError(f"there was no region with the tag {tag!r}; the tags are {self.tags()}")
        return found

    def _drop_pools(self, parts: Iterable[_Part]) -> None:
        """Drops PyTorch's pools of parts, and those of destroyed graphs. Later regions make new pools.

        Does nothing while a region or a capture is open: PyTorch ends the process if a pool ends while another thread uses one.
        """
        if any(part.open_scopes for sleeper in list(_sleepers) for part in sleeper._parts.values()):
            return
        _unused.clear()
        for part in parts:
            part.mem_pool = None

    @contextmanager
    def _open(self, tag: str, keep: Keep) -> Iterator[_Part]:
        """Keeps a part awake. It has to be awake before, or PyTorch could give a new tensor freed memory that is asleep."""
        with self._lock:
            self._drop_pools([])
            part = self._part(tag, keep)
            if part.asleep:
                raise RuntimeError(f"the memory with the tag {tag!r} is asleep: call resume({tag!r}) first")
            part.open_scopes += 1
        try:
            yield part
        finally:
            with self._lock:
                part.open_scopes -= 1

    @contextmanager
    def _inside(self, part: _Part | None) -> Iterator[None]:
        """Makes a part, or none, the target of this thread's allocations through PyTorch."""
        threads = self._threads
        with ExitStack() as undo:
            threads.leave()
            undo.callback(threads.enter)
            threads.parts.append(part)
            undo.callback(threads.parts.pop)
            threads.enter()
            undo.callback(threads.leave)
            yield

    def _graph_pool(self, torch: Any, part: _Part, pool: Any) -> Any:
        """Returns a pool that lives as long as its graphs. It replaces `pool` of PyTorch, whose memory cannot sleep."""
        with self._lock:
            found = None if pool is None else self._graph_pools.get((pool, part))
            if found is None:
                found = part.make_mem_pool(torch)
                self._graph_pools[found.id, part] = found
                if pool is not None:
                    self._graph_pools[pool, part] = found
            return found

    @staticmethod
    def _wake(part: _Part) -> None:
        try:
            part.pool.resume(tag=part.label)
        except MemoryError:
            _empty_cache()  # can free enough memory
            part.pool.resume(tag=part.label)


_sleeper = Sleeper()

region = _sleeper.region
pause = _sleeper.pause
resume = _sleeper.resume
is_asleep = _sleeper.is_asleep
cuda_graph = _sleeper.cuda_graph
