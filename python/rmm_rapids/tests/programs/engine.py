# SPDX-License-Identifier: Apache-2.0
"""The engine under RAPIDS' own rmm: buffers, an adaptor of RAPIDS on top, more than there is, and the plug-in for Dask."""

from __future__ import annotations

import gc
from unittest import mock

import rmm
import rmm.pylibrmm.memory_resource._memory_resource as rapids_resources

import rmm_engine_rapids
import rmm_engine_rapids.dask


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
    buffers.clear()
    rmm_engine_rapids.dask.EnginePlugin("elastic,max=80%").setup(worker=None)
    buffers.append(rmm.DeviceBuffer(size=5 << 20))


with mock.patch.object(rapids_resources, "getDevice", return_value=0):  # RAPIDS' own CUDA runtime finds no driver here
    try:
        use()
    finally:
        gc.collect()
        rmm.mr.set_per_device_resource(0, rmm.mr.CudaMemoryResource())
        gc.collect()
