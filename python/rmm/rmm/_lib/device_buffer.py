# SPDX-License-Identifier: Apache-2.0
"""rmm.pylibrmm.device_buffer, under the name that it had up to 24.10."""

from __future__ import annotations

from rmm.pylibrmm.device_buffer import (
    DeviceBuffer,
    copy_device_to_ptr,
    copy_host_to_ptr,
    copy_ptr_to_host,
    to_device,
)

__all__ = [
    "DeviceBuffer",
    "copy_device_to_ptr",
    "copy_host_to_ptr",
    "copy_ptr_to_host",
    "to_device",
]
