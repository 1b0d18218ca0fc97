# SPDX-License-Identifier: Apache-2.0
"""Resources that later releases may change."""

from __future__ import annotations

from rmm.pylibrmm.memory_resource._device import CudaAsyncManagedMemoryResource

__all__ = ["CudaAsyncManagedMemoryResource"]
