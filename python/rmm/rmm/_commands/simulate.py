# SPDX-License-Identifier: Apache-2.0
"""Runs Python with the package's simulator in the place of the CUDA runtime and of the driver."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import librmm


def simulated_environment(environment: Mapping[str, str]) -> dict[str, str] | None:
    """The variables of a process on the simulator, or None if the package has none."""
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
    """Becomes Python with these arguments; returns an exit status only if that is not possible."""
    environment = simulated_environment(os.environ)
    if environment is not None:
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    print(
        "python -m rmm simulate: this package is not built for the simulator; build it with RMM_CUDA_BACKEND=sim",
        file=sys.stderr,
    )
    return 2
