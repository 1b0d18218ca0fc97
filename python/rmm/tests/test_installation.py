# SPDX-License-Identifier: Apache-2.0
"""The name of the distribution, and other distributions with files in the same folders."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rmm
from rmm import _installation


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Makes a folder with the packages, as links to their files."""
    for name in ("rmm", "librmm"):
        folder = Path(rmm.__file__).parent.parent / name
        shutil.copytree(folder, tmp_path / name, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def execute(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with the packages of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, check=False, capture_output=True, text=True, timeout=300
    )


@pytest.mark.program("import importlib.metadata, json; print(json.dumps(importlib.metadata.packages_distributions()))")
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


def test_an_unmixed_installation_causes_no_warning(mixed: Path) -> None:
    done = execute(mixed, "-W", "error", "-c", "import rmm; print(rmm.__file__)")
    assert (done.stdout, done.stderr) == (f"{mixed / 'rmm' / '__init__.py'}\n", "")
    done = execute(mixed, "-m", "rmm", "info")
    assert done.returncode == 0
    assert "mixed" not in done.stdout


def test_a_mixed_installation_is_warned_of_and_shown(mixed: Path) -> None:
    for name in ("rmm_cu13-26.10.0.dist-info", "librmm_cu13-26.10.0.dist-info"):
        (mixed / name).mkdir()
    advice = (
        "librmm-cu13 26.10.0, rmm-cu13 26.10.0 and rmm-engine are installed into the same folders, rmm and librmm, and have "
        "replaced files of each other: run `pip uninstall librmm-cu13 rmm-cu13 rmm-engine`, then install one of them again."
    )
    done = execute(mixed, "-c", "import rmm; print(rmm.DeviceBuffer.to_device(b'abc').tobytes())")
    assert done.stdout == "b'abc'\n"
    assert done.stderr.count(advice) == 1
    assert "UserWarning" in done.stderr
    done = execute(mixed, "-W", "ignore", "-m", "rmm", "info")
    assert done.stderr == ""
    assert f"\nmixed installation: {advice}\n" in done.stdout


@pytest.mark.parametrize("file", ["pylibrmm/utils.abi3.so", "pylibrmm/stream.cpython-311-x86_64-linux-gnu.so"])
def test_a_module_that_another_hides_is_an_import_error(mixed: Path, file: str) -> None:
    (mixed / "rmm" / file).write_bytes(b"")
    (mixed / "rmm_cu13-26.10.0.dist-info").mkdir()
    done = execute(mixed, "-c", "import rmm")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: rmm-cu13 26.10.0 and rmm-engine are installed into the same folders")
    module = file.partition(".")[0].replace("/", ".")
    assert last.endswith(f"It cannot work as it is: Python finds two files for rmm.{module}.")


def test_no_module_of_the_package_hides_another() -> None:
    assert _installation.hidden_modules(str(Path(rmm.__file__).parent)) == []


def test_a_distribution_that_replaced_the_first_file_causes_only_a_warning(mixed: Path) -> None:
    """It may work, because all modules of the other distribution are there."""
    (mixed / "rmm_cu13-26.10.0.dist-info").mkdir()
    (mixed / "rmm" / "allocators" / "numba.abi3.so").write_bytes(b"")
    (mixed / "rmm" / "__init__.py").unlink()
    (mixed / "rmm" / "__init__.py").write_text("import rmm._cuda\n")
    done = execute(mixed, "-c", "from rmm import _installation as i; print(i.hidden_modules(i._folder))")
    assert (done.returncode, done.stdout) == (0, "['rmm.allocators.numba']\n")
    assert "UserWarning: rmm-cu13 26.10.0 and rmm-engine are installed" in done.stderr
