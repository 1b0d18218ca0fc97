# SPDX-License-Identifier: Apache-2.0
"""The backend "rmm" of vLLM's sleep mode. vLLM imports it when it is selected."""

from __future__ import annotations

from typing import Any

from vllm.device_allocator.sleep_mode_backend import SleepModeBackend

from rmm.allocators.vllm import CuMemAllocator

__all__ = ["RmmBackend"]

_kept_always = ("runtime", "cudagraph")


class RmmBackend(SleepModeBackend):  # type: ignore[misc]
    """Puts vLLM's memory to sleep in elastic pools of RMM."""

    def suspend(self, level: int = 1) -> None:
        """Give memory back: level 1 keeps the weights in pinned memory of the host, level 2 drops them.

        Parameters
        ----------
        level : int, optional
            The level.

        Raises
        ------
        RuntimeError
            If vLLM has allocated nothing from RMM, because `RMM_VLLM_SLEEP=1` was not set.
        """
        allocator = CuMemAllocator.get_instance()
        if allocator.get_current_usage() == 0:
            raise RuntimeError("vLLM has allocated nothing from RMM: set RMM_VLLM_SLEEP=1 in its environment")
        allocator.sleep(("weights", *_kept_always) if level == 1 else _kept_always)
        self._state = "SUSPENDED"

    def resume(self, tags: list[str] | None = None) -> None:
        """Map memory to its addresses again.

        Parameters
        ----------
        tags : list of str, optional
            The tags; all if None.
        """
        self._state = "RESUMING"
        CuMemAllocator.get_instance().wake_up(tags)
        self._state = "RUNNING"

    def discard(self, tags: tuple[str, ...]) -> None:
        """Put memory with some tags to sleep, and drop its contents.

        Parameters
        ----------
        tags : tuple of str
            The tags.
        """
        CuMemAllocator.get_instance().discard(tags)
        self._state = "SUSPENDED"

    @classmethod
    def is_supported(cls) -> bool:
        """Return whether the device has virtual memory, which sleeping needs.

        Returns
        -------
        bool
            Whether it has.
        """
        pool: Any = CuMemAllocator.get_instance()._sleeper.pool()
        return bool(pool.has_virtual_memory)

    @classmethod
    def preserves_communicators(cls) -> bool:
        """Return True, because the memory of communicators does not sleep.

        Returns
        -------
        bool
            True.
        """
        return True
