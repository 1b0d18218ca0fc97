# SPDX-License-Identifier: Apache-2.0
"""The plug-in for vLLM. vLLM imports it in all of its processes. It imports `rmm` only if `RMM_VLLM_SLEEP=1` is set.

With that, `vllm serve MODEL --enable-sleep-mode` takes the memory that sleeps from elastic pools of RMM.
"""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["register"]


def register() -> None:
    """Register the backend "rmm" with vLLM. If `RMM_VLLM_SLEEP=1` is set, replace vLLM's allocator for memory that sleeps."""
    with suppress(ImportError):  # older releases have no backends
        from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

        with suppress(ValueError):  # registered already
            SleepModeBackendFactory.register_backend("rmm", "rmm.allocators._vllm_backend", "RmmBackend")
    if os.environ.get("RMM_VLLM_SLEEP") == "1":
        import vllm.device_allocator.cumem as cumem

        from rmm.allocators.vllm import CuMemAllocator

        cumem.CuMemAllocator = CuMemAllocator
        cumem.cumem_available = True
