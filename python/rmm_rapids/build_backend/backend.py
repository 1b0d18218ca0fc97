# SPDX-License-Identifier: Apache-2.0
"""scikit-build-core, with the packages of RAPIDS that the environment has as requirements of the build."""

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
    """What scikit-build-core requires, RAPIDS' packages, and NVIDIA's where the machine has no CUDA toolkit."""
    return [*_build.get_requires_for_build_wheel(config_settings), *_requirements()]


def get_requires_for_build_editable(
    config_settings: dict[str, Any] | None = None,
) -> list[str]:
    """The same for editable installations."""
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
    """Refuses: the C++ library lies outside of this folder."""
    raise SystemExit("rmm-engine-rapids has no source distribution: build a wheel in a clone of the repository")
