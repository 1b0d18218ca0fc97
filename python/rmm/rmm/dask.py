# SPDX-License-Identifier: Apache-2.0
"""A plug-in for Dask's workers: it sets the resource of each worker, and shows its memory in the dashboard.

>>> from distributed import Client  # doctest: +SKIP
>>> from rmm.dask import RMMPlugin
>>> with Client() as client:  # doctest: +SKIP
...     client.register_plugin(RMMPlugin("elastic,max=80%"))

Processes that import this module send each other `rmm.DeviceBuffer` without Numba.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from functools import partial
from typing import Any

from distributed import WorkerPlugin
from distributed.protocol import dask_deserialize, dask_serialize
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
from distributed.utils import offload

from rmm import _ucx
from rmm._cuda import gpu
from rmm.mr import (
    ConfiguredMemoryResource,
    DeviceMemoryResource,
    get_current_device_resource,
    get_per_device_resource,
    set_per_device_resource,
)
from rmm.pylibrmm.device_buffer import DeviceBuffer
from rmm.pylibrmm.memory_resource._pools import check_configuration
from rmm.pylibrmm.memory_resource._registry import without_trace

__all__ = ["RMMPlugin"]

_logger = logging.getLogger("distributed.worker.rmm")  # Dask shows it and keeps it for Client.get_worker_logs()


class _WorkerResource(ConfiguredMemoryResource):
    """A resource that plug-ins of this process have set for a device."""

    before: DeviceMemoryResource  # the device's resource before the plug-ins set this one
    workers: int  # the number of this process's workers that use this resource


def _resource_of_plugin(device: int, configuration: str | None) -> _WorkerResource | None:
    """Returns the device's resource if plug-ins have set it, with this configuration unless that is None; else None."""
    resource = without_trace(get_per_device_resource(device))
    if not isinstance(resource, _WorkerResource):
        return None
    return resource if configuration in (None, resource.configuration) else None


class RMMPlugin(WorkerPlugin):  # type: ignore[misc]  # Any, because mypy does not read Dask
    """A plug-in that sets the resource of each worker's current device, and shows its memory in the dashboard.

    Register it with `client.register_plugin`. Workers that start later get the resource, too. Workers in one process share it.
    A second registration replaces the first: each worker ends the old plug-in, and then sets the new resource.

    A plug-in that ends sets the resource that the worker had before, unless the program has set another one since. Live buffers
    stay valid, because each keeps the resource that it came from. That resource goes when the last of them goes.

    Until it ends, the plug-in keeps the worker's earlier resource. If that is a pool, it keeps its memory beside that of the
    new resource. So do not give workers a pool before they get the plug-in.

    A worker logs a warning if it talks UCX, its resource is an elastic pool or a pool of the driver, and UCX sends that memory
    through the host because UCX_RNDV_PIPELINE_ERROR_HANDLING is not set. Set it to `y` where you start Dask; see docs/dask.md.

    Parameters
    ----------
    configuration : str, optional
        The resource, such as "elastic,max=80%"; see docs/configuration.md. If None, the environment variable RMM_RESOURCE names
        it, in the process that makes the plug-in. If that is not set, workers keep the resource that they have.

    Raises
    ------
    ValueError
        If the text is not a configuration. The message shows the place.

    Examples
    --------
    >>> from rmm.dask import RMMPlugin
    >>> RMMPlugin("elastic,max=80%")
    RMMPlugin('elastic,max=80%')
    >>> client.register_plugin(RMMPlugin("elastic,max=80%"))  # doctest: +SKIP
    """

    name = "rmm"
    idempotent = False  # Dask removes a registered plug-in of this name first

    def __init__(self, configuration: str | None = None) -> None:
        if configuration is None:
            configuration = os.environ.get("RMM_RESOURCE") or None
        if configuration is not None:
            check_configuration(configuration)
        self.configuration = configuration
        self._device: int | None = None  # the device whose resource this plug-in has set
        self._metric: Any = None  # of the worker's device
        self._metric_before: Any = None

    def __repr__(self) -> str:
        return f"RMMPlugin({self.configuration!r})"

    def setup(self, worker: Any) -> None:
        """Set the resource in a worker. Dask calls this method.

        Parameters
        ----------
        worker : distributed.Worker
            The worker.

        Raises
        ------
        MemoryError
            If the device has too little memory for the resource. `client.register_plugin` raises it.
        """
        if self.configuration is not None:
            self._set_resource(self.configuration)
        _warn_of_slow_transfers(worker)
        self._metric_before = worker.metrics.get("rmm")
        with suppress(gpu.CUDARuntimeError):  # a worker without a device shows no memory
            self._metric = partial(_metric, device=gpu.getDevice())  # which is not current on the thread of the metric
            worker.metrics = {**worker.metrics, "rmm": self._metric}  # a new dict: a heartbeat may read the old one

    def teardown(self, worker: Any) -> None:
        """Restore the worker's earlier resource. Dask calls this method when the plug-in or the worker ends.

        Parameters
        ----------
        worker : distributed.Worker
            The worker.
        """
        if worker.metrics.get("rmm") is self._metric:
            metrics = {name: metric for name, metric in worker.metrics.items() if name != "rmm"}
            worker.metrics = metrics if self._metric_before is None else {**metrics, "rmm": self._metric_before}
        device, self._device = self._device, None
        resource = None if device is None else _resource_of_plugin(device, self.configuration)
        if device is None or resource is None:
            return
        resource.workers -= 1
        if resource.workers == 0:
            set_per_device_resource(device, resource.before)

    def _set_resource(self, configuration: str) -> None:
        device = gpu.getDevice()
        resource = _resource_of_plugin(device, configuration)
        if resource is None:
            replaced = _resource_of_plugin(device, None)
            resource = _WorkerResource(configuration)
            resource.workers = 0
            resource.before = without_trace(get_per_device_resource(device)) if replaced is None else replaced.before
            set_per_device_resource(device, resource)
        resource.workers += 1
        self._device = device


def _warn_of_slow_transfers(worker: Any) -> None:
    """Logs a warning if the worker talks UCX and its resource has memory that UCX sends through the host.

    The option that prevents this cannot be set here: UCX of the worker has started before.
    """
    if not getattr(worker, "address_safe", "").startswith(("ucx://", "ucxx://")):
        return
    if _ucx.option_is_set(_option_in_config()):
        return
    if name := _ucx.mapped_memory(get_current_device_resource()):
        _logger.warning(
            "UCX sends memory of '%s' through the host, slower than TCP does. Set %s=y in the environment before Dask starts, "
            "or use RMMPlugin('pool'); see docs/dask.md.",
            name,
            _ucx.OPTION,
        )


def _option_in_config() -> str:
    """Returns what Dask's configuration, which UCX gets where the environment says nothing, has for the option of UCX."""
    from dask import config  # distributed needs it, so it is there

    settings = config.get("distributed-ucxx.environment", None) or {}
    named = {"UCX_" + name.upper().replace("-", "_"): value for name, value in settings.items()}
    return str(named.get(_ucx.OPTION, ""))


def _first_answer(resource: Any, question: str) -> int:
    """Calls a method of the first resource that has it, from `resource` down its upstreams. Returns 0 if none has it."""
    while resource is not None:
        method = getattr(resource, question, None)
        if method is not None:
            return int(method())
        resource = getattr(resource, "upstream_mr", None)
    return 0


def _memory(device: int) -> dict[str, int]:
    """Returns the memory of a device's resource, with the names that Dask's dashboard uses."""
    resource = get_per_device_resource(device)
    used = _first_answer(resource, "get_allocated_bytes")
    return {"rmm-used": used, "rmm-total": max(used, _first_answer(resource, "pool_size"))}


async def _metric(worker: Any, device: int) -> dict[str, int]:
    """Replaces Dask's metric "rmm", which knows only the size of a `PoolMemoryResource`."""
    memory: dict[str, int] = await offload(_memory, device)
    return memory


def _to_host(buffer: DeviceBuffer) -> tuple[dict[str, Any], list[memoryview]]:
    return {}, [buffer.copy_to_host().data]


def _from_host(header: dict[str, Any], frames: list[Any]) -> DeviceBuffer:
    (frame,) = frames
    return DeviceBuffer.to_device(memoryview(frame).cast("B"))


def _as_it_is(buffer: DeviceBuffer) -> tuple[dict[str, Any], list[DeviceBuffer]]:
    return {}, [buffer]  # UCX copies from device to device


def _as_received(header: dict[str, Any], frames: list[DeviceBuffer]) -> DeviceBuffer:
    (buffer,) = frames
    return buffer


_serializers = (
    (dask_serialize, _to_host),
    (dask_deserialize, _from_host),
    (cuda_serialize, _as_it_is),
    (cuda_deserialize, _as_received),
)


def _register_serializers() -> None:
    """Registers serializers for buffers that need no Numba. Their format is that of Dask's own serializers."""
    for registry, function in _serializers:
        registry.register(DeviceBuffer)(function)


for _registry, _ in _serializers:
    _registry.register_lazy("rmm", _register_serializers)  # in place of Dask's, which would replace these later
_register_serializers()
