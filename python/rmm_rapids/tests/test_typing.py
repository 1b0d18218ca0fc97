# SPDX-License-Identifier: Apache-2.0
"""Checks types, stubs and style with mypy, stubtest and ruff."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

project = Path(__file__).parent.parent


def expect_satisfied(folder: Path, module: str, *arguments: object) -> None:
    """Runs a tool in `folder`, where no file can hide the installed package."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_are_right(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    config = ("--config-file", project / "pyproject.toml", "--cache-dir", tmp_path / "cache")
    expect_satisfied(tmp_path, "mypy", *config, "-p", "rmm_engine_rapids")
    expect_satisfied(tmp_path, "mypy", *config, project / "tests")


def test_stubs_tell_what_the_module_has(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    config = ("--mypy-config-file", project / "pyproject.toml")
    expected = ("--ignore-unused-allowlist", "--allowlist", project / "tests" / "stubtest_allowlist.txt")
    expect_satisfied(tmp_path, "mypy.stubtest", "--concise", *config, *expected, "rmm_engine_rapids._engine")


def test_style_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    expect_satisfied(tmp_path, "ruff", "check", "--no-cache", project)
    expect_satisfied(tmp_path, "ruff", "format", "--no-cache", "--check", project)
