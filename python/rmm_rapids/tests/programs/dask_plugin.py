# SPDX-License-Identifier: Apache-2.0
"""Sets up the plug-in for Dask: an elastic pool becomes the current resource, and a buffer takes memory from it."""

from __future__ import annotations

import gc
from unittest import mock

import rmm
import rmm.pylibrmm.memory_resource._memory_resource as rapids_resources

import rmm_engine_rapids.dask

with mock.patch.object(rapids_resources, "getDevice", return_value=0):  # RAPIDS' own CUDA runtime finds no driver here
    try:
        rmm_engine_rapids.dask.EnginePlugin("elastic,max=80%").setup(worker=None)
        rmm.DeviceBuffer(size=5 << 20)
    finally:
        gc.collect()
        rmm.mr.set_per_device_resource(0, rmm.mr.CudaMemoryResource())
        gc.collect()
