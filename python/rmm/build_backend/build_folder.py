# SPDX-License-Identifier: Apache-2.0
"""The folder of a build."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def writable_build_folder(config_settings: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The settings of a build. Where it cannot write beside the sources, it gets a folder for the time of the build."""
    settings = dict(config_settings or {})
    build = Path("build")
    if (
        "build-dir" in settings
        or "SKBUILD_BUILD_DIR" in os.environ
        or os.access(build if build.exists() else ".", os.W_OK)
    ):
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="rmm-build-") as folder:
        yield {**settings, "build-dir": folder}
