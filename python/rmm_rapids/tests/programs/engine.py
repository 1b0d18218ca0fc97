# SPDX-License-Identifier: Apache-2.0
"""Uses the engine below RAPIDS' rmm: buffers, an adaptor of RAPIDS, and an allocation that is too large."""

from __future__ import annotations

import gc
from unittest import mock

import rmm
import rmm.pylibrmm.memory_resource._memory_resource as rapids_resources

import rmm_engine_rapids


def use() -> None:
    resource = rmm_engine_rapids.enable("pool,initial=4MiB,max=64MiB")
    limited = rmm.mr.LimitingResourceAdaptor(resource, 32 << 20)
    buffers = [rmm.DeviceBuffer(size=size, mr=mr) for size in (1000, 6 << 20) for mr in (resource, limited)]
    try:
        rmm.DeviceBuffer(size=1 << 40)
    except MemoryError as error:
        print(error)
    figures = resource.figures()
    assert figures is not None
    assert figures.live_blocks == len(buffers)


with mock.patch.object(rapids_resources, "getDevice", return_value=0):  # RAPIDS' own CUDA runtime finds no driver here
    try:
        use()
    finally:
        gc.collect()
        rmm.mr.set_per_device_resource(0, rmm.mr.CudaMemoryResource())
        gc.collect()
