# SPDX-License-Identifier: Apache-2.0
"""CuPy on RMM's memory: `cupy.cuda.set_allocator(rmm_cupy_allocator)`."""

from __future__ import annotations

from rmm.allocators._cupy import rmm_cupy_allocator

__all__ = ["rmm_cupy_allocator"]
