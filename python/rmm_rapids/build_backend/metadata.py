# SPDX-License-Identifier: Apache-2.0
"""Provides the version of the package, and its dependency on a release of RAPIDS."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import rapids

__all__ = ["dynamic_metadata", "get_requires_for_dynamic_metadata"]


def get_requires_for_dynamic_metadata(settings: Mapping[str, object] | None = None) -> list[str]:
    """Returns RAPIDS' packages: the installed one decides the release in the metadata."""
    return rapids.requirements(rapids.chosen_release())


def dynamic_metadata(field: str, settings: Mapping[str, object] | None = None) -> str | list[str]:
    """Returns a field of the metadata. The version includes the release of RAPIDS: 24.08.00+rapids26.10."""
    release = rapids.release_of(rapids.installed_version())
    if field == "dependencies":
        return [f"rmm-cu13=={release}.*"]
    if field == "version":
        engine = Path("rmm_engine_rapids", "VERSION").read_text(encoding="utf-8").strip()
        simulated = ".sim" if os.environ.get("RMM_CUDA_BACKEND") == "sim" else ""
        return f"{engine}+rapids{release}{simulated}"
    raise ValueError(f"{field} is not dynamic")
