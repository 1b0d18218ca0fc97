# SPDX-License-Identifier: Apache-2.0
"""The errors of an import beside an rmm that the package is not compiled for."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import rmm

import rmm_engine_rapids
from rmm_engine_rapids import _release

release = rmm_engine_rapids.rapids_release


def test_is_compiled_for_the_release_that_is_installed() -> None:
    assert rmm.__version__.startswith(tuple(release.split(".")[0]))
    assert importlib.metadata.version("rmm-cu13").startswith(f"{release}.")
    requirements = importlib.metadata.requires("rmm-engine-rapids") or []
    assert f"rmm-cu13=={release}.*" in requirements
    assert f"+rapids{release}" in importlib.metadata.version("rmm-engine-rapids")


@pytest.mark.parametrize("version", [rmm.__version__, f"{release}.03", f"{release}.00a7"])
def test_takes_its_release(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(rmm, "__version__", version)
    _release.check()


@pytest.mark.parametrize("version", ["26.06.00", "26.12.00", "27.10.00", "", "26"])
def test_refuses_other_releases(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(rmm, "__version__", version)
    with pytest.raises(ImportError) as failure:
        _release.check()
    text = str(failure.value)
    assert f"compiled for rmm of RAPIDS {release}, but rmm {version or 'of an unknown release'} is installed" in text
    assert "pip install --force-reinstall ./python/rmm_rapids" in text


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"__init__.py": "__version__ = '26.06.00'"}, "but rmm 26.06.00 is installed"),
        ({"__init__.py": "__version__ = '24.08.00'", "_build_facts.py": ""}, "pip uninstall rmm-engine"),
    ],
)
def test_refuses_before_it_loads_compiled_modules(
    run_program: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, files: dict[str, str], text: str
) -> None:
    (tmp_path / "rmm").mkdir()
    for name, content in files.items():
        (tmp_path / "rmm" / name).write_text(content, encoding="utf-8")
    done = run_program(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rmm_engine_rapids")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: ")
    assert text in done.stderr


def test_names_a_missing_rmm(run_program: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run_program("import sys; sys.modules['rmm'] = None; import rmm_engine_rapids")
    assert done.returncode == 1
    assert "No module named 'rmm'" in done.stderr or f"pip install 'rmm-cu13=={release}.*'" in done.stderr


def test_the_build_takes_the_release_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "build_backend"))
    import rapids

    monkeypatch.delenv("RMM_RAPIDS_RELEASE", raising=False)
    assert rapids.chosen_release() == release
    assert rapids.requirements(release) == [f"librmm-cu13=={release}.*", f"rmm-cu13=={release}.*"]
    monkeypatch.setenv("RMM_RAPIDS_RELEASE", "26.08")
    assert rapids.chosen_release() == "26.8"
    monkeypatch.delenv("RMM_RAPIDS_RELEASE")
    monkeypatch.setattr(rapids, "distributions", lambda **_: [])
    assert rapids.chosen_release() == rapids.releases[-1]
    del sys.modules["rapids"]
