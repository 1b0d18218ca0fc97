# SPDX-License-Identifier: Apache-2.0
"""The engine as C++ libraries of RAPIDS see it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

import rmm_engine_rapids

project = Path(__file__).parents[1]
MIB = 1 << 20


def compile_file(source: Path, output: Path, *options: str) -> None:
    """Compiles with the documented command for users."""
    program = project / "benchmarks" / "compile_beside_rapids.py"
    warnings = ("-Wall", "-Wextra", "-Werror")
    subprocess.run([sys.executable, program, source, output, "-O1", *warnings, *options], check=True)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Compiles library_beside_rapids.cpp and loads it as Python loads modules."""
    built = tmp_path_factory.mktemp("library") / "library_beside_rapids.so"
    source = Path(__file__).with_name("library_beside_rapids.cpp")
    compile_file(source, built, "-shared", "-fPIC", "-Wl,--no-undefined")
    loaded = ctypes.CDLL(str(built))
    loaded.allocate_from_registry.restype = ctypes.c_void_p
    loaded.allocate_from_registry.argtypes = (ctypes.c_int, ctypes.c_size_t)
    loaded.deallocate_to_registry.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    loaded.enable_in_registry.argtypes = (ctypes.c_int, ctypes.c_char_p)
    loaded.enable_in_registry.restype = ctypes.c_bool
    return loaded


def test_resource_for_cpp(library: ctypes.CDLL) -> None:
    assert library.check_resource() == 0


def test_python_enables_it_for_cpp(library: ctypes.CDLL) -> None:
    resource = rmm_engine_rapids.enable("pool,initial=16MiB")
    block = library.allocate_from_registry(0, MIB)
    assert block
    figures = resource.figures()
    assert figures is not None
    assert (figures.live_blocks, figures.live_bytes) == (1, MIB)
    library.deallocate_to_registry(0, block, MIB)
    figures = resource.figures()
    assert figures is not None
    assert figures.live_blocks == 0


def test_cpp_enables_it_for_cpp(library: ctypes.CDLL) -> None:
    assert library.enable_in_registry(0, b"elastic,max=64MiB")
    block = library.allocate_from_registry(0, MIB)
    assert block
    library.deallocate_to_registry(0, block, MIB)


def test_the_benchmark_compares_what_there_is(tmp_path: Path) -> None:
    compile_file(project / "benchmarks" / "rapids_bench.cpp", tmp_path / "rapids_bench")
    done = subprocess.run([tmp_path / "rapids_bench", "1", "2000"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "workload,resource,median_ns,least_ns,largest_ns,device_mib"
    assert len([line for line in lines if ",engine " in line]) == 15
