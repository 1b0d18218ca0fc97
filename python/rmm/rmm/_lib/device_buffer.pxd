# SPDX-License-Identifier: Apache-2.0

from rmm.librmm.device_buffer cimport device_buffer, get_current_cuda_device, prefetch
from rmm.librmm.per_device_resource cimport cuda_device_id
from rmm.pylibrmm.device_buffer cimport (
    DeviceBuffer,
    copy_device_to_ptr,
    copy_host_to_ptr,
    copy_ptr_to_host,
    to_device,
)
