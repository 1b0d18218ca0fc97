# SPDX-License-Identifier: Apache-2.0
"""Runs Python with the simulator in place of the CUDA runtime and driver."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import librmm
from librmm.load import find_in


def _simulated_runtime() -> Path | None:
    """The library that stands in for the CUDA runtime, or None if the package has none."""
    return next(iter(sorted(find_in(librmm.__path__, "lib/cudasim").glob("libcudart.so.*"))), None)


def _preloaded_name(runtime: Path) -> str:
    """The name for LD_PRELOAD. The loader ends it at a blank, and looks for one without folders in those of LD_LIBRARY_PATH."""
    return runtime.name if " " in str(runtime) else str(runtime)


@cache
def is_simulated() -> bool:
    """Return whether this process runs on the simulator, other packages included."""
    runtime = _simulated_runtime()
    return runtime is not None and _preloaded_name(runtime) in os.environ.get("LD_PRELOAD", "").split(":")


def simulated_environment(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the environment of a process on the simulator, or None if the package has no simulator."""
    runtime = _simulated_runtime()
    if runtime is None:
        return None
    first = {"LD_LIBRARY_PATH": str(runtime.parent), "LD_PRELOAD": _preloaded_name(runtime)}
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
