# SPDX-License-Identifier: Apache-2.0
"""`librmm_audit.so`, `python -m rmm audit-path`, and Python resources that serve other libraries."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import librmm
import rmm
from rmm.__main__ import main
from rmm._build_facts import cuda_backend

LIBRARY = Path(librmm.__file__).parent / "lib" / "librmm_audit.so"
DRIVER = LIBRARY.parent / "cudasim" / "libcuda.so.1"
needs_library = pytest.mark.skipif(not LIBRARY.is_file(), reason="the package has no librmm_audit.so")

# librmm_audit.so and a sanitizer's runtime would both have to be loaded first.
is_sanitized = "libasan" in os.environ.get("LD_PRELOAD", "")
needs_no_sanitizer = pytest.mark.skipif(is_sanitized, reason="a sanitizer has to be loaded before all else")
needs_simulator = pytest.mark.skipif(
    cuda_backend != "sim" or not LIBRARY.is_file() or not DRIVER.is_file() or is_sanitized,
    reason="needs the simulated driver, and no sanitizer",
)

# Calls the driver through ctypes, as many Python packages do. librmm_audit.so looks for a driver, which may be missing.
PROGRAM = """
import ctypes

process = ctypes.CDLL(None)
assert process.getpid() > 0
try:
    ctypes.CDLL("libcuda.so.1")
except OSError:
    assert not hasattr(process, "cuMemAlloc_v2")
print("done")
"""


@needs_library
def test_the_command_prints_the_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit-path"]) == 0
    assert capsys.readouterr().out == f"{LIBRARY}\n"


def test_the_command_says_that_the_library_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(librmm, "__path__", [str(tmp_path)])
    assert main(["audit-path"]) == 2
    assert "RMM_BUILD_AUDIT_LIBRARY" in capsys.readouterr().err


@needs_library
@needs_no_sanitizer
@pytest.mark.program(PROGRAM, begin="", environment={"RMM_AUDIT": "deny"})
def test_a_program_without_a_driver_sees_no_difference(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_nothing_is_routed_without_the_library() -> None:
    assert rmm.mr.route_libraries() is False
    assert rmm.mr.route_libraries(False) is False
    assert rmm.mr.bytes_of_libraries() == 0


# A library that allocates from the driver: for librmm_audit.so it is the module of ctypes.
begin = f"""
import ctypes, gc, os, sys, threading
import rmm, rmm.mr

driver = ctypes.CDLL({str(DRIVER)!r})

def function(name, *types):
    found = ctypes.c_void_p()
    assert driver.cuGetProcAddress_v2(name, ctypes.byref(found), 12000, ctypes.c_uint64(0), None) == 0
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(found.value)

mem_alloc = function(b"cuMemAlloc", ctypes.c_void_p, ctypes.c_size_t)
mem_free = function(b"cuMemFree", ctypes.c_uint64)
out_of_memory = 2

def allocate(size):
    address = ctypes.c_uint64()
    status = mem_alloc(ctypes.addressof(address), size)
    return address.value if status == 0 else -status

def free(address):
    assert mem_free(address) == 0

def make(maximum="2MiB"):
    return rmm.mr.StatisticsResourceAdaptor(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", maximum))

def live(resource):
    return resource.allocation_counts.current_bytes

rmm._cuda.gpu.setDevice(0)  # makes a context
"""


def environment_of(_: pytest.Function) -> dict[str, str]:
    """Preloads programs with the library, in the mode route:current."""
    return {"LD_PRELOAD": str(LIBRARY), "RMM_AUDIT": "route:current"}


@needs_simulator
@pytest.mark.program("""
    mine = make()
    rmm.mr.set_current_device_resource(mine)
    one = allocate(4096)
    assert (live(mine), rmm.mr.bytes_of_libraries()) == (4096, 4096)
    buffer = rmm.DeviceBuffer(size=1024)
    assert live(mine) == 5120
    free(one)
    assert (live(mine), rmm.mr.bytes_of_libraries()) == (1024, 0)
    assert rmm.mr.route_libraries(False) is False
    two = allocate(4096)
    assert rmm.mr.bytes_of_libraries() == 0
    free(two)
    assert rmm.mr.route_libraries() is True
    three = allocate(4096)
    assert live(mine) == 5120
    free(three)
    print("done")
""")
def test_the_current_resource_serves_libraries(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout + done.stderr
    assert output.startswith("done\n")
    rows = [line.split() for line in output.splitlines() if " routed " in line]
    assert [row[:5] for row in rows] == [["2", "8,192", "4,096", "0", "routed"]]


@needs_simulator
@pytest.mark.program("""
    blocks = []

    def take(size, stream):
        blocks.append(size)
        return rmm.mr.CudaMemoryResource().allocate(size)

    def give_back(address, size, stream):
        blocks.remove(size)
        rmm.mr.CudaMemoryResource().deallocate(address, size)

    pool = rmm.mr.PoolMemoryResource(rmm.mr.CallbackMemoryResource(take, give_back), "1MiB")
    rmm.mr.set_current_device_resource(pool)
    one, two = allocate(4096), allocate(4096)
    rmm.mr.set_current_device_resource(make())
    del pool
    gc.collect()
    free(one)
    assert len(blocks) == 1, "the pool is there"
    thread = threading.Thread(target=free, args=(two,))
    thread.start()
    thread.join()
    gc.collect()
    assert not blocks, "and ends with its last block"
""")
def test_a_block_keeps_its_resource(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@needs_simulator
@pytest.mark.program("""
    def fail(size, stream):
        raise ValueError("not today")

    rmm.mr.set_current_device_resource(make())
    assert allocate(4 << 20) == -out_of_memory
    free(allocate(4096))
    rmm.mr.set_current_device_resource(rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), 1000))
    assert allocate(4096) == -out_of_memory
    rmm.mr.set_current_device_resource(rmm.mr.CallbackMemoryResource(fail, lambda *arguments: None))
    assert allocate(4096) == -out_of_memory
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
    free(allocate(4096))
    assert rmm.mr.bytes_of_libraries() == 0
""")
def test_a_resource_that_fails_is_an_error_of_the_driver(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@needs_simulator
@pytest.mark.program("""
    calls = 0

    def take(size, stream):
        global calls
        calls += 1
        return allocate(size)

    upstream = rmm.mr.CallbackMemoryResource(take, lambda address, size, stream: free(address))
    for resource in (upstream, rmm.mr.PoolMemoryResource(upstream, "1MiB")):
        rmm.mr.set_current_device_resource(resource)
        before = calls
        buffer = rmm.DeviceBuffer(size=8 << 20)
        assert calls == before + 1
        assert rmm.mr.bytes_of_libraries() == 0
        one = allocate(32 << 20)
        assert calls == before + 2
        assert rmm.mr.bytes_of_libraries() == 32 << 20
        free(one)
        del buffer
""")
def test_a_resource_that_allocates_by_a_library_gets_memory_of_the_driver(
    done: subprocess.CompletedProcess[str],
) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@needs_simulator
@pytest.mark.program("""
    rmm.mr.set_current_device_resource(make())
    allocate(4096)
    child = os.fork()
    if child == 0:
        assert allocate(4096) < 0 or rmm.mr.bytes_of_libraries() == 4096
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
""")
def test_blocks_that_are_never_freed_do_no_harm(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@needs_simulator
@pytest.mark.program("free(allocate(4096))", environment={"RMM_AUDIT": "route:pool,initial=1MiB"})
def test_a_route_to_a_configuration_finds_its_library(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cannot route" not in done.stdout + done.stderr
    assert " routed " in done.stdout + done.stderr
