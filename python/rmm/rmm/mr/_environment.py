# SPDX-License-Identifier: Apache-2.0
"""What the environment wants of the resources of all devices, when the package is imported."""

from __future__ import annotations

import os

from rmm._cuda import gpu
from rmm.pylibrmm.memory_resource import ConfiguredMemoryResource, CudaMemoryResource, set_per_device_resource


def obey() -> None:
    """Sets the resources that RMM_RESOURCE and RMM_TRACE_FILE ask for, if one of them is set.

    What the program sets later takes their place; RMM_TRACE_FILE traces that too.
    """
    configuration = os.environ.get("RMM_RESOURCE")
    if not configuration and not os.environ.get("RMM_TRACE_FILE"):
        return
    try:
        before = gpu.getDevice()
    except gpu.CUDARuntimeError:
        return  # nothing to obey with
    try:
        for device in range(gpu.getDeviceCount()):
            gpu.setDevice(device)
            set_per_device_resource(
                device, ConfiguredMemoryResource(configuration) if configuration else CudaMemoryResource()
            )
    except Exception as error:
        if configuration:
            error.add_note("That is what the environment variable RMM_RESOURCE asks for.")
        raise
    finally:
        gpu.setDevice(before)
