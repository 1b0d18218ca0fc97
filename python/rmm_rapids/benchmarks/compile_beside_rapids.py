#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles a C++ file with the installed release of RAPIDS' librmm and the installed bridge.

    compile_beside_rapids.py SOURCE OUTPUT [OPTION of the compiler]...

For the benchmark and the tests, and to show which options a program needs. CXX names another compiler than c++,
CUDAToolkit_ROOT another CUDA toolkit than that of nvcc.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path


def folder_of(name: str) -> Path:
    """Returns the folder of an installed package."""
    spec = find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise SystemExit(f"{name} is not installed for {sys.executable}")
    return Path(places[0])


def toolkit() -> Path:
    """Returns the folder of the CUDA toolkit."""
    nvcc = shutil.which("nvcc")
    named = os.environ.get("CUDAToolkit_ROOT")  # noqa: SIM112
    return Path(named or (Path(nvcc).resolve().parents[1] if nvcc else "/usr/local/cuda"))


def command(source: Path, output: Path, options: list[str]) -> list[str]:
    """Returns the command that compiles and links `source`."""
    rapids, logger, bridge = folder_of("librmm"), folder_of("rapids_logger"), folder_of("rmm_engine_rapids")
    simulator = bridge / "libcudart_sim.so"
    runtime = [f"-L{toolkit() / 'lib64'}", "-lcudart_static", "-ldl", "-lrt", "-lpthread"]
    headers = [rapids / "include" / "rapids", rapids / "include", logger / "include", toolkit() / "include"]
    libraries = [
        rapids / "lib64" / "librmm.so",
        logger / "lib64" / "librapids_logger.so",
        bridge / "librmm_engine_rapids.so",
    ]
    return [
        os.environ.get("CXX", "c++"),
        "-std=c++17",
        "-DCCCL_DISABLE_PDL",
        *options,
        f"-I{bridge / 'include'}",
        *(f"-isystem{folder}" for folder in headers),
        str(source),
        "-o",
        str(output),
        *map(str, libraries),
        *([str(simulator)] if simulator.exists() else runtime),
        *(f"-Wl,-rpath,{library.parent}" for library in libraries),
    ]


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    sys.exit(subprocess.run(command(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]), check=False).returncode)
