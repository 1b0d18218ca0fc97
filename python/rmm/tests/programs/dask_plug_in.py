# SPDX-License-Identifier: Apache-2.0
"""The plug-in for Dask in a worker: set up, replaced, and ended, with buffers that outlive it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import rmm
import rmm.mr
from rmm.dask import RMMPlugin


def use() -> None:
    worker: Any = SimpleNamespace(name="tcp/3", metrics={})
    kept = []
    for configuration in ("elastic,initial=8MiB", "pool,initial=4MiB,max=1GiB"):
        plugin = RMMPlugin(configuration)
        plugin.setup(worker=worker)
        kept += [rmm.DeviceBuffer(size=size) for size in (1000, 5 << 20)]
        if "rmm" in worker.metrics:  # without an answer about the device, a worker shows no memory
            asyncio.run(worker.metrics["rmm"](worker))
        plugin.teardown(worker=worker)
    kept[0].copy_from_host(b"from one worker to the other")
    assert kept[0].tobytes()[:8] == b"from one"


try:
    use()
finally:
    rmm.reinitialize()
