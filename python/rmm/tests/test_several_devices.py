# SPDX-License-Identifier: Apache-2.0
"""Buffers whose device is not the current one.

The handle of a default stream names a stream of the current device. Programs run under the ordering checker of the simulator:
they end with status 66 if two uses of the same memory are not ordered.
"""

from __future__ import annotations

import subprocess
import textwrap
from typing import Any

import pytest

from rmm._build_facts import cuda_backend

if cuda_backend != "sim":
    pytest.skip("the checker is that of the simulator", allow_module_level=True)

begin = """
import ctypes
from pathlib import Path

import librmm
import rmm
from rmm._cuda import gpu
from rmm.pylibrmm.cuda_stream import CudaStreamFlags
from rmm.pylibrmm.stream import DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream

runtime = ctypes.CDLL(str(Path(librmm.__file__).parent / "lib" / "libcudart_sim.so"))
size = 1000


def fill(buffer, value, stream, device):
    'Queues work on a stream of `device`, and returns with device 0 current.'
    gpu.setDevice(device)
    handle = ctypes.c_void_p(stream.__cuda_stream__()[1])
    assert runtime.cudaMemsetAsync(ctypes.c_void_p(buffer.ptr), value, ctypes.c_size_t(buffer.size), handle) == 0
    gpu.setDevice(0)


def filled(value, stream, device):
    'A buffer that `device` still fills.'
    gpu.setDevice(device)
    buffer = rmm.DeviceBuffer(size=size, stream=stream)
    fill(buffer, value, stream, device)
    return buffer


def stream_of(device):
    'A stream that the legacy default stream does not wait for.'
    gpu.setDevice(device)
    stream = Stream(flags=CudaStreamFlags.NON_BLOCKING)
    gpu.setDevice(0)
    return stream


class Array:
    'An array whose library has queued work on the default stream of its device.'

    def __init__(self, buffer, stream):
        self.buffer = buffer
        self.__cuda_array_interface__ = dict(buffer.__cuda_array_interface__, stream=stream, version=3)


class Tensor:
    'A tensor with DLPack alone.'

    def __init__(self, buffer):
        self.__dlpack__, self.__dlpack_device__ = buffer.__dlpack__, buffer.__dlpack_device__


default_streams = DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM
"""

end = """
assert gpu.getDevice() == 0
"""


def environment_of(_: pytest.Function) -> dict[str, str]:
    return {"CUDASIM_DEVICES": "2", "CUDASIM_CHECK": "1", "CUDASIM_REPORT": "report"}


def program(text: str) -> pytest.MarkDecorator:
    return pytest.mark.program(textwrap.dedent(text) + end)


def reading(read: str) -> Any:
    text = f"""
        for stream in default_streams:
            buffer = filled(7, stream, device=1)
            assert {read} == bytes([7]) * size
    """
    return pytest.param(read, marks=program(text))


@pytest.mark.parametrize(
    "read", [reading("buffer.tobytes(stream)"), reading("buffer.copy_to_host(stream=stream).tobytes()")]
)
def test_reading_is_in_the_order_of_the_buffers_device(read: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@program("""
    for stream in (*default_streams, stream_of(1)):
        buffer = filled(7, stream, device=1)
        copy = buffer.copy()
        assert copy.__dlpack_device__() == (2, 1)
        fill(buffer, 8, stream, device=1)
        assert copy.tobytes(stream) == bytes([7]) * size
""")
def test_a_copy_is_made_on_the_buffers_device(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@program("""
    for stream in default_streams:
        buffer = filled(7, stream, device=1)
        buffer.copy_from_host(b"abc", stream)
        assert buffer.tobytes(stream) == b"abc" + bytes([7]) * (size - 3)
""")
def test_writing_is_in_the_order_of_the_buffers_device(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


def copying(source: int, target: int) -> Any:
    text = f"""
        for stream in default_streams:
            for producer in (LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, stream_of({source})):
                array = Array(filled(7, producer, device={source}), producer.__cuda_stream__()[1])
                target = filled(8, stream, device={target})
                target.copy_from_device(array, stream)
                assert target.tobytes(stream) == bytes([7]) * size
    """
    return pytest.param(source, target, marks=program(text))


@pytest.mark.parametrize(("source", "target"), [copying(0, 0), copying(0, 1), copying(1, 0), copying(1, 1)])
def test_a_copy_from_an_array_waits_for_the_device_of_the_array(
    source: int, target: int, done: subprocess.CompletedProcess[str]
) -> None:
    assert done.returncode == 0, done.stderr


@program("""
    for stream in (*default_streams, stream_of(0)):
        for producer in (LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, stream_of(1)):
            array = Array(filled(7, producer, device=1), producer.__cuda_stream__()[1])
            copy = rmm.DeviceBuffer.from_device(array, stream=stream)
            assert copy.__dlpack_device__() == (2, 0)
            assert copy.tobytes(stream) == bytes([7]) * size
""")
def test_a_buffer_of_an_array_waits_for_the_device_of_the_array(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@program("""
    for stream in (*default_streams, stream_of(0)):
        for producer in (*default_streams, stream_of(1)):
            tensor = Tensor(filled(7, producer, device=1))
            copy = rmm.DeviceBuffer.from_device(tensor, stream=stream)
            assert copy.__dlpack_device__() == (2, 0)
            assert copy.tobytes(stream) == bytes([7]) * size
""")
def test_a_buffer_of_a_tensor_waits_for_the_device_of_the_tensor(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@program("""
    for consumer in (LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, stream_of(1)):
        for stream in (*default_streams, stream_of(1)):
            buffer = filled(7, stream, device=1)
            buffer.__dlpack__(stream=consumer.__cuda_stream__()[1])
            fill(buffer, 8, consumer, device=1)
            assert buffer.tobytes(consumer) == bytes([8]) * size
""")
def test_a_consumer_waits_on_the_device_of_the_buffer(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
