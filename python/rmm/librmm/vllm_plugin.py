# SPDX-License-Identifier: Apache-2.0
"""The plug-in for vLLM, which imports it in all of its processes. It imports `rmm` only if `RMM_VLLM_SLEEP=1` is set.

With that, `vllm serve MODEL --enable-sleep-mode` takes the memory that sleeps from elastic pools of RMM.
"""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["register"]


def register() -> None:
    """Tell vLLM of the backend "rmm", and replace its allocator for memory that sleeps if `RMM_VLLM_SLEEP=1` is set."""
    with suppress(ImportError):  # older releases have no backends
        from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

        with suppress(ValueError):  # registered already
            SleepModeBackendFactory.register_backend("rmm", "rmm.allocators._vllm_backend", "RmmBackend")
    if os.environ.get("RMM_VLLM_SLEEP") == "1":
        import vllm.device_allocator.cumem as cumem

        from rmm.allocators.vllm import CuMemAllocator

        cumem.CuMemAllocator = CuMemAllocator
        cumem.cumem_available = True
