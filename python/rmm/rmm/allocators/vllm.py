# SPDX-License-Identifier: Apache-2.0
"""vLLM's sleep mode over `rmm.sleep`: the interface of `vllm.device_allocator.cumem.CuMemAllocator`.

`RMM_VLLM_SLEEP=1` in the environment lets vLLM use it: see `librmm.vllm_plugin`.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import ClassVar

import rmm.sleep
from rmm.sleep import Sleeper

__all__ = ["CuMemAllocator"]

_deferrable = ("weights", "kv_cache")  # wake_up(tags) may leave these tags asleep


class CuMemAllocator:
    """vLLM's memory, which sleeps by tag. `get_instance` returns the process's object.

    Parameters
    ----------
    sleeper : rmm.sleep.Sleeper, optional
        The memory to use; new memory if None.

    Examples
    --------
    >>> from rmm.allocators.vllm import CuMemAllocator
    >>> allocator = CuMemAllocator.get_instance()
    >>> with allocator.use_memory_pool("weights"):
    ...     pass  # load the model
    >>> allocator.sleep(("weights",))
    >>> allocator.wake_up()
    """

    instance: ClassVar[CuMemAllocator | None] = None
    default_tag: ClassVar[str] = "default"

    def __init__(self, sleeper: Sleeper | None = None) -> None:
        self._sleeper = Sleeper() if sleeper is None else sleeper

    @staticmethod
    def get_instance() -> CuMemAllocator:
        """Return the object of the process.

        Returns
        -------
        CuMemAllocator
            The object.

        Examples
        --------
        >>> from rmm.allocators.vllm import CuMemAllocator
        >>> CuMemAllocator.get_instance() is CuMemAllocator.get_instance()
        True
        """
        if CuMemAllocator.instance is None:
            CuMemAllocator.instance = CuMemAllocator()
        return CuMemAllocator.instance

    @contextmanager
    def use_memory_pool(self, tag: str | None = None) -> Iterator[None]:
        """Let the tensors of a block of code sleep with a tag.

        Parameters
        ----------
        tag : str, optional
            The tag; `default_tag` if None.

        Raises
        ------
        RuntimeError
            If the tag is asleep.

        Examples
        --------
        >>> from rmm.allocators.vllm import CuMemAllocator
        >>> with CuMemAllocator().use_memory_pool("weights"):
        ...     pass  # load the model
        """
        with self._sleeper.region(tag or self.default_tag):
            yield
        self._sleeper.release_unused()  # vLLM counts memory that the pool keeps as used

    @contextmanager
    def cudagraph_pool(self) -> Iterator[tuple[int, int]]:
        """Return a scope for captures. Memory that they allocate sleeps with the tag "cudagraph".

        Yields
        ------
        tuple of int
            The pool to capture into.

        Examples
        --------
        >>> from rmm.allocators.vllm import CuMemAllocator
        >>> allocator, graph = CuMemAllocator.get_instance(), torch.cuda.CUDAGraph()  # doctest: +SKIP
        >>> with allocator.cudagraph_pool() as pool, torch.cuda.graph(graph, pool=pool):  # doctest: +SKIP
        ...     y = model(x)
        """
        with self._sleeper.graph_pool("cudagraph") as pool:
            yield pool

    def sleep(self, offload_tags: Collection[str] | str | None = None) -> None:
        """Put all memory to sleep.

        Parameters
        ----------
        offload_tags : tuple of str or str, optional
            The tags whose contents are kept in pinned memory of the host; `default_tag` if None. All others are dropped.

        Examples
        --------
        >>> from rmm.allocators.vllm import CuMemAllocator
        >>> allocator = CuMemAllocator()
        >>> with allocator.use_memory_pool("weights"):
        ...     pass  # load the model
        >>> allocator.sleep("weights")
        """
        kept = _as_tags((self.default_tag,) if offload_tags is None else offload_tags)
        gc.collect()  # so that no garbage is copied to the host
        for tag in self._sleeper.tags():
            self._sleeper.pause(tag, keep=tag in kept)
        rmm.sleep._empty_cache()

    def discard(self, tags: Collection[str] | str) -> None:
        """Put memory with some tags to sleep, and drop its contents.

        Parameters
        ----------
        tags : tuple of str or str
            The tags. Those that are asleep stay as they are.

        Examples
        --------
        >>> from rmm.allocators.vllm import CuMemAllocator
        >>> allocator = CuMemAllocator()
        >>> with allocator.use_memory_pool("kv_cache"):
        ...     pass
        >>> allocator.discard("kv_cache")
        """
        for tag in _as_tags(tags):
            if tag in self._sleeper.tags():
                self._sleeper.pause(tag, keep=False)

    def wake_up(self, tags: Collection[str] | None = None) -> None:
        """Map memory to its addresses again.

        Parameters
        ----------
        tags : list of str, optional
            The tags to wake up; all if None. Tags other than "weights" and "kv_cache" wake up in each call.

        Examples
        --------
        >>> from rmm.allocators.vllm import CuMemAllocator
        >>> allocator = CuMemAllocator()
        >>> with allocator.use_memory_pool("weights"):
        ...     pass  # load the model
        >>> allocator.sleep("weights")
        >>> allocator.wake_up(["weights"])
        """
        gc.collect()
        rmm.sleep._empty_cache()
        for tag in self._sleeper.tags():
            if tags is None or tag in tags or tag not in _deferrable:
                self._sleeper.resume(tag)

    def get_current_usage(self) -> int:
        """Return the bytes that vLLM has allocated, asleep or awake.

        Returns
        -------
        int
            The bytes.

        Examples
        --------
        >>> from rmm.allocators.vllm import CuMemAllocator
        >>> CuMemAllocator().get_current_usage()
        0
        """
        return self._sleeper.used_bytes()

    def release_pools(self) -> None:
        """Give unused memory back to the device.

        Examples
        --------
        >>> from rmm.allocators.vllm import CuMemAllocator
        >>> CuMemAllocator().release_pools()
        """
        self._sleeper.release_unused()

    close = release_pools


def _as_tags(tags: Collection[str] | str) -> Collection[str]:
    return (tags,) if isinstance(tags, str) else tags
