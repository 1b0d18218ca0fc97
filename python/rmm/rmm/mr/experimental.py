# SPDX-License-Identifier: Apache-2.0
"""Resources whose interface may still change."""

from __future__ import annotations

from rmm.pylibrmm.memory_resource import CudaAsyncManagedMemoryResource

__all__ = ["CudaAsyncManagedMemoryResource"]
