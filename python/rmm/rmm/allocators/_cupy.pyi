# SPDX-License-Identifier: Apache-2.0

from typing import Any

__all__ = ["rmm_cupy_allocator"]

def rmm_cupy_allocator(nbytes: int) -> Any: ...
def _forget_cupy() -> None: ...
