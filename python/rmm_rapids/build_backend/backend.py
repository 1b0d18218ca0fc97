# SPDX-License-Identifier: Apache-2.0
"""The build backend: scikit-build-core, with the installed release of RAPIDS as a requirement of the build."""

from __future__ import annotations

import os
from typing import Any

import build_folder
import cuda_packages
import rapids
from scikit_build_core import build as _build
from scikit_build_core.build import *  # noqa: F403


def get_requires_for_build_wheel(
    config_settings: dict[str, Any] | None = None,
) -> list[str]:
    """Returns the requirements: scikit-build-core's, RAPIDS' packages, and NVIDIA's if the machine has no CUDA toolkit."""
    return [*_build.get_requires_for_build_wheel(config_settings), *_requirements()]


def get_requires_for_build_editable(
    config_settings: dict[str, Any] | None = None,
) -> list[str]:
    """Returns the requirements of get_requires_for_build_wheel()."""
    return [*_build.get_requires_for_build_editable(config_settings), *_requirements()]


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """What scikit-build-core builds, also from sources that cannot be written."""
    with build_folder.writable_build_folder(config_settings) as settings:
        return _build.build_wheel(wheel_directory, settings, metadata_directory)


def _requirements() -> list[str]:
    unpacked = os.path.isdir(os.environ.get("RMM_CUDA_PACKAGES", ""))
    cuda = cuda_packages.requirements if cuda_packages.wants_packages() and not unpacked else ()
    return [*rapids.requirements(rapids.chosen_release()), *cuda]


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Raises an error: the C++ library is outside of this folder, so a source distribution would not be complete."""
    raise SystemExit("rmm-engine-rapids has no source distribution: build a wheel in a clone of the repository")
