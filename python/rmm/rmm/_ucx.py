# SPDX-License-Identifier: Apache-2.0
"""Tells whether UCX sends the memory of a resource from device to device.

UCX 1.21 exports memory of elastic pools and of the driver's pools by fabric handles only. Without them it copies such memory
from device to device in pieces if `OPTION` is set, and else sends it through the host. Memory of `cudaMalloc` always goes from
device to device: docs/measurements/2026-11-27-h200.md.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import Any

from rmm.mr import (
    ConfiguredMemoryResource,
    CudaAsyncMemoryResource,
    CudaAsyncViewMemoryResource,
    ElasticPoolMemoryResource,
)

__all__ = ["OPTION", "is_installed", "mapped_memory", "option_is_set"]

OPTION = "UCX_RNDV_PIPELINE_ERROR_HANDLING"  # a variable of the environment, which UCX reads when it starts
_yes = ("y", "yes", "on", "1")  # what UCX takes, in any case

_mapped = ("elastic", "cuda_async", "cuda_async_view")  # names in configurations
_default_upstreams = {"cached": "cuda_async"}
_upstream = re.compile(r",\s*upstream\s*=[\s(\"]*")


def is_installed() -> bool:
    """Returns whether programs of this environment can use UCX."""
    return find_spec("ucxx") is not None


def option_is_set(default: str = "") -> bool:
    """Returns whether `OPTION` is on. `default` is its value if the environment has none."""
    return os.environ.get(OPTION, default).lower() in _yes


def mapped_memory(resource: Any) -> str:
    """Returns the name of the resource below `resource` whose memory UCX sends slowly without `OPTION`, or "".

    Parameters
    ----------
    resource : DeviceMemoryResource
        A resource, with any adaptors on it.

    Returns
    -------
    str
        "elastic", "cuda_async", "cuda_async_view" or "".

    Examples
    --------
    >>> import rmm
    >>> mapped_memory(rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaAsyncMemoryResource()))
    'cuda_async'
    >>> mapped_memory(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource()))
    ''
    """
    while (upstream := getattr(resource, "upstream_mr", None)) is not None:
        resource = upstream
    if isinstance(resource, ConfiguredMemoryResource):
        name = _lowest_resource(resource.configuration, resource.explanation)
    elif isinstance(resource, ElasticPoolMemoryResource):
        name = "elastic"
    elif isinstance(resource, CudaAsyncViewMemoryResource):
        name = "cuda_async_view"
    else:
        name = "cuda_async" if isinstance(resource, CudaAsyncMemoryResource) else ""
    if name == "elastic" and not ElasticPoolMemoryResource().has_virtual_memory:
        return ""  # its memory is that of cudaMalloc
    return name if name in _mapped else ""


def _lowest_resource(configuration: str, explanation: str) -> str:
    """Returns the name of the resource that a configuration names as the last upstream."""
    text = _upstream.split(configuration)[-1]
    name = re.split(r"[,)\"\s]", text.strip(), maxsplit=1)[0]
    if name == "recommended":
        name = next((each for word, each in _recommended.items() if word in explanation), "")
    return _default_upstreams.get(name, name)


_recommended = {"elastic pool": "elastic", "a cache makes them fast": "cached"}  # words of the explanation
