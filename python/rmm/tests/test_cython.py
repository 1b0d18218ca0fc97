# SPDX-License-Identifier: Apache-2.0
"""The declarations for Cython: compiles a module of another project against the installed package, and uses it."""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import librmm
import rmm
from rmm._build_facts import cccl_version
from rmm.pylibrmm.stream import DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream

pytest.importorskip("Cython", reason="compiles a Cython module")
pytest.importorskip("cuda.bindings", reason="compiles a Cython module that cimports it")


def cuda_include_folders() -> list[Path]:
    """Returns the include folders of CUDA, and of the C++ library that comes with CUDA; none if CUDA is not found."""
    named = [os.environ[name] for name in ("CUDAToolkit_ROOT", "CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    nvcc = shutil.which(os.environ.get("CUDACXX", "nvcc"))
    found = [Path(nvcc).resolve().parent.parent] if nvcc else []
    for root in [*map(Path, named), *found, Path("/usr/local/cuda")]:
        if (root / "include" / "cuda_runtime_api.h").is_file():
            return [root / "include", root / "include" / "cccl"]
    return []


compiler = shutil.which(os.environ.get("CXX", "c++"))
cuda_includes = cuda_include_folders()


def reason_to_skip() -> str:
    if compiler is None:
        return "needs a C++ compiler"
    return "" if cuda_includes else "needs the headers of CUDA"


def program_of_module() -> list[str]:
    """Compiles the module, and prints where it is."""
    source = Path(__file__).parent / "cython_client" / "client.pyx"
    includes = [Path(librmm.__file__).parent / "include", *cuda_includes, Path(sysconfig.get_paths()["include"])]
    libraries = [f"-Wl,-rpath,{Path(librmm.__file__).parent / 'lib'}", f"-L{Path(librmm.__file__).parent / 'lib'}"]
    if rmm.__version__.endswith("+sim"):
        libraries += ["-lcudart_sim"]
    else:
        libraries += [*(f"-L{folder.parent / 'lib64'}" for folder in cuda_includes[:1]), "-lcudart"]
    command = [str(compiler), "-std=c++17", "-O0", "-shared", "-fPIC", "-DRMM_WITHOUT_SPDLOG"]
    command += ["-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"]
    command += [f"-I{include}" for include in includes]
    program = f"""
import os, subprocess, sys
subprocess.run([sys.executable, "-m", "cython", "--cplus", "-3", {str(source)!r}, "-o", "client.cpp"], check=True)
subprocess.run({[*command, "client.cpp", "-o", "client.so", *libraries]!r}, check=True)
print(os.path.abspath("client.so"))
"""
    return ["-c", program]


@pytest.fixture(scope="module")
def client(done_for_module: subprocess.CompletedProcess[str]) -> Any:
    version = (cuda_includes[1] / "cuda" / "std" / "__cccl" / "version.h").read_text()
    found = re.search(r"#define CCCL_VERSION (\d+)", version)
    assert found is not None
    number = int(found[1])
    assert f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}" == ".".join(cccl_version.split(".")[:3]), (
        f"the package is compiled with CCCL {cccl_version}: name its headers by CUDAToolkit_ROOT"
    )
    assert done_for_module.returncode == 0, done_for_module.stderr
    spec = importlib.util.spec_from_file_location("client", done_for_module.stdout.splitlines()[-1])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_buffers_of_cpp_become_buffers_of_python(client: Any, small_pool: rmm.mr.PoolMemoryResource) -> None:
    buffer = client.buffer_of_cpp(100)
    assert isinstance(buffer, rmm.DeviceBuffer)
    assert (buffer.size, buffer.mr) == (100, small_pool)
    stream = Stream()
    other = rmm.mr.CudaMemoryResource()
    buffer = client.buffer_of_cpp(100, stream, other)
    assert (buffer.stream, buffer.mr) == (stream, other)
    assert client.buffer_of_defaults(10).mr is small_pool


def test_memory_goes_back_to_the_resource_that_allocated_it(client: Any, small_pool: rmm.mr.PoolMemoryResource) -> None:
    rmm.DeviceBuffer(size=128)  # now the pool would serve this size from its cache
    other = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    buffer = client.buffer_that_is_said_to_be_of_the_current_resource(128, other)
    assert buffer.mr is small_pool
    assert other.allocation_counts.current_bytes == 128
    del buffer
    assert other.allocation_counts.current_bytes == 0


@pytest.mark.parametrize("size", [0, 5])
def test_the_buffer_of_cpp_has_the_stream_too(client: Any, size: int, small_pool: rmm.mr.PoolMemoryResource) -> None:
    stream = Stream()
    handle = stream.__cuda_stream__()[1]
    assert client.stream_in_cpp(rmm.DeviceBuffer(size=size, stream=stream)) == handle
    assert client.stream_in_cpp(type.__call__(rmm.DeviceBuffer, size=size, stream=stream)) == handle
    assert client.stream_in_cpp(rmm.DeviceBuffer(stream=stream)) == handle


def test_bytes_are_copied_by_c_functions(client: Any) -> None:
    assert client.buffer_of_bytes(b"abc") == b"abcabcabc"


def test_a_buffer_can_be_moved_out(client: Any) -> None:
    assert client.release(rmm.DeviceBuffer(size=10)) == (10, 0)


def test_vectors(client: Any) -> None:
    assert client.uvector_round_trip(42) == 42


def test_streams(client: Any) -> None:
    assert client.stream_facts(DEFAULT_STREAM) == (0, True, False, False)
    assert client.stream_facts(LEGACY_DEFAULT_STREAM) == (1, True, True, False)
    assert client.stream_facts(PER_THREAD_DEFAULT_STREAM) == (2, False, False, True)
    assert client.value_of_new_stream()
    with pytest.raises(TypeError, match="stream argument cannot be None"):
        client.stream_facts(None)


def test_python_and_cpp_have_the_same_registry(client: Any, small_pool: rmm.mr.PoolMemoryResource) -> None:
    assert client.registered_in_cpp()


def test_exceptions_pass_through_cpp(client: Any) -> None:
    with pytest.raises(MemoryError, match="too little"):
        client.pass_through_cpp(MemoryError("too little"))
    with pytest.raises(RuntimeError, match="wrong"):
        client.pass_through_cpp(KeyError("wrong"))


def test_resources_of_other_projects(client: Any) -> None:
    adaptor = client.OwnAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(adaptor)
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    assert adaptor.count() == 1
    del adaptor
    rmm.reinitialize()
    gc.collect()
    assert buffer.tobytes() == b"abc"
    with pytest.raises(Exception, match="must not be None"):
        client.OwnAdaptor(None)


def test_old_and_new_modules_have_the_same_types(client: Any) -> None:
    assert client.same_types() == [True] * 5


def test_sizes(client: Any) -> None:
    parsed, total, share, device = client.sizes()
    assert parsed == 2048
    assert total == rmm.mr.available_device_memory()[1]
    assert 0 < share < total
    assert device == 0


def test_classes_of_clients_survive_their_objects(client: Any, small_pool: rmm.mr.PoolMemoryResource) -> None:
    makers: dict[Any, Callable[[Any], Any]] = {
        client.OwnBuffer: lambda kind: kind(size=10),
        client.OwnStream: lambda kind: kind(),
        client.OwnCudaStream: lambda kind: kind(),
        client.OwnStreamPool: lambda kind: kind(1),
        client.OwnPool: lambda kind: kind(rmm.mr.CudaMemoryResource(), 256, 256),
        client.OwnAdaptor: lambda kind: kind(small_pool),
        client.OwnTag: lambda kind: kind("a tag of a client"),
        client.OwnGraphMemory: lambda kind: kind(),
        client.OwnScope: lambda kind: kind(DEFAULT_STREAM),
        client.OwnQueue: lambda kind: kind(small_pool),
    }
    for kind, make in makers.items():
        for used in (kind, type("Derived", (kind,), {})):
            before = sys.getrefcount(used)
            for _ in range(100):
                make(used)
                with suppress(TypeError):  # GraphMemory takes what it ignores
                    used(nothing="that it takes")
            gc.collect()
            assert sys.getrefcount(used) == before, used
