# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from rmm._build_facts import cuda_backend, version
from rmm._build_facts import git_commit as __git_commit__

__all__ = ["__git_commit__", "__version__"]

__version__ = version if cuda_backend == "cuda" else f"{version}+{cuda_backend}"


def _warn_of_simulator() -> None:
    """Warns that this build does not use the GPU of this machine."""
    import os

    if os.path.exists("/dev/nvidiactl"):
        import warnings

        warnings.warn(
            "This build of rmm runs on the simulated CUDA runtime, not on the GPU of this machine. Install rmm without "
            "RMM_CUDA_BACKEND=sim to use it.",
            stacklevel=3,
        )


if cuda_backend == "sim":
    _warn_of_simulator()
