# SPDX-License-Identifier: Apache-2.0
"""The engine in Dask's workers.

>>> client.register_plugin(rmm_engine_rapids.dask.EnginePlugin("elastic,max=80%"))

Or ``dask worker --preload rmm_engine_rapids.dask``, with the environment variable ``RMM_ENGINE_RAPIDS``.
"""

from __future__ import annotations

from typing import Any

from distributed import WorkerPlugin

from rmm_engine_rapids._start import start

__all__ = ["EnginePlugin", "dask_setup"]


class EnginePlugin(WorkerPlugin):
    """Makes a resource of the engine the current one of each worker's device, also in workers that start later.

    Start the cluster without its own options for rmm (``rmm_pool_size`` and the like of Dask-CUDA).

    Parameters
    ----------
    configuration : str, optional
        As in :func:`rmm_engine_rapids.enable`. Where it is None, the environment of the worker counts. A pool of another
        text is replaced; if something uses it already, ``setup`` raises ``RuntimeError``.
    """

    name = "rmm-engine-rapids"

    def __init__(self, configuration: str | None = None) -> None:
        self.configuration = configuration

    def setup(self, worker: Any) -> None:
        """Dask calls this method in each worker."""
        start(self.configuration)


def dask_setup(worker: Any) -> None:
    """Dask calls this function when it preloads this module. With ``RMM_ENGINE_RAPIDS``, the import has set the resource."""
    start()
