# SPDX-License-Identifier: Apache-2.0
"""The plug-in for CuPy: with a stand-in that records its arguments, and with CuPy itself on a GPU."""

from __future__ import annotations

import ctypes
import gc
import inspect
import pickle
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import librmm
import rmm
import rmm.mr
from rmm._build_facts import cuda_backend
from rmm._cuda import gpu
from rmm.allocators._cupy import _forget_cupy
from rmm.allocators.cupy import rmm_cupy_allocator
from rmm.pylibrmm.stream import Stream

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


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for `cupy.cuda`. Set `.stream` to change the current stream."""
    cuda: Any = ModuleType("cupy.cuda")
    cuda.stream = CupyStream()
    cuda.Stream = SimpleNamespace(null=cuda.stream)
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


def test_the_current_stream_comes_from_the_c_function_of_cupy(cupy: Any) -> None:
    options = b"struct __pyx_opt_args_4cupy_4cuda_6stream_get_current_stream *__pyx_optional_args"
    signature = b"PyObject *(int __pyx_skip_dispatch, " + options + b")"
    current: CupyStream = cupy.Stream.null
    asked = 0

    def tell_stream(skip_dispatch: int, optional_arguments: int | None) -> CupyStream:
        nonlocal asked
        asked += 1
        return current

    function = ctypes.CFUNCTYPE(ctypes.py_object, ctypes.c_int, ctypes.c_void_p)(tell_stream)
    offered = {"get_current_stream": capsule(function, signature)}
    cupy.stream = SimpleNamespace(__pyx_capi__=offered)  # not the stream that the Python function would return
    default = rmm.pylibrmm.stream.DEFAULT_STREAM
    assert rmm_cupy_allocator(1000).mem._owner.stream is default
    assert asked == 1
    current = CupyStream()  # as ExternalStream(0)
    assert rmm_cupy_allocator(1000).mem._owner.stream is default
    stream = Stream()
    current = CupyStream(stream)
    references = sys.getrefcount(current)
    pointer = rmm_cupy_allocator(1000)
    assert pointer.mem._owner.stream == stream
    assert asked == 3
    assert sys.getrefcount(current) > references  # the memory keeps the stream alive
    del pointer
    gc.collect()
    assert sys.getrefcount(current) == references


def test_c_functions_with_another_signature_are_not_called(cupy: Any) -> None:
    signature = b"int (void)"
    cupy.stream.__pyx_capi__ = {"get_current_stream": capsule(ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1), signature)}
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


def test_streams_that_others_refer_to_do_not_change(cupy: Any) -> None:
    streams = [Stream() for _ in range(4)]
    handles = [CupyStream(stream) for stream in streams]
    kept = []
    for cupy.stream in handles:
        buffer = rmm_cupy_allocator(1000).mem._owner
        kept.append(buffer.stream)
        del buffer
    assert kept == streams
    for cupy.stream in handles:
        rmm_cupy_allocator(1000)
    assert kept == streams
    assert len({id(stream) for stream in kept}) == 4


def all_streams() -> list[Stream]:
    gc.unfreeze()
    return [each for each in gc.get_objects() if type(each) is Stream]


def test_a_spare_stream_that_somebody_has_found_does_not_change(cupy: Any) -> None:
    first, second = Stream(), Stream()
    cupy.stream = CupyStream(first)
    rmm_cupy_allocator(1000)
    found = [each for each in all_streams() if each == first and each is not first]
    cupy.stream = CupyStream(second)
    pointer = rmm_cupy_allocator(1000)
    assert pointer.mem._owner.stream == second
    assert all(each == first for each in found)


def test_the_end_of_a_stream_may_allocate(cupy: Any) -> None:
    """The objects of streams are reused. Here one ends, and its owner allocates meanwhile."""
    other = CupyStream(Stream())
    before = len(all_streams())
    made: list[Any] = []

    class Allocates(CupyStream):
        def __del__(self) -> None:
            cupy.stream = other
            made.append(rmm_cupy_allocator(1000))
            rmm_cupy_allocator(1000)

    for _ in range(3):
        cupy.stream = Allocates(Stream())
        pointer = rmm_cupy_allocator(1000)
        cupy.stream = cupy.Stream.null
        del pointer
    assert [each.mem._owner.stream for each in made] == [other.owned] * 3
    references = sys.getrefcount(other)
    made.clear()
    assert sys.getrefcount(other) == references - 3  # none keeps it that has ended
    assert len(all_streams()) <= before + 1


def test_a_stream_ends_after_its_memory(cupy: Any) -> None:
    events: list[str] = []
    cuda = rmm.mr.CudaMemoryResource()

    class Watched(CupyStream):
        def __del__(self) -> None:
            events.append("end")

    def deallocate(pointer: int, nbytes: int, stream: Stream) -> None:
        events.append("free")
        cuda.deallocate(pointer, nbytes, stream)

    rmm.mr.set_current_device_resource(rmm.mr.CallbackMemoryResource(cuda.allocate, deallocate))
    for _ in range(2):
        cupy.stream = Watched(Stream())
        pointer = rmm_cupy_allocator(1000)
        cupy.stream = cupy.Stream.null
        del pointer
    assert events == ["free", "end"] * 2


@pytest.mark.skipif(cuda_backend != "sim", reason="looks at the simulator's runtime")
def test_memory_does_not_go_to_another_stream_with_the_same_handle(cupy: Any) -> None:
    """A block is freed on a stream that is still busy. The stream ends, and a new one gets its handle."""
    runtime = ctypes.CDLL(str(Path(librmm.__file__).parent / "lib" / "libcudart_sim.so"))
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)

    class Foreign(CupyStream):
        """A stream that pools do not know."""

        def __init__(self) -> None:
            handle = ctypes.c_void_p()
            assert runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
            self.ptr = handle.value or 0

        def __del__(self) -> None:
            assert runtime.cudaStreamDestroy(ctypes.c_void_p(self.ptr)) == 0

        def is_idle(self) -> bool:
            return int(runtime.cudaStreamQuery(ctypes.c_void_p(self.ptr))) == 0

    rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 20, 1 << 20))
    for _ in range(20):  # until it still sleeps: this thread may have to wait for a processor meanwhile
        stream = Foreign()
        handle = stream.ptr
        cupy.stream = stream
        pointer = rmm_cupy_allocator(1000)
        address = pointer.ptr
        assert runtime.cudaLaunchHostFunc(ctypes.c_void_p(handle), sleep, ctypes.c_void_p(300_000)) == 0
        cupy.stream = cupy.Stream.null
        del stream, pointer  # the memory goes back to the pool, then the stream ends
        cupy.stream = another = Foreign()
        assert another.ptr == handle, "the test needs a handle that comes back"
        pointer = rmm_cupy_allocator(1000)
        is_safe = pointer.ptr != address or not another.is_idle()
        cupy.stream = cupy.Stream.null
        if is_safe:
            break
        del pointer, another
    assert is_safe


def test_out_of_memory_is_the_error_of_cupy_with_the_report(cupy: Any, small_pool: rmm.mr.PoolMemoryResource) -> None:
    with pytest.raises(OutOfMemoryError, match="Maximum pool size exceeded"):
        rmm_cupy_allocator(1 << 30)


def test_arguments_are_those_of_a_python_function(cupy: Any) -> None:
    allocator: Any = rmm_cupy_allocator
    assert allocator(nbytes=1000).mem.size == allocator(*[1000]).mem.size == allocator(True).mem.size + 999 == 1000
    for positional, named in (((), {}), ((1, 2), {}), ((), {"size": 1}), ((1,), {"nbytes": 1})):
        with pytest.raises(TypeError, match=r"rmm_cupy_allocator\(\)"):
            allocator(*positional, **named)
    for wrong in (1.5, "1", None):
        with pytest.raises(TypeError):
            allocator(wrong)
    assert str(inspect.signature(allocator)) == "(nbytes)"
    assert allocator.__name__ == "rmm_cupy_allocator"
    assert allocator.__doc__.startswith("Allocate memory for CuPy")
    assert pickle.loads(pickle.dumps(allocator)) is allocator


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

programs_share = True


def reason_to_skip() -> str:
    """Returns why CuPy cannot be tested here; empty if it can."""
    if cuda_backend == "sim":
        return "needs a GPU: the simulator runs no kernels"
    if find_spec("cupy") is None:
        return "CuPy is not installed"
    probe = """if True:
        import cupy
        try:
            cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError:
            raise SystemExit(77)
    """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", probe], check=False, capture_output=True)
    return "CuPy finds no GPU" if done.returncode == 77 else ""


begin = """
    import gc
    import cupy as cp
    import rmm, rmm.mr
    from rmm.allocators.cupy import rmm_cupy_allocator
    counted = rmm.mr.StatisticsResourceAdaptor(
        rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "64MiB", "1GiB"))
    rmm.mr.set_current_device_resource(counted)
    cp.cuda.set_allocator(rmm_cupy_allocator)
"""


@pytest.mark.program("""
    array = cp.arange(1000, dtype="i8")
    assert counted.allocation_counts.current_bytes == 8000
    assert array.device.id == 0
    assert int(array.sum()) == 499500
    del array
    assert counted.allocation_counts.current_bytes == 0
""")
def test_arrays_are_allocated_from_the_pool(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program("""
    signal = cp.random.default_rng(1).standard_normal(1 << 16)
    cp.testing.assert_allclose(cp.fft.ifft(cp.fft.fft(signal)).real, signal, atol=1e-10)
    matrix = cp.random.default_rng(2).standard_normal((300, 200))
    cp.testing.assert_allclose(matrix @ matrix.T, cp.asarray(matrix.get() @ matrix.get().T), rtol=1e-8, atol=1e-8)
    assert bool((cp.diff(cp.sort(signal)) >= 0).all())
    assert counted.allocation_counts.total_count > 5
""")
def test_computations_of_cupy_are_right(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program("""
    try:
        cp.empty(4 << 30, dtype="u1")
    except cp.cuda.memory.OutOfMemoryError as error:
        print(error)
""")
def test_cupy_reports_out_of_memory_with_its_own_error(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert "Maximum pool size exceeded" in done.stdout


@pytest.mark.program("""
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        array = cp.ones(1000)
    del stream
    gc.collect()
    del array
    assert counted.allocation_counts.current_bytes == 0
""")
def test_a_stream_of_cupy_that_is_gone_does_no_harm(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
