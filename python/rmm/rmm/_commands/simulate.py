# SPDX-License-Identifier: Apache-2.0
"""Runs Python with the simulator in place of the CUDA runtime and driver."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import librmm


def simulated_environment(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the environment of a process on the simulator, or None if the package has no simulator."""
    folder = Path(librmm.__file__).parent / "lib" / "cudasim"
    runtime = next(iter(sorted(folder.glob("libcudart.so.*"))), None)
    if runtime is None:
        return None
    first = {"LD_LIBRARY_PATH": str(folder), "LD_PRELOAD": str(runtime)}
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
