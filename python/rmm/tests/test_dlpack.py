# SPDX-License-Identifier: Apache-2.0
"""DLPack, in both directions"""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import rmm
from rmm._build_facts import cuda_backend
from rmm.pylibrmm.stream import Stream


class Tensor:
    """An array of another library that offers only DLPack."""

    def __init__(self, buffer: rmm.DeviceBuffer, *, is_old: bool = False) -> None:
        self.buffer = buffer
        self.is_old = is_old
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.buffer.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **arguments: Any) -> Any:
        if self.is_old and arguments:
            raise TypeError("unexpected keyword argument")
        self.streams.append(stream)
        return self.buffer.__dlpack__(stream=stream, **arguments)


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("content", [b"", b"abc"])
def test_a_tensor_becomes_a_buffer(content: bytes, is_old: bool) -> None:
    tensor = Tensor(rmm.DeviceBuffer.to_device(content), is_old=is_old)
    assert rmm.DeviceBuffer.from_device(tensor).tobytes() == content
    assert tensor.streams == [1]


def test_the_stream_of_the_copy_is_told_to_the_producer() -> None:
    stream = Stream()
    tensor = Tensor(rmm.DeviceBuffer.to_device(b"abc"))
    buffer = rmm.DeviceBuffer.from_device(tensor, stream=stream)
    assert buffer.stream is stream
    assert tensor.streams == [stream.__cuda_stream__()[1]]


@pytest.mark.parametrize("stream", [{}, {"stream": None}, {"stream": 1}])
def test_an_array_that_tells_no_stream_is_taken_by_dlpack(stream: dict[str, Any]) -> None:
    class Array(Tensor):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {**self.buffer.__cuda_array_interface__, **stream}

    tensor = Array(rmm.DeviceBuffer.to_device(b"abc"))
    assert rmm.DeviceBuffer.from_device(tensor).tobytes() == b"abc"
    assert tensor.streams == ([] if stream else [1])


@pytest.mark.parametrize("array", [np.arange(6, dtype="i8"), np.arange(6, dtype="f4").reshape(2, 3), np.zeros((0, 3))])
def test_arrays_on_the_host_become_buffers(array: np.ndarray[Any, Any]) -> None:
    assert rmm.DeviceBuffer.from_device(array).tobytes() == array.tobytes()


@pytest.mark.parametrize("array", [np.arange(6, dtype="i8")[::2], np.arange(6, dtype="f4").reshape(2, 3).T])
def test_arrays_with_gaps_are_refused(array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        rmm.DeviceBuffer.from_device(array)


def test_the_resource_of_the_copy_can_be_chosen(cuda: rmm.mr.CudaMemoryResource) -> None:
    assert rmm.DeviceBuffer.from_device(np.arange(3), mr=cuda).mr is cuda


def test_the_device_is_told() -> None:
    assert rmm.DeviceBuffer(size=1).__dlpack_device__() == (2, 0)
    assert rmm.DeviceBuffer().__dlpack_device__() == (2, 0)


@pytest.mark.parametrize(
    ("version", "name"), [(None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned")]
)
def test_a_capsule_keeps_the_buffer(version: Any, name: str) -> None:
    buffer = rmm.DeviceBuffer(size=10)
    before = sys.getrefcount(buffer)
    capsule = buffer.__dlpack__(max_version=version)
    assert f'"{name}"' in repr(capsule)
    assert sys.getrefcount(buffer) == before + 1
    del capsule
    gc.collect()
    assert sys.getrefcount(buffer) == before


def test_streams_of_consumers() -> None:
    buffer = rmm.DeviceBuffer(size=10, stream=Stream())
    consumer = Stream()
    for stream in (None, -1, 1, 2, consumer.__cuda_stream__()[1]):
        buffer.__dlpack__(stream=stream)
    for stream in (0, -2):
        with pytest.raises(ValueError, match="handle of a stream"):
            buffer.__dlpack__(stream=stream)


def test_a_copy_is_made_on_demand() -> None:
    buffer = rmm.DeviceBuffer(size=10)
    before = sys.getrefcount(buffer)
    capsule = buffer.__dlpack__(copy=True)
    assert sys.getrefcount(buffer) == before
    del capsule


def flags_in(capsule: Any) -> int:
    """Returns the flags of a versioned capsule. They follow a version of two 32-bit numbers and two pointers."""
    pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_in.restype = ctypes.c_void_p
    pointer_in.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_uint64.from_address(pointer_in(capsule, b"dltensor_versioned") + 24).value


def test_a_copy_has_the_flag_of_a_copy() -> None:
    buffer = rmm.DeviceBuffer(size=10)
    assert flags_in(buffer.__dlpack__(max_version=(1, 0))) == 0
    assert flags_in(buffer.__dlpack__(max_version=(1, 0), copy=False)) == 0
    assert flags_in(buffer.__dlpack__(max_version=(1, 0), copy=True)) == 2


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_that_runs_out_of_host_memory_leaks_nothing(version: Any) -> None:
    memory = pytest.importorskip("_testcapi", reason="this interpreter cannot fail an allocation")
    buffer = rmm.DeviceBuffer(size=10)
    before = sys.getrefcount(buffer)
    failures = 0
    for number in range(100):  # fails the allocation with this number
        capsule = None
        memory.set_nomemory(number, number + 1)
        try:
            capsule = buffer.__dlpack__(max_version=version, stream=-1)
        except MemoryError:
            failures += 1
        finally:
            memory.remove_mem_hooks()
        if capsule is not None:
            break
        assert sys.getrefcount(buffer) == before
    del capsule
    assert failures > 0
    assert sys.getrefcount(buffer) == before


def waiting(use: str) -> Any:
    """A parameter with a program that waits for a producer's work, which needs the GIL. Events cannot be recorded."""
    text = f"""
import ctypes, time
from pathlib import Path
import librmm, rmm
from rmm.pylibrmm.stream import Stream

runtime = ctypes.CDLL(str(Path(librmm.__file__).parent / "lib" / "libcudart_sim.so"))
producer, consumer = Stream(), Stream()
buffer = rmm.DeviceBuffer(size=10, stream=producer)

class Array:
    __cuda_array_interface__ = dict(buffer.__cuda_array_interface__, version=3, stream=producer.__cuda_stream__()[1])

class Tensor:
    def __dlpack_device__(self):
        return buffer.__dlpack_device__()

    def __dlpack__(self, stream=None, **arguments):
        return buffer.__dlpack__(stream=stream, **arguments)

has_ended = False

@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def work(_):  # a host function of the stream, which needs the GIL
    global has_ended
    time.sleep(0.5)
    has_ended = True

assert runtime.cudaLaunchHostFunc(ctypes.c_void_p(producer.__cuda_stream__()[1]), work, None) == 0
{use}
assert has_ended, "it has not waited"
"""
    fault = "cudaErrorNotSupported:1000000"
    faults = {"CUDASIM_FAULT": f"cudaEventRecord:1:{fault},cuEventRecord:1:{fault}"}
    return pytest.param(use, marks=pytest.mark.program(text, environment=faults))


@pytest.mark.skipif(cuda_backend != "sim", reason="makes calls of CUDA fail")
@pytest.mark.parametrize(
    "use",
    [
        waiting("buffer.__dlpack__(stream=consumer.__cuda_stream__()[1])"),
        waiting("rmm.DeviceBuffer.from_device(Tensor(), stream=consumer)"),
        waiting("rmm.DeviceBuffer(size=10, stream=consumer).copy_from_device(Array())"),
    ],
)
def test_others_run_while_the_host_waits_for_a_producer(use: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


def test_another_device_is_refused() -> None:
    buffer = rmm.DeviceBuffer(size=10)
    buffer.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        buffer.__dlpack__(dl_device=(1, 0))
