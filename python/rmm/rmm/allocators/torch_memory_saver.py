# SPDX-License-Identifier: Apache-2.0
"""The interface of the package torch_memory_saver, over `rmm.sleep`.

>>> from rmm.allocators.torch_memory_saver import torch_memory_saver  # doctest: +SKIP
>>> with torch_memory_saver.region(tag="weights", enable_cpu_backup=True):  # doctest: +SKIP
...     weights = torch.ones(1000, device="cuda")
>>> torch_memory_saver.pause("weights")  # doctest: +SKIP
>>> torch_memory_saver.resume("weights")  # doctest: +SKIP

It needs no LD_PRELOAD, so `hook_mode` and `configure_subprocess` change nothing. Not supported: backups on disks, margins, and
the environment variables that make a region of the whole program.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import rmm.sleep

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]


class TorchMemorySaver:
    """The class of the object `torch_memory_saver`.

    Parameters
    ----------
    sleeper : rmm.sleep.Sleeper, optional
        The memory to use; that of the functions of `rmm.sleep` if None.

    Examples
    --------
    >>> import rmm.sleep
    >>> from rmm.allocators.torch_memory_saver import TorchMemorySaver
    >>> saver = TorchMemorySaver(rmm.sleep.Sleeper(maximum_size="4GiB"))
    >>> with saver.region(tag="weights", enable_cpu_backup=True):
    ...     pass  # load the model
    >>> saver.pause("weights")
    >>> saver.resume("weights")
    """

    def __init__(self, sleeper: rmm.sleep.Sleeper | None = None) -> None:
        self._sleeper = rmm.sleep._sleeper if sleeper is None else sleeper
        self._hook_mode = "torch"

    @contextmanager
    def region(
        self,
        tag: str = "default",
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: Literal["mmap", "pinned"] | None = None,
    ) -> Iterator[None]:
        """Let the tensors of a block of code sleep with a tag.

        Parameters
        ----------
        tag : str, optional
            The tag.
        enable_cpu_backup : bool, optional
            Whether `pause` keeps the contents in memory of the host.
        enable_disk_backup : bool, optional
            Not supported.
        cpu_backup_backend : {"mmap", "pinned"}, optional
            Which memory of the host: "mmap" is pageable memory. Pinned memory if None.

        Raises
        ------
        NotImplementedError
            If `enable_disk_backup` is set.
        ValueError
            If `cpu_backup_backend` is unknown, or set without `enable_cpu_backup`.

        Examples
        --------
        >>> from rmm.allocators.torch_memory_saver import TorchMemorySaver
        >>> with TorchMemorySaver().region(tag="weights", enable_cpu_backup=True):
        ...     pass  # load the model
        """
        if enable_disk_backup:
            raise NotImplementedError("RMM keeps contents in memory of the host only, not on disks")
        with self._sleeper.region(tag, keep=_keep(enable_cpu_backup, cpu_backup_backend)):
            yield

    @contextmanager
    def cuda_graph(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = "default",
        enable_cpu_backup: bool = False,
        cpu_backup_backend: Literal["mmap", "pinned"] | None = None,
    ) -> Iterator[None]:
        """Capture a graph as `torch.cuda.graph` does, and let its memory sleep with a tag.

        Parameters
        ----------
        cuda_graph : torch.cuda.CUDAGraph
            The graph.
        pool : optional
            As of `torch.cuda.graph`.
        stream : torch.cuda.Stream, optional
            As of `torch.cuda.graph`.
        capture_error_mode : str, optional
            As of `torch.cuda.graph`.
        tag : str, optional
            The tag.
        enable_cpu_backup : bool, optional
            As of `region`.
        cpu_backup_backend : {"mmap", "pinned"}, optional
            As of `region`.

        Raises
        ------
        RuntimeError
            If PyTorch has no CUDA or finds no device.
        ValueError
            As `region`.

        Examples
        --------
        >>> from rmm.allocators.torch_memory_saver import torch_memory_saver
        >>> graph = torch.cuda.CUDAGraph()  # doctest: +SKIP
        >>> with torch_memory_saver.cuda_graph(graph, tag="graph"):  # doctest: +SKIP
        ...     y = model(x)
        """
        keep = _keep(enable_cpu_backup, cpu_backup_backend)
        with self._sleeper.cuda_graph(cuda_graph, pool, stream, capture_error_mode, tag=tag, keep=keep):
            yield

    def disable(self, dispose_mem_pool_after_use: bool = True) -> AbstractContextManager[None]:
        """Return a scope inside a region whose tensors do not sleep.

        Parameters
        ----------
        dispose_mem_pool_after_use : bool, optional
            Has no effect: tensors of the scope are in PyTorch's own memory.

        Returns
        -------
        context manager
            The scope.

        Examples
        --------
        >>> from rmm.allocators.torch_memory_saver import TorchMemorySaver
        >>> saver = TorchMemorySaver()
        >>> with saver.region(tag="weights"), saver.disable():
        ...     pass  # tensors of this block do not sleep
        """
        return self._sleeper.outside()

    def pause(self, tag: str | None = None) -> None:
        """Give memory back to the device. Does nothing for an unknown tag.

        Parameters
        ----------
        tag : str, optional
            The tag; all tags if None.

        Examples
        --------
        >>> from rmm.allocators.torch_memory_saver import TorchMemorySaver
        >>> TorchMemorySaver().pause("unknown")  # does nothing
        """
        if tag is None or tag in self._sleeper.tags():
            self._sleeper.pause(tag)

    def resume(self, tag: str | None = None) -> None:
        """Map memory to the same addresses again. Does nothing for an unknown tag.

        Parameters
        ----------
        tag : str, optional
            The tag; all tags if None.

        Examples
        --------
        >>> import rmm.sleep
        >>> from rmm.allocators.torch_memory_saver import TorchMemorySaver
        >>> saver = TorchMemorySaver(rmm.sleep.Sleeper())
        >>> with saver.region(tag="weights"):
        ...     pass  # load the model
        >>> saver.pause("weights")
        >>> saver.resume("weights")
        """
        if tag is None or tag in self._sleeper.tags():
            self._sleeper.resume(tag)

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """Return the contents of a tensor that sleeps with them.

        Parameters
        ----------
        x : torch.Tensor
            The tensor, which has to be contiguous.
        zero_copy : bool, optional
            Whether to return the copy that `resume` uses, which must not be used after it.

        Returns
        -------
        torch.Tensor or None
            A tensor of the host. None if the tensor is awake, or if its contents were dropped.

        Raises
        ------
        ValueError
            If the tensor is not contiguous, or not on a CUDA device.

        Examples
        --------
        >>> from rmm.allocators.torch_memory_saver import torch_memory_saver
        >>> with torch_memory_saver.region(tag="weights", enable_cpu_backup=True):  # doctest: +SKIP
        ...     weights = torch.ones(1000, device="cuda")
        >>> torch_memory_saver.pause("weights")  # doctest: +SKIP
        >>> torch_memory_saver.get_cpu_backup(weights)  # doctest: +SKIP
        """
        if not x.is_cuda or not x.is_contiguous():
            raise ValueError("a backup needs a contiguous tensor on a CUDA device")
        import numpy as np
        import torch

        with self._sleeper._lock:  # held until the copy is made, so that no thread resumes
            kept = self._sleeper.kept_contents(x.data_ptr(), x.nbytes)
            if kept is None:
                return None
            array = np.frombuffer(kept, dtype=np.uint8)
            if not zero_copy:
                return torch.from_numpy(array.copy()).view(x.dtype).view(x.shape)
        address = array.__array_interface__["data"][0]
        return torch.from_numpy(_writable(address, array.nbytes)).view(x.dtype).view(x.shape)

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether the host's memory is kept for the next `pause`. `get_cpu_backup` returns None after `resume` all the same."""
        return self._sleeper.retain_host_memory

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, on: bool) -> None:
        self._sleeper.retain_host_memory = on

    @property
    def enabled(self) -> bool:
        """Always True."""
        return True

    @property
    def hook_mode(self) -> str:
        """The mode that was set last. It has no effect."""
        return self._hook_mode

    @hook_mode.setter
    def hook_mode(self, mode: str) -> None:
        if mode not in ("preload", "torch"):
            raise ValueError(f'hook_mode is {mode!r}; it takes "preload" or "torch"')
        self._hook_mode = mode


def _keep(enable_cpu_backup: bool, backend: str | None) -> rmm.sleep.Keep:
    if backend not in (None, "mmap", "pinned"):
        raise ValueError(f'cpu_backup_backend is {backend!r}; it takes "mmap" or "pinned"')
    if backend is not None and not enable_cpu_backup:
        raise ValueError("cpu_backup_backend needs enable_cpu_backup=True")
    if not enable_cpu_backup:
        return False
    return "pageable" if backend == "mmap" else "pinned"


def _writable(address: int, nbytes: int) -> Any:
    """Returns the bytes at an address as a writable array: PyTorch warns of read-only ones."""
    import ctypes

    import numpy as np

    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def configure_subprocess() -> AbstractContextManager[None]:
    """Return a scope that does nothing: processes need no hook.

    Returns
    -------
    context manager
        The scope.

    Examples
    --------
    >>> from rmm.allocators.torch_memory_saver import configure_subprocess
    >>> with configure_subprocess():
    ...     pass  # start a process
    """
    return nullcontext()


torch_memory_saver = TorchMemorySaver()
