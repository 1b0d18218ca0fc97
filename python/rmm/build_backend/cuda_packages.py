# SPDX-License-Identifier: Apache-2.0
"""The CUDA toolkit of a build: that of the machine, or the headers and the runtime of NVIDIA's packages on PyPI.

    cuda_packages.py FOLDER [SITE]

makes in FOLDER what CMake takes for a toolkit, and prints FOLDER. It consists of links to the packages that are installed, or
to those that are unpacked in SITE.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

requirements = (
    "nvidia-cuda-runtime>=13,<14",
    "nvidia-cuda-crt>=13,<14",
    "nvidia-cuda-cccl>=13,<14",
    "nvidia-nvtx>=13,<14",
)

_needed_files = (
    "include/cuda_runtime_api.h",
    "include/crt/host_config.h",
    "include/nvtx3/nvtx3.hpp",
    "lib/libcudart_static.a",
    "cccl/lib/cmake/cccl/cccl-config.cmake",
)


def has_toolkit() -> bool:
    """Whether CMake finds a toolkit on this machine."""
    named = any(os.environ.get(name) for name in ("CUDACXX", "CUDAToolkit_ROOT", "CUDA_PATH"))
    return named or shutil.which("nvcc") is not None or Path("/usr/local/cuda/bin/nvcc").exists()


def wants_packages() -> bool:
    """Whether the build takes the packages: RMM_CUDA_PACKAGES is `auto`, `1`, or where they are unpacked."""
    wanted = os.environ.get("RMM_CUDA_PACKAGES", "auto")
    return not has_toolkit() if wanted == "auto" else wanted not in ("", "0")


def folder_of_packages(site: Path | None) -> Path:
    """The folder that the packages share; raises SystemExit if one of them is missing."""
    if site is not None:
        folders = [site / "nvidia" / "cu13"]
    else:
        nvidia = find_spec("nvidia")
        places = nvidia.submodule_search_locations if nvidia is not None else None
        folders = [Path(place) / "cu13" for place in places or ()]
    for folder in folders:
        if all((folder / name).is_file() for name in _needed_files):
            return folder
    where = "there is no CUDA toolkit, and " if site is None else f"in {site} "
    raise SystemExit(
        f"{where}NVIDIA's packages are missing or not complete. Install a toolkit (nvcc on PATH, or CUDAToolkit_ROOT), or the "
        f"packages: pip install {' '.join(repr(each) for each in requirements)}"
    )


def make_toolkit(folder: Path, packages: Path) -> None:
    """Lays the packages out as a toolkit is. Their libraries lack the names by which linkers ask for them."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lib64").mkdir(parents=True)
    (folder / "include").symlink_to(packages / "include")
    for library in (packages / "lib").iterdir():
        (folder / "lib64" / library.name).symlink_to(library)
        if ".so." in library.name:
            (folder / "lib64" / f"{library.name.partition('.so.')[0]}.so").symlink_to(library)
    # Copies: these files look for headers at places relative to their own.
    shutil.copytree(packages / "cccl" / "lib" / "cmake", folder / "lib64" / "cmake")
    header = (packages / "include" / "cuda_runtime_api.h").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header)
    if found is None:
        raise SystemExit(f"{packages}/include/cuda_runtime_api.h does not say its version")
    version = f"{int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}.0"
    # CMake reads the one or the other where there is no nvcc.
    (folder / "version.txt").write_text(f"CUDA Version {version}\n", encoding="utf-8")
    (folder / "version.json").write_text(f'{{"cuda": {{"version": "{version}"}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    make_toolkit(Path(sys.argv[1]), folder_of_packages(Path(sys.argv[2]) if len(sys.argv) > 2 else None))
    print(sys.argv[1])
