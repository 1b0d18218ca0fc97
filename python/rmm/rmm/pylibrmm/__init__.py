# SPDX-License-Identifier: Apache-2.0
"""The Cython modules of the package, which other projects can cimport."""

from __future__ import annotations

from rmm.pylibrmm import (
    cuda_stream,
    cuda_stream_pool,
    device_buffer,
    helper,
    logger,
    memory_resource,
    scopes,
    stream,
    utils,
)
from rmm.pylibrmm._stream_flags import CudaStreamFlags
from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from rmm.pylibrmm.device_buffer import DeviceBuffer

__all__ = [
    "CudaStreamFlags",
    "CudaStreamPool",
    "DeviceBuffer",
    "cuda_stream",
    "cuda_stream_pool",
    "device_buffer",
    "helper",
    "logger",
    "memory_resource",
    "scopes",
    "stream",
    "utils",
]
