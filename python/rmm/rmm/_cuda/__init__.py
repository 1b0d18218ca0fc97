# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

# Comes first: Python runs this file even if another distribution has replaced rmm/__init__.py.
from rmm import _installation as _installation

# isort: split
from rmm._build_facts import cuda_backend
from rmm._cuda import _runtime


def _expect_simulator() -> None:
    """Raises ImportError if some of the package's calls of CUDA would not go to its simulator."""
    for place in _runtime.places():
        if place.rpartition("/")[2] != "libcudart_sim.so":
            raise ImportError(
                "this build of rmm runs on the simulated CUDA runtime, but some of its calls would go to "
                f"{place or 'an unknown file'}, which is loaded for the whole process and whose symbols have no versions. "
                "Import rmm in a process without that file (does LD_PRELOAD name it?), or build rmm without "
                "RMM_CUDA_BACKEND=sim."
            )


if cuda_backend == "sim":
    _expect_simulator()

from rmm._cuda import gpu, stream  # noqa: E402

__all__ = ["gpu", "stream"]
