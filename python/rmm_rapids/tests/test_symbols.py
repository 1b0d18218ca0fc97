# SPDX-License-Identifier: Apache-2.0
"""The symbols that the package exports: RAPIDS' libraries in the same process have classes with the same names."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import rmm_engine_rapids

repository = Path(__file__).parents[3]
package = Path(rmm_engine_rapids.__file__).parent


@pytest.fixture(scope="module")
def check_symbols() -> ModuleType:
    path = repository / "c" / "tests" / "check_symbols.py"
    spec = importlib.util.spec_from_file_location("check_symbols", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def read(library: Path, what: str) -> str:
    return subprocess.run(["readelf", "--wide", what, str(library)], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", ["_engine.abi3.so", "librmm_engine_rapids.so"])
def test_nothing_but_the_interface_is_visible(check_symbols: ModuleType, name: str) -> None:
    symbols = check_symbols.dynamic_symbols(read(package / name, "--dyn-syms"))
    shown = {symbol.name for symbol in symbols if symbol.is_defined}
    if name == "_engine.abi3.so":
        assert shown == {"PyInit__engine"}
    else:
        header = (package / "include" / "rmm" / "c" / "rmm.h").read_text(encoding="utf-8")
        nodes = {check_symbols.VERSION_NODE, "RMM_ENGINE_RAPIDS_NVTX"}
        nvtx = {"InitializeInjectionNvtx2"}  # what NVTX calls in a tool
        assert shown - nodes == check_symbols.functions_of(header) | nvtx
    assert [symbol.name for symbol in symbols if symbol.binding == "UNIQUE"] == []


def test_the_engine_needs_nothing_of_rapids(check_symbols: ModuleType) -> None:
    library = package / "librmm_engine_rapids.so"
    needed = [
        symbol.name for symbol in check_symbols.dynamic_symbols(read(library, "--dyn-syms")) if not symbol.is_defined
    ]
    assert [name for name in needed if "rmm" in name or "rapids" in name] == []
    assert "librmm.so" not in read(library, "--dynamic")


def test_the_module_takes_exceptions_from_rapids(check_symbols: ModuleType) -> None:
    """In 26.8 it also imports streams. It must not import the registry: its inline functions would create a second one."""
    symbols = check_symbols.dynamic_symbols(read(package / "_engine.abi3.so", "--dyn-syms"))
    needed = [each.name for each in symbols if not each.is_defined and "rmm" in each.name and "rmm_c_" not in each.name]
    assert needed
    expected = ("bad_alloc", "out_of_memory", "cuda_stream_view")
    assert [name for name in needed if not any(each in name for each in expected)] == []


@pytest.mark.parametrize("name", ["_engine.abi3.so", "librmm_engine_rapids.so"])
def test_stays_loaded(name: str) -> None:
    assert "NODELETE" in read(package / name, "--dynamic")


def test_does_not_take_the_place_of_another_c_library() -> None:
    assert "[librmm_engine_rapids.so]" in read(package / "librmm_engine_rapids.so", "--dynamic")
