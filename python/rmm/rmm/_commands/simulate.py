# SPDX-License-Identifier: Apache-2.0
"""Runs Python with the simulator in place of the CUDA runtime and driver."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import librmm


def _simulated_runtime() -> Path | None:
    """The library that stands in for the CUDA runtime, or None if the package has none."""
    return next(iter(sorted((Path(librmm.__file__).parent / "lib" / "cudasim").glob("libcudart.so.*"))), None)


@cache
def is_simulated() -> bool:
    """Return whether this process runs on the simulator, other packages included."""
    return str(_simulated_runtime()) in os.environ.get("LD_PRELOAD", "").split(":")


def simulated_environment(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the environment of a process on the simulator, or None if the package has no simulator."""
    runtime = _simulated_runtime()
    if runtime is None:
        return None
    first = {"LD_LIBRARY_PATH": str(runtime.parent), "LD_PRELOAD": str(runtime)}
    return {
        **environment,
        **{name: ":".join(filter(None, (value, environment.get(name)))) for name, value in first.items()},
    }


def run_simulated(arguments: list[str]) -> int:
    """Replaces this process by Python with these arguments. Returns an exit status only on failure."""
    environment = simulated_environment(os.environ)
    if environment is not None:
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    print(
        "python -m rmm simulate: this package is not built for the simulator; build it with RMM_CUDA_BACKEND=sim",
        file=sys.stderr,
    )
    return 2
