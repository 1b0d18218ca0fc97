# SPDX-License-Identifier: Apache-2.0
"""Checks types, stubs and style with mypy, stubtest and ruff."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

project = Path(__file__).parent.parent
extension_modules = [
    "rmm._cuda._runtime",
    "rmm.allocators._cupy",
    "rmm.pylibrmm.cuda_stream",
    "rmm.pylibrmm.cuda_stream_pool",
    "rmm.pylibrmm.device_buffer",
    "rmm.pylibrmm.helper",
    "rmm.pylibrmm.logger",
    "rmm.pylibrmm.memory_resource._adaptors",
    "rmm.pylibrmm.memory_resource._base",
    "rmm.pylibrmm.memory_resource._callbacks",
    "rmm.pylibrmm.memory_resource._capabilities",
    "rmm.pylibrmm.memory_resource._device",
    "rmm.pylibrmm.memory_resource._host",
    "rmm.pylibrmm.memory_resource._pools",
    "rmm.pylibrmm.memory_resource._registry",
    "rmm.pylibrmm.scopes",
    "rmm.pylibrmm.stream",
]


def expect_satisfied(folder: Path, module: str, *arguments: object) -> None:
    """Runs a tool in `folder`, where no file can hide the installed package."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_are_right(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    config = ("--config-file", project / "pyproject.toml", "--cache-dir", tmp_path / "cache")
    expect_satisfied(tmp_path, "mypy", *config, "-p", "rmm", "-p", "librmm")
    expect_satisfied(tmp_path, "mypy", *config, project / "tests")


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="Cython tells other signatures where there is no stable ABI",
)
def test_stubs_tell_what_the_modules_have(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    expect_satisfied(
        tmp_path,
        "mypy.stubtest",
        "--concise",
        "--ignore-unused-allowlist",
        "--mypy-config-file",
        project / "pyproject.toml",
        "--allowlist",
        project / "tests" / "stubtest_allowlist.txt",
        *extension_modules,
    )


def test_style_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    expect_satisfied(tmp_path, "ruff", "check", "--no-cache", project)
    expect_satisfied(tmp_path, "ruff", "format", "--no-cache", "--check", project)


user_script = """
import rmm

def free_bytes(size: int) -> int:
    try:
        rmm.DeviceBuffer(size=size)
    except rmm.ReportedMemoryError as error:
        holders: list[str] = [holder.tag for holder in error.report.holders]
        print(error.report.asked_bytes, error.report.pool["largest_free_bytes"], error.report.tries, holders)
        return error.report.{attribute}
    return 0
"""


def test_types_of_a_program_that_reads_the_report_are_right(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for name, attribute in (("good.py", "asked_bytes"), ("bad.py", "no_such_attribute")):
        (tmp_path / name).write_text(user_script.format(attribute=attribute))
    cache = ("--cache-dir", tmp_path / "cache")
    for options in ((), ("--strict",)):
        expect_satisfied(tmp_path, "mypy", *cache, *options, "good.py")
    with pytest.raises(AssertionError, match='"MemoryReport" has no attribute "no_such_attribute"'):
        expect_satisfied(tmp_path, "mypy", *cache, "bad.py")
