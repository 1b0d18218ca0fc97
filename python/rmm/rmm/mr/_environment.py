# SPDX-License-Identifier: Apache-2.0
"""Sets the resources that environment variables name, when the package is imported."""

from __future__ import annotations

import os

from rmm._cuda import gpu
from rmm.pylibrmm.memory_resource import (
    ConfiguredMemoryResource,
    CudaMemoryResource,
    route_libraries,
    set_per_device_resource,
)


def obey() -> None:
    """Set the resources that RMM_RESOURCE and RMM_TRACE_FILE ask for, if one of them is set.

    The program can replace them later. RMM_TRACE_FILE also traces resources that are set later. If RMM_AUDIT is
    `route:current`, resources serve what other libraries allocate from the driver, too.
    """
    if os.environ.get("RMM_AUDIT") == "route:current":
        route_libraries()
    configuration = os.environ.get("RMM_RESOURCE")
    if not configuration and not os.environ.get("RMM_TRACE_FILE"):
        return
    try:
        before = gpu.getDevice()
    except gpu.CUDARuntimeError:
        return  # no device can be used
    try:
        for device in range(gpu.getDeviceCount()):
            gpu.setDevice(device)
            set_per_device_resource(
                device, ConfiguredMemoryResource(configuration) if configuration else CudaMemoryResource()
            )
    except Exception as error:
        if configuration:
            error.add_note("The environment variable RMM_RESOURCE asks for this resource.")
        raise
    finally:
        gpu.setDevice(before)
