# SPDX-License-Identifier: Apache-2.0

from rmm.librmm.per_device_resource cimport (
    cuda_device_id,
    get_current_device_resource,
    get_per_device_resource,
    set_current_device_resource,
    set_per_device_resource,
)
