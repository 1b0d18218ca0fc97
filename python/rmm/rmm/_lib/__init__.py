# SPDX-License-Identifier: Apache-2.0
"""The modules of the package under the names that they had up to 24.10."""

from __future__ import annotations

from rmm._lib import cuda_stream, device_buffer, helper, lib, logger, memory_resource
from rmm._lib.device_buffer import DeviceBuffer, copy_device_to_ptr, copy_host_to_ptr, copy_ptr_to_host, to_device

__all__ = [
    "DeviceBuffer",
    "copy_device_to_ptr",
    "copy_host_to_ptr",
    "copy_ptr_to_host",
    "cuda_stream",
    "device_buffer",
    "helper",
    "lib",
    "logger",
    "memory_resource",
    "to_device",
]
