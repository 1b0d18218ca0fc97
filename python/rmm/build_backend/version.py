# SPDX-License-Identifier: Apache-2.0
"""Provides the version of the package: that of the repository, with `+sim` for the simulated CUDA runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["dynamic_metadata"]


def dynamic_metadata(field: str, settings: Mapping[str, object]) -> str:
    if field != "version" or settings:
        raise ValueError(f"only the version is dynamic, and nothing is to be set: {field}, {dict(settings)}")
    version = Path("rmm", "VERSION").read_text(encoding="utf-8").strip()
    return version + "+sim" if os.environ.get("RMM_CUDA_BACKEND") == "sim" else version
