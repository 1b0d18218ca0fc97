# SPDX-License-Identifier: Apache-2.0
"""Tests that need a GPU: RAPIDS' own copies and streams, and libraries that allocate through RAPIDS' rmm."""

from __future__ import annotations

import gc
import os
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest
import rmm
from rmm._cuda import gpu
from rmm.pylibrmm.stream import Stream

import rmm_engine_rapids
from rmm_engine_rapids import EngineMemoryResource

Runner = Callable[..., "subprocess.CompletedProcess[str]"]
MIB = 1 << 20


@pytest.fixture(params=["elastic,max=2GiB", "pool,initial=256MiB", "cached", "cuda_async"])
def resource(request: pytest.FixtureRequest) -> EngineMemoryResource:
    return rmm_engine_rapids.enable(request.param)


def test_holds_what_was_copied(resource: EngineMemoryResource) -> None:
    for size in (1, 1000, 5 * MIB + 3):
        content = os.urandom(size)
        buffer = rmm.DeviceBuffer.to_device(content)
        assert buffer.tobytes() == content
        assert buffer.copy().tobytes() == content


def test_serves_streams_of_rapids(resource: EngineMemoryResource) -> None:
    content = os.urandom(MIB)
    for _ in range(50):
        streams = [Stream() for _ in range(4)]
        buffers = [rmm.DeviceBuffer(size=MIB, stream=stream) for stream in streams]
        for buffer, stream in zip(buffers, streams, strict=True):
            buffer.copy_from_host(content, stream=stream)
        for buffer, stream in zip(buffers, streams, strict=True):
            stream.synchronize()
            assert buffer.tobytes(stream) == content
        del buffer, buffers


def test_threads_do_not_see_each_others_memory(resource: EngineMemoryResource) -> None:
    failures: list[BaseException] = []

    def work(letter: int) -> None:
        try:
            stream = Stream()
            for turn in range(100):
                content = bytes([letter]) * (1000 * turn + 1)
                first = rmm.DeviceBuffer(size=len(content), stream=stream)
                first.copy_from_host(content, stream=stream)
                assert first.tobytes(stream) == content
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(letter,)) for letter in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_grows_buffers_in_place_of_new_ones(resource: EngineMemoryResource) -> None:
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    buffer.resize(10 * MIB)
    assert buffer.size == 10 * MIB
    assert buffer.tobytes()[:3] == b"abc"


@pytest.mark.filterwarnings("ignore")  # of CuPy
def test_serves_cupy(resource: EngineMemoryResource) -> None:
    cupy = pytest.importorskip("cupy")
    from rmm.allocators.cupy import rmm_cupy_allocator

    with cupy.cuda.using_allocator(rmm_cupy_allocator):
        values = cupy.arange(1_000_000, dtype=cupy.int64)
        assert int((values * 2).sum()) == 999_999 * 1_000_000
        figures = resource.figures()
        assert figures is None or figures.live_bytes >= 8_000_000
        del values
    gc.collect()
    figures = resource.figures()
    assert figures is None or figures.live_blocks == 0


def test_serves_torch(run_program: Runner) -> None:
    pytest.importorskip("torch")
    done = run_program("""
import warnings
warnings.simplefilter("ignore")
import rmm, torch, rmm_engine_rapids
from rmm.allocators.torch import rmm_torch_allocator
resource = rmm_engine_rapids.enable("elastic,max=4GiB")
torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
values = torch.arange(1_000_000, device="cuda")
assert int((values * 2).sum()) == 999_999 * 1_000_000
print(resource.figures().live_bytes >= 8_000_000)
""")
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_reports_a_full_device(free_memory: Callable[[], int]) -> None:
    resource = rmm_engine_rapids.enable("elastic,max=100%")
    free = free_memory()
    with pytest.raises(MemoryError, match="asked: "):
        rmm.DeviceBuffer(size=free + (8 << 30))
    report = resource.report()
    assert report is not None
    assert report.asked_bytes >= free
    assert report.device_total_bytes is not None


@pytest.mark.parametrize("configuration", ["elastic,max=2GiB", "pool,initial=256MiB", "cached", "cuda_async"])
def test_processes_end_in_peace_with_work_in_flight(run_program: Runner, configuration: str) -> None:
    done = run_program(f"""
import builtins, os, rmm, rmm_engine_rapids
from rmm.pylibrmm.stream import Stream
rmm_engine_rapids.enable({configuration!r})
stream = Stream()
builtins.kept = [rmm.DeviceBuffer(size=64 << 20, stream=stream) for _ in range(2)]
content = os.urandom(64 << 20)
for buffer in builtins.kept:
    buffer.copy_from_host(content, stream=stream)
builtins.late = rmm.DeviceBuffer(size=1000)
print("end")
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.fixture
def two_devices() -> Iterator[None]:
    if gpu.getDeviceCount() < 2:
        pytest.skip("needs two devices")
    yield
    gpu.setDevice(1)
    rmm.mr.set_per_device_resource(1, rmm.mr.CudaMemoryResource())
    gpu.setDevice(0)


def live_blocks(resource: EngineMemoryResource) -> int:
    figures = resource.figures()
    assert figures is not None
    return figures.live_blocks


@pytest.mark.parametrize("configuration", ["elastic,max=2GiB", "pool,initial=256MiB", "cached"])
def test_each_device_gets_its_memory_back_from_a_thread_on_the_other(two_devices: None, configuration: str) -> None:
    resources = [rmm_engine_rapids.enable(configuration, device) for device in (0, 1)]
    assert [resource.device for resource in resources] == [0, 1]
    contents = [os.urandom(5 * MIB + 3), os.urandom(5 * MIB + 3)]
    failures: list[BaseException] = []

    def make(device: int) -> list[rmm.DeviceBuffer]:
        gpu.setDevice(device)
        return [rmm.DeviceBuffer.to_device(contents[device]) for _ in range(8)]

    def free(device: int, buffers: list[rmm.DeviceBuffer]) -> None:
        try:
            gpu.setDevice(1 - device)
            block = resources[device].allocate(1000)
            for _ in range(4):
                buffers.pop()
            resources[device].deallocate(block, 1000)
            assert gpu.getDevice() == 1 - device
        except BaseException as failure:
            failures.append(failure)

    for _ in range(20):
        made = [make(device) for device in (0, 1)]
        assert [live_blocks(resource) for resource in resources] == [8, 8]
        threads = [threading.Thread(target=free, args=(device, made[device])) for device in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert [live_blocks(resource) for resource in resources] == [4, 4]
        for device in (0, 1):
            made[device] += make(device)  # takes the memory that the thread gave back
        for device in (0, 1):
            gpu.setDevice(device)
            assert all(buffer.tobytes() == contents[device] for buffer in made[device])
            made[device].clear()
    assert [live_blocks(resource) for resource in resources] == [0, 0]
