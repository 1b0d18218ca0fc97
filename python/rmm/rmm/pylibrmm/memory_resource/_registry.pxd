# SPDX-License-Identifier: Apache-2.0

from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource


cpdef DeviceMemoryResource get_per_device_resource(int device)
cpdef set_per_device_resource(int device, DeviceMemoryResource mr)
cpdef DeviceMemoryResource get_current_device_resource()
cpdef set_current_device_resource(DeviceMemoryResource mr)
