# SPDX-License-Identifier: Apache-2.0
"""The resource of each device."""

from __future__ import annotations

import subprocess
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy
import pytest

import rmm
from rmm._build_facts import cuda_backend
from rmm._cuda import gpu
from rmm.pylibrmm.memory_resource._registry import registered_resources


def test_the_initial_resource_is_that_of_the_runtime() -> None:
    assert type(rmm.mr.get_current_device_resource()) is rmm.mr.CudaMemoryResource
    assert rmm.mr.get_current_device_resource() is rmm.mr.get_per_device_resource(0)
    assert rmm.mr.get_current_device_resource_type() is rmm.mr.CudaMemoryResource
    assert rmm.mr.get_per_device_resource_type(0) is rmm.mr.CudaMemoryResource


def test_what_was_set_comes_back(cuda: rmm.mr.CudaMemoryResource) -> None:
    rmm.mr.set_current_device_resource(cuda)
    assert rmm.mr.get_current_device_resource() is cuda
    other = rmm.mr.ManagedMemoryResource()
    rmm.mr.set_per_device_resource(0, other)
    assert rmm.mr.get_per_device_resource(0) is other


def test_devices_have_resources_of_their_own(second_device: int) -> None:
    rmm.mr.set_per_device_resource(second_device, rmm.mr.ManagedMemoryResource())
    assert rmm.mr.get_current_device_resource_type() is rmm.mr.CudaMemoryResource
    gpu.setDevice(second_device)
    assert rmm.mr.get_current_device_resource_type() is rmm.mr.ManagedMemoryResource


@pytest.mark.parametrize("resource", [None, "cuda", rmm.mr.CudaMemoryResource])
def test_only_resources_can_be_set(resource: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        rmm.mr.set_current_device_resource(resource)
    with pytest.raises((TypeError, AttributeError)):
        rmm.mr.set_per_device_resource(0, resource)


@pytest.mark.parametrize("device", [-1, 99])
def test_unknown_devices_are_refused(device: int, cuda: rmm.mr.CudaMemoryResource) -> None:
    with pytest.raises(ValueError, match=f"no device {device}"):
        rmm.mr.set_per_device_resource(device, cuda)
    with pytest.raises(ValueError, match=f"no device {device}"):
        rmm.mr.get_per_device_resource(device)


@pytest.mark.usefixtures("device_alone")
def test_memory_of_the_device() -> None:
    free, total = rmm.mr.available_device_memory()
    assert 0 < free <= total
    buffer = rmm.DeviceBuffer(size=64 << 20)  # the driver might serve a smaller one from memory that it keeps
    assert rmm.mr.available_device_memory()[0] <= free - buffer.size


def test_the_package_is_always_initialized() -> None:
    assert rmm.is_initialized()
    assert rmm.mr.is_initialized()


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("logging", [False, True])
def test_reinitialize_builds_the_stack(pool: bool, managed: bool, logging: bool, tmp_path: Path) -> None:
    with nullcontext() if pool else pytest.warns(UserWarning, match="ignored without a pool"):
        rmm.reinitialize(pool, managed, "1MiB", 1 << 22, logging=logging, log_file_name=str(tmp_path / "rmm_log.csv"))
    resource: Any = rmm.mr.get_current_device_resource()
    if logging:
        assert type(resource) is rmm.mr.LoggingResourceAdaptor
        assert rmm.get_log_filenames() == {0: str(tmp_path / "rmm_log.dev0.csv")}
        resource = resource.upstream_mr
    if pool:
        assert type(resource) is rmm.mr.PoolMemoryResource
        assert resource.pool_size() == 1 << 20
        resource = resource.upstream_mr
    assert type(resource) is (rmm.mr.ManagedMemoryResource if managed else rmm.mr.CudaMemoryResource)
    rmm.DeviceBuffer(size=100)


def test_reinitialize_takes_devices(second_device: int) -> None:
    rmm.reinitialize(managed_memory=True, devices=[0, second_device])
    assert rmm.mr.get_per_device_resource_type(second_device) is rmm.mr.ManagedMemoryResource
    assert gpu.getDevice() == 0
    rmm.reinitialize(managed_memory=True, devices=second_device)
    assert rmm.mr.get_per_device_resource_type(0) is rmm.mr.CudaMemoryResource
    rmm.reinitialize(managed_memory=True, devices=numpy.int64(second_device))
    assert isinstance(rmm.mr.get_per_device_resource(second_device), rmm.mr.ManagedMemoryResource)
    rmm.reinitialize(managed_memory=True, devices=numpy.array([0, second_device]))
    assert rmm.mr.get_per_device_resource_type(0) is rmm.mr.ManagedMemoryResource
    assert rmm.mr.get_per_device_resource_type(second_device) is rmm.mr.ManagedMemoryResource
    rmm.reinitialize(managed_memory=True, devices=None)
    assert rmm.mr.get_per_device_resource_type(0) is rmm.mr.ManagedMemoryResource
    assert rmm.mr.get_per_device_resource_type(second_device) is rmm.mr.CudaMemoryResource


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"devices": 1000}, ValueError, "no device 1000"),
        ({"devices": [0, 1000]}, ValueError, "no device 1000"),
        ({"devices": [0, -1]}, ValueError, "no device -1"),
        ({"devices": "0"}, TypeError, "str"),
        ({"pool_allocator": True, "initial_pool_size": "2k"}, ValueError, "Could not parse"),
        ({"pool_allocator": True, "maximum_pool_size": "much"}, ValueError, "Could not parse"),
        ({"pool_allocator": True, "initial_pool_size": 1000}, RuntimeError, "multiple of 256"),
        ({"pool_allocator": True, "maximum_pool_size": 1000}, RuntimeError, "multiple of 256"),
        (
            {"pool_allocator": True, "initial_pool_size": "2MiB", "maximum_pool_size": "1MiB"},
            RuntimeError,
            "exceeds the maximum",
        ),
        ({"logging": True}, ValueError, "log_file_name"),
    ],
)
def test_reinitialize_with_bad_arguments_changes_nothing(
    arguments: dict[str, Any], error: type[Exception], text: str, second_device: int, capfd: pytest.CaptureFixture[str]
) -> None:
    rmm.mr.set_per_device_resource(0, rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB"))
    rmm.mr.set_per_device_resource(second_device, rmm.mr.ManagedMemoryResource())
    before = registered_resources()
    numbers = {device: id(resource) for device, resource in before.items()}
    del before
    with pytest.raises(error, match=text):
        rmm.reinitialize(**arguments)
    assert {device: id(resource) for device, resource in registered_resources().items()} == numbers
    assert repr(rmm.mr.get_current_device_resource()) == "PoolMemoryResource(CudaMemoryResource())"
    assert gpu.getDevice() == 0
    assert capfd.readouterr().err == ""


too_large: dict[str, Any] = {"pool_allocator": True, "initial_pool_size": "1024TiB"}


def test_reinitialize_that_fails_sets_resources_again_that_hold_no_memory(second_device: int) -> None:
    rmm.mr.set_per_device_resource(0, rmm.mr.ManagedMemoryResource())
    rmm.mr.set_per_device_resource(second_device, rmm.mr.PinnedHostMemoryResource())
    before = registered_resources()
    gpu.setDevice(second_device)
    with pytest.raises(MemoryError):
        rmm.reinitialize(devices=[0, second_device], **too_large)
    assert gpu.getDevice() == second_device
    assert registered_resources() == before


def test_reinitialize_that_fails_sets_a_pool_again_that_is_in_use(small_pool: rmm.mr.PoolMemoryResource) -> None:
    buffer = rmm.DeviceBuffer(size=1000)
    number = id(small_pool)
    rmm.mr.set_current_device_resource(rmm.mr.StatisticsResourceAdaptor(small_pool))
    in_use = rmm.DeviceBuffer(size=1000)
    adaptor = id(rmm.mr.get_current_device_resource())
    with pytest.raises(MemoryError):
        rmm.reinitialize(**too_large)
    resource: Any = rmm.mr.get_current_device_resource()
    assert (id(resource), id(resource.upstream_mr)) == (adaptor, number)
    assert (buffer.size, in_use.size) == (1000, 1000)


@pytest.mark.usefixtures("device_alone")
def test_reinitialize_releases_a_pool_that_nothing_uses_before_it_makes_a_new_one() -> None:
    free = rmm.mr.available_device_memory()[0]
    most = free // 4 * 3 // 256 * 256
    rmm.reinitialize(pool_allocator=True, initial_pool_size=most)
    rmm.reinitialize(pool_allocator=True, initial_pool_size=most)  # two do not fit
    with pytest.raises(MemoryError):
        rmm.reinitialize(**too_large)
    assert type(rmm.mr.get_current_device_resource()) is rmm.mr.CudaMemoryResource
    if cuda_backend == "sim":
        assert rmm.mr.available_device_memory()[0] == free


def test_reinitialize_that_fails_on_one_device_leaves_no_new_resource_on_another(
    second_device: int, tmp_path: Path
) -> None:
    rmm.mr.set_per_device_resource(0, rmm.mr.ManagedMemoryResource())
    (tmp_path / "x.dev1.csv").mkdir()
    with pytest.raises(rmm.LogFileError):
        rmm.reinitialize(devices=[0, second_device], logging=True, log_file_name=str(tmp_path / "x.csv"))
    assert type(rmm.mr.get_per_device_resource(0)) is rmm.mr.ManagedMemoryResource
    assert type(rmm.mr.get_per_device_resource(second_device)) is rmm.mr.CudaMemoryResource


def test_logging_needs_a_name() -> None:
    with pytest.raises(ValueError, match="log_file_name"):
        rmm.reinitialize(logging=True)


def test_buffers_survive_a_reinitialize() -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size="1MiB")
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    rmm.reinitialize()
    assert buffer.tobytes() == b"abc"


def test_hooks_are_called_last_first() -> None:
    calls: list[Any] = []

    def f(x: int) -> None:
        calls.append(x)

    def g() -> None:
        calls.append("g")

    assert rmm.register_reinitialize_hook(f, 1) is f
    rmm.register_reinitialize_hook(g)
    rmm.register_reinitialize_hook(f, x=3)
    rmm.register_reinitialize_hook(g)
    rmm.reinitialize()
    assert calls == ["g", 3, "g", 1]
    rmm.unregister_reinitialize_hook(g)
    rmm.reinitialize()
    assert calls == ["g", 3, "g", 1, 3, 1]
    rmm.unregister_reinitialize_hook(f)
    rmm.reinitialize()
    assert len(calls) == 6


def test_hooks_may_unregister_hooks() -> None:
    calls: list[str] = []

    def first() -> None:
        calls.append("first")

    def dropped() -> None:
        calls.append("dropped")

    def once(name: str) -> None:
        calls.append(name)
        rmm.unregister_reinitialize_hook(once)
        rmm.unregister_reinitialize_hook(dropped)

    rmm.register_reinitialize_hook(first)
    rmm.register_reinitialize_hook(once, "unregistered by the next")
    rmm.register_reinitialize_hook(dropped)
    rmm.register_reinitialize_hook(once, "once")
    try:
        rmm.reinitialize()
        assert calls == ["once", "first"]
        rmm.reinitialize()
        assert calls == ["once", "first", "first"]
    finally:
        for hook in (first, once, dropped):
            rmm.unregister_reinitialize_hook(hook)


def test_a_hook_can_free_what_the_pool_holds(small_pool: rmm.mr.PoolMemoryResource) -> None:
    held = [rmm.DeviceBuffer(size=1000)]
    rmm.register_reinitialize_hook(held.clear)
    try:
        rmm.reinitialize()
    finally:
        rmm.unregister_reinitialize_hook(held.clear)
    assert held == []


def test_logging_can_be_switched(tmp_path: Path, cuda: rmm.mr.CudaMemoryResource) -> None:
    rmm.mr.set_current_device_resource(cuda)
    assert rmm.get_log_filenames() == {0: None}
    rmm.enable_logging(log_file_name=str(tmp_path / "x.csv"))
    rmm.enable_logging(log_file_name=str(tmp_path / "y.csv"))  # has no effect, because logging is enabled
    assert rmm.get_log_filenames() == {0: str(tmp_path / "x.dev0.csv")}
    rmm.DeviceBuffer(size=100)
    rmm.mr._flush_logs()
    assert (tmp_path / "x.dev0.csv").read_text().count("\n") == 3
    rmm.disable_logging()
    assert rmm.mr.get_current_device_resource() is cuda
    rmm.disable_logging()
    with pytest.raises(ValueError, match="RMM_LOG_FILE"):
        rmm.enable_logging()


def test_the_log_is_complete_when_logging_ends(tmp_path: Path) -> None:
    rmm.enable_logging(str(tmp_path / "x.csv"))
    rmm.DeviceBuffer(size=100)
    rmm.disable_logging()
    assert (tmp_path / "x.dev0.csv").read_text().count("\n") == 3


def test_errors_have_a_number() -> None:
    import pickle

    error = rmm.RMMError(3, "text")
    assert (error.errcode, str(error)) == (3, "text")
    again = pickle.loads(pickle.dumps(error))
    assert (again.errcode, str(again)) == (3, "text")


def test_using_a_resource_for_a_while(cuda: rmm.mr.CudaMemoryResource) -> None:
    before = rmm.mr.get_current_device_resource()
    with rmm.using(cuda) as resource:
        assert resource is cuda
        assert rmm.mr.get_current_device_resource() is cuda
    assert rmm.mr.get_current_device_resource() is before
    with pytest.raises(KeyError), rmm.using(cuda):
        raise KeyError
    assert rmm.mr.get_current_device_resource() is before


def test_using_is_for_the_device_that_was_current(cuda: rmm.mr.CudaMemoryResource, second_device: int) -> None:
    before = [rmm.mr.get_per_device_resource(device) for device in (0, second_device)]
    with rmm.using(cuda):
        gpu.setDevice(second_device)
        assert rmm.mr.get_current_device_resource() is before[1]
    assert [rmm.mr.get_per_device_resource(device) for device in (0, second_device)] == before


@pytest.mark.parametrize("limit", [1 << 20, "1MiB", "a share"])
def test_memory_can_be_limited_for_a_while(limit: Any) -> None:
    if limit == "a share":
        limit = f"{100 * (1 << 20) / rmm.mr.available_device_memory()[1]:.9f}%"
    with rmm.memory_limit(limit) as adaptor:
        buffer = rmm.DeviceBuffer(size=1 << 19)
        assert adaptor.get_allocated_bytes() == 1 << 19
        with pytest.raises(MemoryError, match="Exceeded memory limit"):
            rmm.DeviceBuffer(size=1 << 22)
    rmm.DeviceBuffer(size=1 << 22)
    assert buffer.size == 1 << 19


@pytest.mark.parametrize("limit", ["much", "101%", "-1%", "%", "2k", -1])
def test_limits_are_checked(limit: Any) -> None:
    with pytest.raises(ValueError, match=r"parse|below 0"), rmm.memory_limit(limit):
        pass


def test_importing_and_setting_warn_of_nothing(cuda: rmm.mr.CudaMemoryResource) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rmm.reinitialize()
        rmm.mr.set_current_device_resource(cuda)


@pytest.mark.program("import rmm", environment={"RMM_RESOURCE": "pool,maxx=80%"})
def test_an_error_in_the_environment_names_the_variable(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1
    assert "unknown option 'maxx' of pool" in done.stderr
    assert done.stderr.rstrip().endswith("RMM_RESOURCE asks for this resource.")


threads_that_ask_and_set = """
import operator
import os
import sys
import threading

import rmm
from rmm.pylibrmm.memory_resource._registry import forget_registered_resources, registered_resources

devices = range(16)
sys.setswitchinterval(1e-6)
kept = []  # keeps resources that the registry has lost, so that their addresses can be compared


def ask():
    gate.wait()
    kept.extend(rmm.mr.get_per_device_resource(device) for device in devices)


def set_all():
    gate.wait()
    for device in devices:
        rmm.mr.set_per_device_resource(device, new[device])


for _ in range(500):
    forget_registered_resources()
    new = [rmm.mr.ManagedMemoryResource() for _ in devices]
    gate = threading.Barrier(3)
    threads = [threading.Thread(target=function) for function in (ask, ask, set_all)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept.extend(new)
    registered = registered_resources()
    assert all(rmm.mr.get_per_device_resource(device) is registered[device] for device in devices)
    set_last = [mr.upstream_mr if "RMM_TRACE_FILE" in os.environ else mr for mr in map(registered.get, devices)]
    assert all(map(operator.is_, set_last, new))
    kept.clear()
"""


def on_16_devices(trace: dict[str, str], name: str) -> Any:
    program = pytest.mark.program(threads_that_ask_and_set, environment={"CUDASIM_DEVICES": "16", **trace})
    return pytest.param(trace, marks=program, id=name)


@pytest.mark.skipif(cuda_backend != "sim", reason="makes 16 devices")
@pytest.mark.parametrize(
    "trace", [on_16_devices({}, "plain"), on_16_devices({"RMM_TRACE_FILE": "run.rmmtrace"}, "traced")]
)
def test_threads_that_ask_and_set_find_one_resource(
    trace: dict[str, str], done: subprocess.CompletedProcess[str]
) -> None:
    assert done.returncode == 0, done.stderr
