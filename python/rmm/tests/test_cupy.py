# SPDX-License-Identifier: Apache-2.0
"""The plug-in for CuPy: with a stand-in that records its arguments, and with CuPy itself on a GPU."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import rmm
import rmm.mr
from rmm._build_facts import cuda_backend
from rmm._cuda import gpu
from rmm.allocators._cupy import _forget_cupy
from rmm.allocators.cupy import rmm_cupy_allocator
from rmm.pylibrmm.stream import Stream, _release_kept_streams

# --- a stand-in


class UnownedMemory:
    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    def __init__(self, mem: UnownedMemory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset


class OutOfMemoryError(MemoryError):
    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__("CuPy's own words")


class CupyStream:
    """A stream like CuPy's. The null stream has the handle 0."""

    def __init__(self, owned: Stream | None = None) -> None:
        self.owned = owned
        self.ptr = 0 if owned is None else owned.__cuda_stream__()[1]

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.ptr)


# The program of a test has this text, too.
owning_stream = """
import ctypes
from pathlib import Path

import librmm

from rmm._build_facts import cuda_backend

simulator = str(Path(librmm.__file__).parent / "lib" / "libcudart_sim.so")
runtime = ctypes.CDLL(simulator if cuda_backend == "sim" else "libcudart.so.13")


class OwningStream:
    __module__, __qualname__ = "cupy.cuda.stream", "Stream"

    def __init__(self):
        handle = ctypes.c_void_p()
        assert runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
        self.ptr = handle.value

    def __cuda_stream__(self):
        return (0, self.ptr)

    def __del__(self):
        runtime.cudaStreamDestroy(ctypes.c_void_p(self.ptr))
"""


def new_owning_stream() -> Any:
    """Makes a stream with an object that destroys it at its end, as CuPy's class of this name does."""
    names: dict[str, Any] = {}
    exec(owning_stream, names)
    return names["OwningStream"]()


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for `cupy.cuda`. Set `.stream` to change the current stream."""
    cuda: Any = ModuleType("cupy.cuda")
    cuda.stream = CupyStream()
    cuda.get_current_stream = lambda: cuda.stream
    cuda.UnownedMemory = UnownedMemory
    cuda.MemoryPointer = MemoryPointer
    cuda.memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    package: Any = ModuleType("cupy")
    package.cuda = cuda
    monkeypatch.setitem(sys.modules, "cupy", package)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    _forget_cupy()
    yield cuda
    _forget_cupy()
    _release_kept_streams()


def test_memory_is_that_of_a_device_buffer(cupy: Any) -> None:
    pointer = rmm_cupy_allocator(1000)
    assert isinstance(pointer.mem._owner, rmm.DeviceBuffer)
    assert pointer.mem._owner.size == 1000
    assert pointer.mem.size == 1000
    assert pointer.ptr == pointer.mem._owner.ptr != 0


def test_zero_bytes_have_a_null_address(cupy: Any) -> None:
    pointer = rmm_cupy_allocator(0)
    assert pointer.mem.size == 0
    assert pointer.mem.ptr == 0
    assert isinstance(pointer.mem._owner, rmm.DeviceBuffer)


def test_the_device_is_told(cupy: Any, second_device: int) -> None:
    gpu.setDevice(second_device)
    pointer = rmm_cupy_allocator(1000)
    assert pointer.mem.device_id == second_device
    assert rmm_cupy_allocator(0).mem.device_id == second_device


def test_memory_is_in_the_order_of_the_current_stream(cupy: Any) -> None:
    seen: list[Stream] = []
    cuda = rmm.mr.CudaMemoryResource()

    def allocate(nbytes: int, stream: Stream) -> int:
        seen.append(stream)
        ptr: int = cuda.allocate(nbytes, stream)
        return ptr

    rmm.mr.set_current_device_resource(rmm.mr.CallbackMemoryResource(allocate, cuda.deallocate))
    rmm_cupy_allocator(1000)
    stream = Stream()
    cupy.stream = CupyStream(stream)
    rmm_cupy_allocator(1000)
    assert seen == [rmm.pylibrmm.stream.DEFAULT_STREAM, stream]


def capsule(function: Any, signature: bytes) -> Any:
    """Makes the capsule of a C function, as Cython modules do. The caller must keep `function` and `signature` alive."""
    new = ctypes.pythonapi.PyCapsule_New
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    new.restype = ctypes.py_object
    return new(ctypes.cast(function, ctypes.c_void_p), signature, None)


class FunctionsOfCupy:
    """C functions that tell the current stream, as CuPy's module has them. `asked` lists their calls."""

    def __init__(self, cupy: Any) -> None:
        options = b"struct __pyx_opt_args_4cupy_4cuda_6stream_get_current_stream *__pyx_optional_args"
        self._signatures = [b"intptr_t (void)", b"PyObject *(int __pyx_skip_dispatch, " + options + b")"]
        self._functions: list[Any] = [
            ctypes.CFUNCTYPE(ctypes.c_ssize_t)(self._tell_handle),
            ctypes.CFUNCTYPE(ctypes.py_object, ctypes.c_int, ctypes.c_void_p)(self._tell_stream),
        ]
        self.current: Any = CupyStream()
        self.asked: list[str] = []
        names = ("get_current_stream_ptr", "get_current_stream")
        pairs = zip(self._functions, self._signatures, strict=True)
        offered = {name: capsule(*pair) for name, pair in zip(names, pairs, strict=True)}
        cupy.stream = SimpleNamespace(__pyx_capi__=offered)  # not the stream that the Python function would return

    def _tell_handle(self) -> int:
        self.asked.append("handle")
        handle: int = self.current.ptr
        return handle

    def _tell_stream(self, skip_dispatch: int, optional_arguments: int | None) -> Any:
        self.asked.append("stream")
        return self.current


def test_the_current_stream_comes_from_the_c_function_of_cupy(cupy: Any) -> None:
    functions = FunctionsOfCupy(cupy)
    assert rmm_cupy_allocator(1000).mem._owner.stream == rmm.pylibrmm.stream.DEFAULT_STREAM
    assert functions.asked == ["handle"]
    stream = Stream()
    functions.current = current = CupyStream(stream)
    references = sys.getrefcount(current)
    pointer = rmm_cupy_allocator(1000)
    assert pointer.mem._owner.stream == stream
    assert functions.asked == ["handle", "handle", "stream"]
    assert sys.getrefcount(current) > references  # the memory keeps the stream alive
    del pointer
    gc.collect()
    assert sys.getrefcount(current) == references


def test_a_kept_stream_is_asked_for_once(cupy: Any) -> None:
    functions = FunctionsOfCupy(cupy)
    functions.current = new_owning_stream()
    kept = rmm_cupy_allocator(1000).mem._owner.stream
    assert rmm_cupy_allocator(1000).mem._owner.stream is kept
    assert functions.asked == ["handle", "stream", "handle"]


def test_c_functions_with_another_signature_are_not_called(cupy: Any) -> None:
    signature = b"int (void)"
    cupy.stream.__pyx_capi__ = {"get_current_stream_ptr": capsule(ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1), signature)}
    assert rmm_cupy_allocator(1000).mem._owner.stream == rmm.pylibrmm.stream.DEFAULT_STREAM


def test_the_stream_lives_as_long_as_the_memory(cupy: Any) -> None:
    ended: list[bool] = []

    class Watched(CupyStream):
        def __del__(self) -> None:
            ended.append(True)

    cupy.stream = Watched(Stream())
    pointer = rmm_cupy_allocator(1000)
    cupy.stream = CupyStream()
    gc.collect()
    assert not ended
    del pointer
    gc.collect()
    assert ended == [True]


def stream_of_memory(cupy: Any, stream: CupyStream) -> Stream:
    """Allocates and frees on a stream. Returns the object that the memory had for it."""
    cupy.stream = stream
    found: Stream = rmm_cupy_allocator(1000).mem._owner.stream
    cupy.stream = CupyStream()
    return found


def test_a_kept_stream_ends_once_another_is_kept(cupy: Any) -> None:
    stream = new_owning_stream()
    stream_of_memory(cupy, stream)
    ended = weakref.ref(stream)
    del stream
    gc.collect()
    assert ended() is not None
    stream_of_memory(cupy, new_owning_stream())
    assert ended() is None


def test_a_kept_stream_lives_as_long_as_its_memory(cupy: Any) -> None:
    cupy.stream = new_owning_stream()
    pointer = rmm_cupy_allocator(1000)
    ended = weakref.ref(cupy.stream)
    for _ in range(3):
        stream_of_memory(cupy, new_owning_stream())
    assert ended() is not None
    del pointer
    stream_of_memory(cupy, new_owning_stream())
    assert ended() is None


def test_a_kept_stream_lives_as_long_as_an_object_for_it(cupy: Any) -> None:
    stream = new_owning_stream()
    ended = weakref.ref(stream)
    own = Stream(stream)
    del stream
    for _ in range(3):
        stream_of_memory(cupy, new_owning_stream())
    assert ended() is not None
    del own
    stream_of_memory(cupy, new_owning_stream())
    assert ended() is None


def test_more_streams_than_are_kept_serve_memory(cupy: Any) -> None:
    streams = [new_owning_stream() for _ in range(100)]
    for stream in streams + streams:
        assert stream_of_memory(cupy, stream).__cuda_stream__() == stream.__cuda_stream__()
    ended = [weakref.ref(stream) for stream in streams]
    del streams, stream
    stream_of_memory(cupy, new_owning_stream())
    assert not [each for each in ended if each() is not None]


def test_streams_that_live_for_one_request_cost_no_memory_and_no_time(cupy: Any) -> None:
    rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "1MiB"))
    streams = 1000 if cuda_backend == "sim" else 50  # the driver needs 2 ms for each
    seconds = []
    for _ in range(10):
        begin = time.perf_counter()
        for _ in range(streams):
            stream_of_memory(cupy, new_owning_stream())
        seconds.append(time.perf_counter() - begin)
    assert min(seconds[5:]) < 2 * min(seconds[:5])


def test_a_kept_stream_is_not_asked_for_its_id() -> None:
    if cuda_backend != "sim":
        pytest.skip("the simulator counts calls")
    program = """
import rmm
from rmm.pylibrmm.stream import Stream
rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB"))
stream = Stream(OwningStream())
for _ in range(200):
    rmm.DeviceBuffer(size=1000, stream=stream)
"""
    command = [sys.executable, "-c", owning_stream + program]
    environment = {**os.environ, "CUDASIM_REPORT": "-"}
    report = subprocess.run(command, env=environment, check=False, capture_output=True, text=True).stderr
    assert "violations: none" in report
    assert int(re.findall(r"cuStreamIsCapturing +(\d+)", report)[0]) >= 400
    assert int(re.findall(r"cuStreamGetId +(\d+)", report)[0]) < 10


def test_out_of_memory_is_the_error_of_cupy_with_the_report(cupy: Any, small_pool: rmm.mr.PoolMemoryResource) -> None:
    with pytest.raises(OutOfMemoryError, match="Maximum pool size exceeded"):
        rmm_cupy_allocator(1 << 30)


def test_negative_sizes_are_refused(cupy: Any) -> None:
    with pytest.raises(OverflowError):
        rmm_cupy_allocator(-1)


def test_a_missing_cupy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setitem(sys.modules, "cupy.cuda", None)
    _forget_cupy()
    with pytest.raises(ModuleNotFoundError, match="cupy"):
        rmm_cupy_allocator(1000)


# --- CuPy


@pytest.fixture
def real_cupy() -> Iterator[Any]:
    """Sets RMM's allocator in CuPy for one test."""
    if cuda_backend == "sim":
        pytest.skip("needs a GPU: the simulator runs no kernels")
    if find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    import cupy

    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("CuPy finds no GPU")
    _forget_cupy()
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    yield cupy
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)


@pytest.fixture
def counted() -> rmm.mr.StatisticsResourceAdaptor:
    resource = rmm.mr.StatisticsResourceAdaptor(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "64MiB", "1GiB"))
    rmm.mr.set_current_device_resource(resource)
    return resource


def test_arrays_are_allocated_from_the_pool(real_cupy: Any, counted: rmm.mr.StatisticsResourceAdaptor) -> None:
    array = real_cupy.arange(1000, dtype="i8")
    assert counted.allocation_counts.current_bytes == 8000
    assert array.device.id == 0
    assert int(array.sum()) == 499500
    del array
    assert counted.allocation_counts.current_bytes == 0


def test_computations_of_cupy_are_right(real_cupy: Any, counted: rmm.mr.StatisticsResourceAdaptor) -> None:
    cp = real_cupy
    signal = cp.random.default_rng(1).standard_normal(1 << 16)
    cp.testing.assert_allclose(cp.fft.ifft(cp.fft.fft(signal)).real, signal, atol=1e-10)
    matrix = cp.random.default_rng(2).standard_normal((300, 200))
    cp.testing.assert_allclose(matrix @ matrix.T, cp.asarray(matrix.get() @ matrix.get().T), rtol=1e-8, atol=1e-8)
    assert bool((cp.diff(cp.sort(signal)) >= 0).all())
    assert counted.allocation_counts.total_count > 5


def test_cupy_reports_out_of_memory_with_its_own_error(
    real_cupy: Any, counted: rmm.mr.StatisticsResourceAdaptor
) -> None:
    with pytest.raises(real_cupy.cuda.memory.OutOfMemoryError, match="Maximum pool size exceeded"):
        real_cupy.empty(4 << 30, dtype="u1")


def test_a_stream_of_cupy_that_is_gone_does_no_harm(real_cupy: Any, counted: rmm.mr.StatisticsResourceAdaptor) -> None:
    stream = real_cupy.cuda.Stream(non_blocking=True)
    with stream:
        array = real_cupy.ones(1000)
    del stream
    gc.collect()
    del array
    assert counted.allocation_counts.current_bytes == 0
