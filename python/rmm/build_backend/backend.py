# SPDX-License-Identifier: Apache-2.0
"""The build backend: scikit-build-core, and source distributions that include the C++ library from outside this folder."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import build_folder
import cuda_packages
from scikit_build_core import build as _build
from scikit_build_core.build import *  # noqa: F403

_library_parts = (
    "CMakeLists.txt",
    "LICENSE",
    "VERSION",
    "c/CMakeLists.txt",
    "c/include",
    "c/src",
    "cmake",
    "include",
    "simulator",
    "tools/audit",
    "tools/gdb",
    "tools/nvtx",
    "tools/recorded",
    "tools/trace",
)


def get_requires_for_build_wheel(  # type: ignore[no-redef]
    config_settings: dict[str, Any] | None = None,
) -> list[str]:
    """Returns the requirements of scikit-build-core, and NVIDIA's packages if the machine has no CUDA toolkit."""
    return [*_build.get_requires_for_build_wheel(config_settings), *_cuda_requirements()]


def get_requires_for_build_editable(  # type: ignore[no-redef]
    config_settings: dict[str, Any] | None = None,
) -> list[str]:
    """Returns the requirements of get_requires_for_build_wheel()."""
    return [*_build.get_requires_for_build_editable(config_settings), *_cuda_requirements()]


def build_wheel(  # type: ignore[no-redef]
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """What scikit-build-core builds, also from sources that cannot be written."""
    with build_folder.writable_build_folder(config_settings) as settings:
        return _build.build_wheel(wheel_directory, settings, metadata_directory)


def _cuda_requirements() -> tuple[str, ...]:
    installed_elsewhere = os.path.isdir(os.environ.get("RMM_CUDA_PACKAGES", ""))
    return cuda_packages.requirements if cuda_packages.wants_packages() and not installed_elsewhere else ()


def build_sdist(  # type: ignore[no-redef]
    sdist_directory: str, config_settings: dict[str, Any] | None = None
) -> str:
    """Makes scikit-build-core's archive, then replaces links by files, and adds the C++ library as the folder `cpp`.

    Adds the translated Cython modules as the folder `translated`, because Cython takes a sixth of the time of an installation.
    """
    name = _build.build_sdist(sdist_directory, config_settings)
    path = Path(sdist_directory, name)
    packed = io.BytesIO(path.read_bytes())
    repository = Path("..", "..").resolve()
    with tarfile.open(fileobj=packed) as old, tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as new:
        top = old.getnames()[0].partition("/")[0]
        for member in old.getmembers():
            if member.issym():
                new.add(Path(member.name.partition("/")[2]).resolve(), member.name, filter=_without_owner)
            else:
                new.addfile(member, old.extractfile(member) if member.isfile() else None)
        if Path("..", "..", "include", "rmm", "version_config.hpp").exists():
            for part in _library_parts:
                if (repository / part).exists():
                    new.add(repository / part, f"{top}/cpp/{part}", filter=_without_owner)
        with tempfile.TemporaryDirectory(prefix="rmm-translated-") as translated:
            _translate(translated)
            new.add(translated, f"{top}/translated", filter=_without_owner)
    return name


def _translate(folder: str) -> None:
    """Writes the C++ files of all Cython modules, and what they depend on."""
    script = Path("cmake", "translate.py").resolve()
    modules = [".".join(path.with_suffix("").parts) for path in sorted(Path().glob("rmm/**/*.pyx"))]
    subprocess.run([sys.executable, script, *modules], cwd=folder, check=True, stdout=sys.stderr)
    for copy in Path(folder).rglob("*.pyx"):
        copy.unlink()
    digest = subprocess.run([sys.executable, script, "--digest"], check=True, capture_output=True, text=True).stdout
    Path(folder, "digest").write_text(digest, encoding="utf-8")


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if Path(member.name).name in ("__pycache__", "build"):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", member.mtime))
    return member
