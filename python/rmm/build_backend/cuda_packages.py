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
    """Returns whether CMake would find a toolkit on this machine."""
    named = any(os.environ.get(name) for name in ("CUDACXX", "CUDAToolkit_ROOT", "CUDA_PATH"))
    return named or shutil.which("nvcc") is not None or Path("/usr/local/cuda/bin/nvcc").exists()


def wants_packages() -> bool:
    """Returns whether to build with NVIDIA's packages. RMM_CUDA_PACKAGES is `auto`, `0`, `1`, or their folder."""
    wanted = os.environ.get("RMM_CUDA_PACKAGES", "auto")
    return not has_toolkit() if wanted == "auto" else wanted not in ("", "0")


def folder_of_packages(site: Path | None) -> Path:
    """Returns the folder that the packages share. Raises SystemExit if a package is missing."""
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
    """Lays out the packages like a toolkit. Adds links such as libx.so for the linker, which the packages lack."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lib64").mkdir(parents=True)
    (folder / "include").symlink_to(packages / "include")
    for library in (packages / "lib").iterdir():
        (folder / "lib64" / library.name).symlink_to(library)
        if ".so." in library.name:
            (folder / "lib64" / f"{library.name.partition('.so.')[0]}.so").symlink_to(library)
    # Copied, not linked: these files find headers by relative paths.
    shutil.copytree(packages / "cccl" / "lib" / "cmake", folder / "lib64" / "cmake")
    header = (packages / "include" / "cuda_runtime_api.h").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header)
    if found is None:
        raise SystemExit(f"{packages}/include/cuda_runtime_api.h does not say its version")
    version = f"{int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}.0"
    # Without nvcc, CMake reads the version from one of these files.
    (folder / "version.txt").write_text(f"CUDA Version {version}\n", encoding="utf-8")
    (folder / "version.json").write_text(f'{{"cuda": {{"version": "{version}"}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    make_toolkit(Path(sys.argv[1]), folder_of_packages(Path(sys.argv[2]) if len(sys.argv) > 2 else None))
    print(sys.argv[1])
