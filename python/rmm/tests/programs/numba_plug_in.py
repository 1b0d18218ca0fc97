# SPDX-License-Identifier: Apache-2.0
"""Uses Numba's memory manager: frees blocks one by one, while frees are deferred, and by a reset."""

from __future__ import annotations

import gc
from typing import Any

import rmm
import rmm.mr
from rmm.allocators.numba import RMMNumbaManager


class Context:
    pass


def use() -> None:
    rmm.mr.set_current_device_resource(rmm.mr.ElasticPoolMemoryResource("2MiB"))
    context = Context()
    manager: Any = RMMNumbaManager(context=context)
    manager.initialize()
    blocks = [manager.memalloc(nbytes) for nbytes in (0, 1000, 3 << 20, 100_000)]
    manager.get_memory_info()
    with manager.defer_cleanup():
        del blocks[1]
        gc.collect()
    manager.reset()


try:
    use()
finally:
    gc.collect()
    rmm.reinitialize()
