# SPDX-License-Identifier: Apache-2.0
"""Checks types, stubs and style with mypy, pyright, stubtest and ruff."""

from __future__ import annotations

import subprocess
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

takes_long = True
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


def tools(*commands: list[object]) -> pytest.MarkDecorator:
    """A program that runs modules one after the other, in a folder where no file can hide the installed package."""
    words = [[str(word) for word in command] for command in commands]
    program = (
        f"import subprocess, sys\nfor words in {words!r}: subprocess.run([sys.executable, '-m', *words], check=True)"
    )
    return pytest.mark.program(program)


def needs(module: str) -> pytest.MarkDecorator:
    reason = f"could not import {module!r}: No module named {module!r}"
    return pytest.mark.skipif(find_spec(module) is None, reason=reason)


Done = subprocess.CompletedProcess[str]
config = ["--config-file", project / "pyproject.toml", "--cache-dir", "cache"]


@needs("mypy")
@tools(["mypy", *config, "-p", "rmm", "-p", "librmm"], ["mypy", *config, project / "tests"])
def test_types_are_right(done: Done) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="Cython tells other signatures where there is no stable ABI",
)
@needs("mypy")
@tools(
    [
        *("mypy.stubtest", "--concise", "--ignore-unused-allowlist", "--mypy-config-file", project / "pyproject.toml"),
        *("--allowlist", project / "tests" / "stubtest_allowlist.txt", *extension_modules),
    ]
)
def test_stubs_tell_what_the_modules_have(done: Done) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@needs("ruff")
@tools(["ruff", "check", "--no-cache", project], ["ruff", "format", "--no-cache", "--check", project])
def test_style_is_kept(done: Done) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


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


@needs("mypy")
@pytest.mark.program(f"""
    import pathlib, subprocess, sys
    for name, attribute in (("good.py", "asked_bytes"), ("bad.py", "no_such_attribute")):
        pathlib.Path(name).write_text({user_script!r}.format(attribute=attribute))
    mypy = [sys.executable, "-m", "mypy", "--cache-dir", "cache"]
    for options in ([], ["--strict"]):
        subprocess.run([*mypy, *options, "good.py"], check=True)
    assert subprocess.run([*mypy, "bad.py"]).returncode == 1
""")
def test_types_of_a_program_that_reads_the_report_are_right(done: Done) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"MemoryReport" has no attribute "no_such_attribute"' in done.stdout


@needs("basedpyright")
@pytest.mark.program(f"""
    import json, pathlib, subprocess, sys
    for name, attribute in (("good.py", "asked_bytes"), ("bad.py", "no_such_attribute")):
        pathlib.Path(name).write_text({user_script!r}.format(attribute=attribute))
    pyright = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    for mode in ("standard", "strict"):
        pathlib.Path("pyrightconfig.json").write_text(json.dumps(dict(typeCheckingMode=mode)))
        subprocess.run([*pyright, "good.py"], check=True)
        assert subprocess.run([*pyright, "bad.py"]).returncode == 1
""")
def test_pyright_accepts_such_a_program(done: Done) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'Cannot access attribute "no_such_attribute" for class "MemoryReport"' in done.stdout
