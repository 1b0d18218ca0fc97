# SPDX-License-Identifier: Apache-2.0
"""Enables the engine in a process that may have it already: in Dask's workers, and under ``python -m rmm_engine_rapids``."""

from __future__ import annotations

import gc

import rmm.mr

from rmm_engine_rapids import EngineMemoryResource, enable
from rmm_engine_rapids._engine import configuration_of_environment


def start(configuration: str | None = None) -> EngineMemoryResource:
    """Makes a resource of the engine the current one of the current device, unless it has one of this configuration.

    An earlier pool of the engine ends first, because the device may not have memory for two. If this fails, the device keeps
    the earlier configuration.

    Parameters
    ----------
    configuration : str, optional
        As in :func:`rmm_engine_rapids.enable`. Where it is None, the environment counts.

    Returns
    -------
    EngineMemoryResource
        The resource.

    Raises
    ------
    RuntimeError
        If the earlier pool is in use.
    """
    device = EngineMemoryResource("cuda").device  # RAPIDS' function asks a driver, which the simulator does not have
    former = _engine_of(rmm.mr.get_per_device_resource(device))
    if former is None:
        return enable(configuration, device)
    wanted = configuration_of_environment() if configuration is None else configuration
    former_configuration = former.configuration
    if wanted == former_configuration:
        return former
    del former
    _end_engine(device, wanted)
    try:
        return enable(configuration, device)
    except Exception:
        enable(former_configuration, device)
        raise


def _engine_of(resource: rmm.mr.DeviceMemoryResource) -> EngineMemoryResource | None:
    """Returns the resource of the engine in a chain of adaptors."""
    while isinstance(resource, rmm.mr.UpstreamResourceAdaptor):
        resource = resource.get_upstream()
    return resource if isinstance(resource, EngineMemoryResource) else None


def _end_engine(device: int, wanted: str | None) -> None:
    """Makes RAPIDS' plain resource the current one, and ends the engine's. Raises RuntimeError if something uses that."""
    current = rmm.mr.get_per_device_resource(device)
    if not isinstance(current, EngineMemoryResource):
        engine = _engine_of(current)
        raise RuntimeError(_refusal(engine, wanted, f"{type(current).__name__} allocates from it"))
    figures = current.figures()
    if figures is not None and figures.live_blocks != 0:
        raise RuntimeError(_refusal(current, wanted, f"it has live blocks ({figures.live_blocks})"))
    kept = current._share()
    del current
    rmm.mr.set_per_device_resource(device, rmm.mr.CudaMemoryResource())
    gc.collect()
    if kept._is_shared():
        rmm.mr.set_per_device_resource(device, kept)
        raise RuntimeError(_refusal(kept, wanted, "other objects refer to it"))


def _refusal(engine: EngineMemoryResource | None, wanted: str | None, reason: str) -> str:
    return (
        f"{engine!r} cannot be replaced by {wanted!r}: {reason}. "
        "Start this process with RMM_ENGINE_RAPIDS set to the configuration that you want, or without it."
    )
