# SPDX-License-Identifier: Apache-2.0
"""The texts of errors: a missing device, a failed first block, exceptions of Python functions, log files, and source paths."""

from __future__ import annotations

import gc
import pickle
import re
import subprocess
import traceback
import weakref
from pathlib import Path
from typing import Any

import pytest

import librmm
import rmm
import rmm.mr
from rmm._build_facts import cuda_backend

is_simulated = cuda_backend == "sim"
MIB = 1 << 20


# --- no device


def program_of(test: pytest.Function) -> list[str]:
    program = f"""
import rmm
cuda = rmm.mr.CudaMemoryResource()
try:
    {test.callspec.params["step"]}
except (MemoryError, RuntimeError) as error:
    print(error)
"""
    return ["-c", program]


@pytest.mark.skipif(not is_simulated, reason="needs a machine without devices, which the simulator can be")
@pytest.mark.parametrize(
    "step",
    [
        "rmm.mr.PoolMemoryResource(cuda, '1MiB')",
        "rmm.mr.PoolMemoryResource(cuda)",
        "rmm.mr.PoolMemoryResource(cuda, 0).allocate(100)",
        "rmm.DeviceBuffer(size=100, mr=rmm.mr.PoolMemoryResource(cuda, 0))",
        "rmm.mr.PoolMemoryResource(cuda, 0).reserve(1000)",
        "rmm.mr.CachedMemoryResource(cuda, '1MiB')",
        "rmm.mr.ArenaMemoryResource(cuda, '8MiB')",
        "rmm.mr.FixedSizeMemoryResource(cuda).allocate(100)",
        "rmm.mr.BinningMemoryResource(cuda, 8, 9).allocate(100)",
        "rmm.mr.ElasticPoolMemoryResource('1MiB')",
        "rmm.mr.CudaAsyncMemoryResource('1MiB')",
        "rmm.mr.ConfiguredMemoryResource('pool,initial=1MiB')",
        "cuda.allocate(100)",
    ],
)
@pytest.mark.program(environment={"CUDASIM_DEVICES": "0", "CUDASIM_QUIET": "1"})
def test_a_missing_device_is_named(step: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "cudaErrorNoDevice no CUDA-capable device is detected" in text
    assert "Maximum pool size exceeded" not in text
    assert "first block" not in text


@pytest.mark.skipif(not is_simulated, reason="needs a machine with an old driver, which the simulator can be")
@pytest.mark.program(
    """
    import os, rmm
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 0)
    try:
        pool.allocate(100)
    except MemoryError as error:
        print(error)
    """,
    environment={"CUDASIM_FAULT": "*:1:cudaErrorInsufficientDriver:1000000", "CUDASIM_QUIET": "1"},
)
def test_a_driver_that_is_too_old_is_named(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "No CUDA device can be used (failed to allocate 256 bytes): cudaErrorInsufficientDriver" in text
    assert "Maximum pool size exceeded" not in text


# --- the first block


def test_a_first_block_refused_by_the_device_is_not_called_a_full_pool(cuda: rmm.mr.CudaMemoryResource) -> None:
    size = rmm.mr.available_device_memory()[1] // 256 * 512
    for make in (
        lambda: rmm.mr.PoolMemoryResource(cuda, size),
        lambda: rmm.mr.ElasticPoolMemoryResource(size),
        lambda: rmm.mr.CachedMemoryResource(cuda, size),
    ):
        with pytest.raises(
            rmm.ReportedMemoryError, match=f"The device refused the first block of {size} bytes"
        ) as caught:
            make()
        assert re.search(r", with [0-9.]+ GiB of [0-9.]+ GiB free on the device", str(caught.value))
        assert "Maximum pool size exceeded" not in str(caught.value)
        assert caught.value.report.asked_bytes == size


def test_a_first_block_refused_by_upstream_is_not_called_a_full_pool(cuda: rmm.mr.CudaMemoryResource) -> None:
    limited = rmm.mr.LimitingResourceAdaptor(cuda, "1GiB")
    assert limited.get_allocation_limit() == 1 << 30
    with pytest.raises(rmm.ReportedMemoryError, match=r"Upstream refused the first block .*Exceeded memory limit"):
        rmm.mr.PoolMemoryResource(limited, "2GiB")


def test_a_full_pool_says_that_it_is_full(small_pool: rmm.mr.PoolMemoryResource) -> None:
    with pytest.raises(rmm.ReportedMemoryError, match=r"Maximum pool size exceeded .*: the pool holds ") as caught:
        rmm.DeviceBuffer(size=1 << 24)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("size", ["1MB", "1000000", "0.9537MiB"])
def test_sizes_of_pools_as_text_are_rounded_up(cuda: rmm.mr.CudaMemoryResource, size: str) -> None:
    assert rmm.mr.PoolMemoryResource(cuda, size).pool_size() == 1000192
    assert rmm.mr.PoolMemoryResource(cuda, size, size).pool_size() == 1000192
    assert rmm.mr.CachedMemoryResource(cuda, size, size).pool_size() == 1000192
    assert rmm.mr.PinnedPoolMemoryResource(size, size).pool_size() == 1000192
    assert rmm.mr.ElasticPoolMemoryResource(size, size).pool_size() >= 1000192
    with pytest.raises(RuntimeError, match="multiple of 256"):
        rmm.mr.PoolMemoryResource(cuda, 1_000_000)
    rmm.reinitialize(pool_allocator=True, initial_pool_size=size, maximum_pool_size=size)
    pool = rmm.mr.get_current_device_resource()
    assert isinstance(pool, rmm.mr.PoolMemoryResource)
    assert pool.pool_size() == 1000192


# --- the class of the error


def test_an_error_without_a_pool_has_no_report(cuda: rmm.mr.CudaMemoryResource) -> None:
    for allocate in (lambda: cuda.allocate(1 << 60), lambda: rmm.DeviceBuffer(size=1 << 60, mr=cuda)):
        with pytest.raises(MemoryError) as caught:
            allocate()
        assert type(caught.value) is MemoryError
        assert not hasattr(caught.value, "report")


def test_the_error_can_be_sent_to_other_processes(small_pool: rmm.mr.PoolMemoryResource) -> None:
    with pytest.raises(rmm.ReportedMemoryError) as caught:
        rmm.DeviceBuffer(size=1 << 24)
    sent = pickle.loads(pickle.dumps(caught.value))
    assert type(sent) is rmm.ReportedMemoryError
    assert traceback.format_exception_only(sent)[0].startswith(
        "rmm.ReportedMemoryError: std::bad_alloc: out_of_memory: "
    )
    assert str(sent) == str(caught.value)
    assert sent.report == caught.value.report
    assert sent.report.asked_bytes == 1 << 24


# --- exceptions of functions that C++ calls


class OwnError(Exception):
    pass


class OwnMemoryError(MemoryError):
    pass


class OwnRuntimeError(RuntimeError):
    pass


def raising(error: BaseException) -> rmm.mr.CallbackMemoryResource:
    def allocate_badly(nbytes: int, stream: object) -> int:
        raise error

    return rmm.mr.CallbackMemoryResource(allocate_badly, lambda *args: None)


def functions_of(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("layer", [lambda mr: mr, rmm.mr.StatisticsResourceAdaptor, rmm.mr.TrackingResourceAdaptor])
@pytest.mark.parametrize("error", [OwnMemoryError("mine"), OwnRuntimeError("mine"), MemoryError("mine")])
def test_memory_errors_and_runtime_errors_of_allocate_arrive_themselves(error: Exception, layer: Any) -> None:
    resource = layer(raising(error))
    for allocate in (lambda: resource.allocate(100), lambda: rmm.DeviceBuffer(size=100, mr=resource)):
        with pytest.raises(type(error), match=r"^mine$") as caught:
            allocate()
        assert caught.value is error
        assert "allocate_badly" in functions_of(caught.value)


@pytest.mark.parametrize("error", [OwnError("mine"), KeyError("mine"), KeyboardInterrupt("mine"), SystemExit("mine")])
def test_other_exceptions_of_allocate_are_the_cause(error: BaseException) -> None:
    resource = raising(error)
    for allocate in (lambda: resource.allocate(100), lambda: rmm.DeviceBuffer(size=100, mr=resource)):
        with pytest.raises(RuntimeError, match="mine") as caught:
            allocate()
        assert type(caught.value) is RuntimeError
        assert caught.value.__cause__ is error
        assert "allocate_badly" in functions_of(error)


def test_the_whole_text_of_an_exception_arrives() -> None:
    text = "before\0after, \N{SNOWMAN} and \udc80"
    with pytest.raises(RuntimeError) as caught:
        raising(OwnError(text)).allocate(100)
    assert str(caught.value) == text


def test_an_exception_that_cannot_be_printed_arrives() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise ValueError

    with pytest.raises(RuntimeError, match="an exception that cannot be printed") as caught:
        raising(Unprintable()).allocate(100)
    assert type(caught.value.__cause__) is Unprintable


@pytest.mark.parametrize("error", [OwnError("mine"), OwnMemoryError("mine"), OwnRuntimeError("mine")])
def test_an_exception_of_allocate_below_a_pool_is_the_cause(error: Exception) -> None:
    for make in (
        lambda: rmm.mr.PoolMemoryResource(raising(error), 0),
        lambda: rmm.mr.PoolMemoryResource(rmm.mr.PoolMemoryResource(raising(error), 0), 0),
        lambda: rmm.mr.CachedMemoryResource(raising(error)),
    ):
        pool = make()
        for allocate in (lambda pool=pool: pool.allocate(100), lambda pool=pool: rmm.DeviceBuffer(size=100, mr=pool)):
            with pytest.raises(rmm.ReportedMemoryError, match=r"Maximum pool size exceeded .*mine") as caught:
                allocate()
            assert caught.value.__cause__ is error
            assert "allocate_badly" in functions_of(error)
    with pytest.raises(rmm.ReportedMemoryError, match=r"refused the first block .*mine") as caught:
        rmm.mr.PoolMemoryResource(raising(error), "1MiB")
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("is_of_the_pool", [False, True])
def test_exceptions_of_failure_callbacks_arrive(cuda: rmm.mr.CudaMemoryResource, is_of_the_pool: bool) -> None:
    def resource_with(error: Exception) -> rmm.mr.DeviceMemoryResource:
        def give_up_badly(nbytes: int) -> bool:
            raise error

        pool = rmm.mr.PoolMemoryResource(cuda, "1MiB", "1MiB")
        if not is_of_the_pool:
            return rmm.mr.FailureCallbackResourceAdaptor(pool, give_up_badly)
        pool.set_failure_callback(give_up_badly)
        return pool

    for error in (OwnMemoryError("mine"), OwnRuntimeError("mine")):
        with pytest.raises(type(error)) as caught:
            resource_with(error).allocate(2 * MIB)
        assert caught.value is error
        assert "give_up_badly" in functions_of(error)
    with pytest.raises(RuntimeError, match="mine") as other:
        resource_with(OwnError("mine")).allocate(2 * MIB)
    assert type(other.value.__cause__) is OwnError
    assert "give_up_badly" in functions_of(other.value.__cause__)


def test_an_exception_before_a_successful_retry_is_not_kept(cuda: rmm.mr.CudaMemoryResource) -> None:
    errors: list[weakref.ref[OwnError]] = []

    def allocate(nbytes: int, stream: object) -> int:
        if nbytes > MIB:  # after the exception, the pool asks for less
            error = OwnError("too much")
            errors.append(weakref.ref(error))
            raise error
        return cuda.allocate(nbytes)

    resource = rmm.mr.CallbackMemoryResource(allocate, lambda ptr, nbytes, stream: cuda.deallocate(ptr, nbytes))
    pool = rmm.mr.PoolMemoryResource(resource, MIB)
    buffers = [rmm.DeviceBuffer(size=MIB, mr=pool), rmm.DeviceBuffer(size=MIB // 2, mr=pool)]
    buffers += [rmm.DeviceBuffer(size=MIB // 4, mr=pool) for _ in range(8)]
    assert len(errors) > 0
    gc.collect()
    assert [error() for error in errors] == [None] * len(errors)


# --- logs


@pytest.mark.parametrize("adaptor", [rmm.mr.LoggingResourceAdaptor, rmm.mr.TraceResourceAdaptor])
def test_a_name_with_a_null_character_is_refused(tmp_path: Path, adaptor: Any) -> None:
    with pytest.raises(ValueError, match="null character"):
        adaptor(rmm.mr.CudaMemoryResource(), str(tmp_path / "a\0b"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("begin", [rmm.enable_logging, lambda name: rmm.reinitialize(logging=True, log_file_name=name)])
def test_a_log_that_cannot_be_written_is_named(tmp_path: Path, begin: Any) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot open for writing: Not a directory") as caught:
        begin(str(tmp_path / "file" / "log.csv"))
    assert type(caught.value) is rmm.LogFileError
    assert caught.value.filename == str(tmp_path / "file" / "log.dev0.csv")
    assert caught.value.errno == 20
    assert isinstance(caught.value, RuntimeError)  # the class that older releases raised
    sent = pickle.loads(pickle.dumps(caught.value))
    assert (type(sent), sent.filename, str(sent)) == (rmm.LogFileError, caught.value.filename, str(caught.value))


# --- where the code is


def test_libraries_contain_no_path_of_the_build_machine() -> None:
    libraries = [
        file
        for package in (*rmm.__path__, *librmm.__path__)
        for file in Path(package).rglob("*")
        if file.suffix == ".so" or file.parent.name == "bin"
    ]
    assert len(libraries) >= 10
    # Paths that messages and tracebacks use are strings of their own.
    source = re.compile(rb"\0(/[^\0\n]*(?:rmm|simulator)[^\0\n]*\.(?:[chi]pp|h|inc|pyx|pxd))\0")
    assert {file.name: source.findall(file.read_bytes()) for file in libraries} == {file.name: [] for file in libraries}


def test_messages_have_the_place_in_the_repository(small_pool: rmm.mr.PoolMemoryResource) -> None:
    with pytest.raises(MemoryError) as caught:
        rmm.DeviceBuffer(size=1 << 24)
    # A compiler cache may make paths relative to the build folder.
    assert re.search(r"RMM failure at: (\.\./)*include/rmm/", str(caught.value))
    with pytest.raises(MemoryError) as caught:
        rmm.mr.CudaMemoryResource().allocate(1 << 60)
    assert re.search(r" at: (\.\./)*include/rmm/", str(caught.value))
    frames = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert [name for name in frames if name.endswith(".pyx")] == ["rmm/pylibrmm/memory_resource/_base.pyx"]
