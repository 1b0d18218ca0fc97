# SPDX-License-Identifier: Apache-2.0
"""The name of the distribution, and other distributions with files in the same folders."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import rmm
from rmm import _installation

# Makes links to the packages' files in the current folder, where Python looks first.
begin = f"""
    import os, shutil, sys
    from pathlib import Path

    installed = Path({str(Path(rmm.__file__).parent.parent)!r})
    for name in ("rmm", "librmm"):
        shutil.copytree(installed / name, name, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"))
"""


def environment_of(_: pytest.Function) -> dict[str, str]:
    return {"PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.program(
    "import importlib.metadata, json; print(json.dumps(importlib.metadata.packages_distributions()))",
    begin="",
)
def test_the_distribution_has_a_name_of_its_own(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    owners = json.loads(done.stdout)
    assert (owners["rmm"], owners["librmm"]) == (["rmm-engine"], ["rmm-engine"])
    as_numbers = [int(part) for part in rmm.__version__.partition("+")[0].split(".")]
    version, _, variant = importlib.metadata.version("rmm-engine").partition("+")
    assert [int(part) for part in version.split(".")] == as_numbers
    assert variant == rmm.__version__.partition("+")[2]


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("rmm-24.8.3.dist-info", [("rmm", "24.8.3")]),
        ("rmm_cu12-25.10.0.dist-info", [("rmm-cu12", "25.10.0")]),
        ("rmm_cu13-26.10.0.dist-info", [("rmm-cu13", "26.10.0")]),
        ("librmm-25.2.0.dist-info", [("librmm", "25.2.0")]),
        ("librmm_cu13-26.10.0.dist-info", [("librmm-cu13", "26.10.0")]),
        ("rmm-0.19.0-py3.11.egg-info", [("rmm", "0.19.0")]),
        ("rmm_engine-24.8.0+sim.dist-info", []),
        ("rmm", []),
        ("rmm_cu13", []),
        ("rmm_tools-1.0.dist-info", []),
        ("rmm_custom-1.0.dist-info", []),
        ("rmmlib-1.0.dist-info", []),
        ("numpy-2.4.0.dist-info", []),
    ],
)
def test_only_distributions_with_the_same_folders_are_found(
    tmp_path: Path, entry: str, found: list[tuple[str, str]]
) -> None:
    (tmp_path / entry).mkdir()
    assert _installation.other_distributions(str(tmp_path)) == found


def test_a_folder_that_cannot_be_listed_has_none(tmp_path: Path) -> None:
    assert _installation.other_distributions(str(tmp_path / "archive.zip")) == []


@pytest.mark.program("import rmm; print(rmm.__file__)", options=["-W", "error"])
def test_an_unmixed_installation_causes_no_warning(
    done: subprocess.CompletedProcess[str], folder_of_program: Path
) -> None:
    assert (done.stdout, done.stderr) == (f"{folder_of_program / 'rmm' / '__init__.py'}\n", "")


@pytest.mark.program('os.execv(sys.executable, [sys.executable, "-m", "rmm", "info"])')
def test_an_unmixed_installation_is_not_shown_as_mixed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rmm ")
    assert "mixed" not in done.stdout


mix = """
for name in ("rmm_cu13-26.10.0.dist-info", "librmm_cu13-26.10.0.dist-info"):
    os.mkdir(name)
"""
advice = (
    "librmm-cu13 26.10.0, rmm-cu13 26.10.0 and rmm-engine are installed into the same folders, rmm and librmm, and have "
    "replaced files of each other: run `pip uninstall librmm-cu13 rmm-cu13 rmm-engine`, then install one of them again."
)


@pytest.mark.program(f"{mix}import rmm; print(rmm.DeviceBuffer.to_device(b'abc').tobytes())", options=[])
def test_a_mixed_installation_is_warned_of(done: subprocess.CompletedProcess[str]) -> None:
    assert done.stdout == "b'abc'\n"
    assert done.stderr.count(advice) == 1
    assert "UserWarning" in done.stderr


@pytest.mark.program(f'{mix}os.execv(sys.executable, [sys.executable, "-W", "ignore", "-m", "rmm", "info"])')
def test_a_mixed_installation_is_shown(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    assert f"\nmixed installation: {advice}\n" in done.stdout


def hiding(file: str) -> Any:
    """A parameter with a program that makes a file, which hides a module, and imports the package."""
    text = f"""
        Path("rmm", {file!r}).touch()
        os.mkdir("rmm_cu13-26.10.0.dist-info")
        import rmm
    """
    return pytest.param(file, marks=pytest.mark.program(text, options=[]))


@pytest.mark.parametrize(
    "file", [hiding("pylibrmm/utils.abi3.so"), hiding("pylibrmm/stream.cpython-311-x86_64-linux-gnu.so")]
)
def test_a_module_that_another_hides_is_an_import_error(file: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: rmm-cu13 26.10.0 and rmm-engine are installed into the same folders")
    module = file.partition(".")[0].replace("/", ".")
    assert last.endswith(f"It cannot work as it is: Python finds two files for rmm.{module}.")


def test_no_module_of_the_package_hides_another() -> None:
    assert _installation.hidden_modules(str(Path(rmm.__file__).parent)) == []


@pytest.mark.program(
    """
    os.mkdir("rmm_cu13-26.10.0.dist-info")
    Path("rmm", "allocators", "numba.abi3.so").touch()
    Path("rmm", "__init__.py").unlink()
    Path("rmm", "__init__.py").write_text("import rmm._cuda\\n")
    from rmm import _installation as i
    print(i.hidden_modules(i._folder))
    """,
    options=[],
)
def test_a_distribution_that_replaced_the_first_file_causes_only_a_warning(
    done: subprocess.CompletedProcess[str],
) -> None:
    """It may work, because all modules of the other distribution are there."""
    assert (done.returncode, done.stdout) == (0, "['rmm.allocators.numba']\n")
    assert "UserWarning: rmm-cu13 26.10.0 and rmm-engine are installed" in done.stderr
