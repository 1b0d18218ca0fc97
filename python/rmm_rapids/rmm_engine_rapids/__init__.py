# SPDX-License-Identifier: Apache-2.0
"""RMM's memory engine as the current resource of RAPIDS' rmm: cuDF, cuML, RAFT and all others then allocate from it.

>>> import rmm_engine_rapids
>>> resource = rmm_engine_rapids.enable("elastic,max=80%")

With the environment variable ``RMM_ENGINE_RAPIDS=elastic,max=80%``, ``import rmm_engine_rapids`` does that for the current
device.
"""

from __future__ import annotations

import os

from rmm_engine_rapids import _release

_library = os.path.join(os.path.dirname(__file__), "librmm_engine_rapids.so")
_release.check()  # before importing modules that are compiled for one release
_release.check_engine(_library)

import rmm.mr  # noqa: E402

from rmm_engine_rapids._engine import EngineMemoryResource, engine_version  # noqa: E402
from rmm_engine_rapids._figures import Figures, Holder, Report  # noqa: E402
from rmm_engine_rapids._release import rapids_release  # noqa: E402

__all__ = [
    "EngineMemoryResource",
    "Figures",
    "Holder",
    "Report",
    "enable",
    "engine_version",
    "get_include",
    "nvtx_path",
    "rapids_release",
]


def enable(configuration: str | None = None, device: int | None = None) -> EngineMemoryResource:
    """Makes a resource of the engine the current one of a device, in RAPIDS' registry for C++ and Python.

    Call it before RAPIDS' libraries allocate. Blocks from the resource that was current go back to that one.

    Parameters
    ----------
    configuration : str, optional
        What the resource is, such as ``"elastic,max=80%"``. Without it the environment variable ``RMM_ENGINE_RAPIDS`` says it,
        then ``RMM_RESOURCE``; without both it is ``"recommended"``.
    device : int, optional
        The device; the current one by default. Call it once for each device that the process uses.

    Returns
    -------
    EngineMemoryResource
        The resource.
    """
    resource = EngineMemoryResource(configuration, device)
    rmm.mr.set_per_device_resource(resource.device, resource)
    return resource


def get_include() -> str:
    """Returns the folder of ``rmm_engine_rapids/engine_resource.hpp``, the resource for C++."""
    return os.path.join(os.path.dirname(__file__), "include")


def nvtx_path() -> str:
    """Returns what NVTX_INJECTION64_PATH has to be, so that allocations get tags from NVTX ranges, such as those of libcudf."""
    return _library


if os.environ.get("RMM_ENGINE_RAPIDS"):
    enable()
