# SPDX-License-Identifier: Apache-2.0
"""What builds the package: which CUDA it takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

folder = Path(__file__).parents[1]
sys.path.insert(0, str(folder / "build_backend"))
try:
    import cuda_packages
finally:
    sys.path.pop(0)


@pytest.fixture
def without_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDACXX", "CUDAToolkit_ROOT", "CUDA_PATH", "RMM_CUDA_PACKAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(Path, "exists", lambda self: False)


def unpack_packages(site: Path) -> Path:
    """Files of NVIDIA's packages that a build looks for."""
    packages = site / "nvidia" / "cu13"
    for name in (*cuda_packages._needed_files, "lib/libcudart.so.13"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text("#define CUDART_VERSION  13050\n")
    return packages


@pytest.mark.usefixtures("without_toolkit")
def test_packages_are_taken_where_there_is_no_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cuda_packages.wants_packages()
    monkeypatch.setenv("CUDAToolkit_ROOT", "/opt/cuda")
    assert not cuda_packages.wants_packages()
    monkeypatch.setenv("RMM_CUDA_PACKAGES", "1")
    assert cuda_packages.wants_packages()


@pytest.mark.usefixtures("without_toolkit")
def test_packages_can_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMM_CUDA_PACKAGES", "0")
    assert not cuda_packages.wants_packages()


def test_packages_are_laid_out_as_a_toolkit_is(tmp_path: Path) -> None:
    packages = unpack_packages(tmp_path / "site")
    for _ in range(2):  # a build folder is used again
        cuda_packages.make_toolkit(tmp_path / "toolkit", cuda_packages.folder_of_packages(tmp_path / "site"))
    toolkit = tmp_path / "toolkit"
    assert (toolkit / "include" / "cuda_runtime_api.h").samefile(packages / "include" / "cuda_runtime_api.h")
    assert (toolkit / "lib64" / "libcudart.so").samefile(packages / "lib" / "libcudart.so.13")
    assert (toolkit / "lib64" / "cmake" / "cccl" / "cccl-config.cmake").is_file()
    assert (toolkit / "version.txt").read_text() == "CUDA Version 13.5.0\n"


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    packages = unpack_packages(tmp_path)
    (packages / "include" / "nvtx3" / "nvtx3.hpp").unlink()
    with pytest.raises(SystemExit, match=r"pip install .*nvidia-nvtx"):
        cuda_packages.folder_of_packages(tmp_path)
