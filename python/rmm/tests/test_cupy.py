# SPDX-License-Identifier: Apache-2.0
"""The plug-in for CuPy: with a stand-in that records its arguments, and with CuPy itself on a GPU."""

from __future__ import annotations

import ctypes
import gc
import inspect
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
    cupy.stream = CupyStream(second)
    _taken = rmm_cupy_allocator(1000)  # has the spare object, if there was one
    rmm.DeviceBuffer(size=1000, stream=Stream(first))
    found = [each for each in all_streams() if each == first and each is not first]
    assert len(found) == 1
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


# --- streams that CuPy makes, on the simulator

needs_simulator = pytest.mark.skipif(cuda_backend != "sim", reason="looks at the simulator's runtime")


class CppString(ctypes.Structure):
    """A std::string of libstdc++."""

    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t), ("capacity", ctypes.c_size_t * 2))


class Runtime:
    """The simulator's runtime, as CuPy uses that of CUDA."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(Path(librmm.__file__).parent / "lib" / "libcudart_sim.so"))
        self._count = self.library["_ZN7cudasim5callsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"]
        self._count.restype = ctypes.c_uint64

    def count(self, function: str) -> int:
        """Returns how often the function was called."""
        name = function.encode()
        return int(self._count(ctypes.byref(CppString(name, len(name)))))

    def make_stream(self) -> int:
        handle = ctypes.c_void_p()
        assert self.library.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
        return handle.value or 0

    def call(self, function: str, stream: int, *arguments: Any) -> int:
        return int(self.library[function](ctypes.c_void_p(stream), *arguments))


class EarlyStream:
    """A stream that pools do not know, as `cupy.cuda.Stream` before CuPy 14."""

    runtime: Runtime
    null: CupyStream
    asked = 0

    def __init__(self) -> None:
        self._handle = self.runtime.make_stream()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            assert self.runtime.call("cudaStreamDestroy", self._handle) == 0

    @property
    def ptr(self) -> int:
        EarlyStream.asked += 1
        return self._handle


class OwningStream(EarlyStream):
    """A stream as `cupy.cuda.Stream`, which can also refer to a stream of another owner."""

    def __init__(self) -> None:
        super().__init__()
        self._foreign_stream_ref: object = None

    def __del__(self) -> None:
        if getattr(self, "_foreign_stream_ref", None) is None:
            super().__del__()

    @classmethod
    def from_external(cls, stream: Any) -> OwningStream:
        made = cls.__new__(cls)
        made._handle = stream._handle
        made._foreign_stream_ref = stream
        return made


class DerivedStream(OwningStream):
    pass


class ExternalStream:
    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


@pytest.fixture
def runtime(cupy: Any) -> Runtime:
    """The runtime. Streams of CuPy are those of OwningStream, and a pool is the current resource."""
    EarlyStream.runtime = Runtime()
    EarlyStream.null = cupy.Stream.null
    cupy.Stream = OwningStream
    _forget_cupy()
    rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 20, 1 << 20))
    return EarlyStream.runtime


def questions_in(runtime: Runtime, calls: int) -> tuple[int, int, int]:
    """Returns how often `calls` allocations asked for a handle, for an identity, and, with their frees, for captures."""
    for _ in range(300):  # at first, each free on a stream that may end at any time gets an event
        rmm_cupy_allocator(1000)
    functions = "cudaStreamGetId", "cudaStreamIsCapturing"
    before = [EarlyStream.asked, *map(runtime.count, functions)]
    for _ in range(calls):
        rmm_cupy_allocator(1000)
    handles, identities, captures = (
        now - then for now, then in zip([EarlyStream.asked, *map(runtime.count, functions)], before, strict=True)
    )
    return handles, identities, captures


def handle_of(pointer: Any) -> int:
    handle: int = pointer.mem._owner.stream.__cuda_stream__()[1]
    return handle


@needs_simulator
@pytest.mark.parametrize("made", [OwningStream, EarlyStream])
def test_a_stream_that_cupy_owns_is_identified_once(cupy: Any, runtime: Runtime, made: type[EarlyStream]) -> None:
    cupy.Stream = made
    _forget_cupy()
    cupy.stream = stream = made()
    handles, identities, captures = questions_in(runtime, 100)
    assert (handles, identities) == (0, 0)
    assert captures >= 200
    assert handle_of(rmm_cupy_allocator(1000)) == stream._handle


@needs_simulator
def test_a_stream_of_another_owner_is_always_identified(cupy: Any, runtime: Runtime) -> None:
    owner = OwningStream()
    for cupy.stream in OwningStream.from_external(owner), ExternalStream(owner._handle), DerivedStream():
        assert questions_in(runtime, 100)[1] == 100


@needs_simulator
def test_a_default_stream_keeps_its_handle(cupy: Any, runtime: Runtime) -> None:
    for handle, identities in (1, 0), (2, 1):  # a new cache asks
        cupy.stream = OwningStream.from_external(SimpleNamespace(_handle=handle))
        cupy.stream._foreign_stream_ref = None  # as Stream.ptds
        before = runtime.count("cudaStreamGetId")
        for _ in range(2):
            assert handle_of(rmm_cupy_allocator(1000)) == handle
        assert runtime.count("cudaStreamGetId") == before + identities
        cupy.stream._foreign_stream_ref = cupy.stream.null


@needs_simulator
def test_the_driver_is_asked_once_a_call_for_the_current_device(cupy: Any, runtime: Runtime) -> None:
    for stream, frees in (cupy.stream, 1), (OwningStream(), 0):  # only a default stream depends on the device
        cupy.stream = stream
        questions_in(runtime, 1)
        before = runtime.count("cudaGetDevice"), runtime.count("cuCtxGetDevice")
        for _ in range(10):
            rmm_cupy_allocator(1000)
        assert runtime.count("cudaGetDevice") == before[0]
        assert runtime.count("cuCtxGetDevice") == before[1] + 10 * (1 + frees)  # the driver answers faster


@needs_simulator
def test_streams_that_come_and_go_are_told_apart(cupy: Any, runtime: Runtime) -> None:
    def references() -> int:
        gc.collect()
        return sum(type(each) is weakref.ReferenceType for each in gc.get_objects())

    before = references()
    addresses = set()
    for _ in range(3000):
        spare = OwningStream()
        cupy.stream = OwningStream()
        addresses.add(id(cupy.stream))
        assert handle_of(rmm_cupy_allocator(1000)) == cupy.stream._handle
        cupy.stream, spare = spare, cupy.stream
        assert handle_of(rmm_cupy_allocator(1000)) == cupy.stream._handle
        del spare
    assert len(addresses) < 2000
    assert references() - before < 100


@needs_simulator
@pytest.mark.parametrize("derived", [False, True], ids=["class of CuPy", "derived class"])
@pytest.mark.parametrize("external", [False, True], ids=["owner", "reference"])
def test_a_cycle_frees_before_its_stream_ends(cupy: Any, runtime: Runtime, derived: bool, external: bool) -> None:
    events: list[str] = []
    cuda = rmm.mr.CudaMemoryResource()

    class Watched(OwningStream):
        def __del__(self) -> None:
            if self._foreign_stream_ref is None:
                events.append("end")
            super().__del__()

    def deallocate(pointer: int, nbytes: int, stream: Stream) -> None:
        events.append("free")
        cuda.deallocate(pointer, nbytes, stream)

    rmm.mr.set_current_device_resource(rmm.mr.CallbackMemoryResource(cuda.allocate, deallocate))
    cupy.Stream = OwningStream if derived else Watched
    _forget_cupy()
    for _ in range(2):
        cupy.stream = Watched.from_external(Watched()) if external else Watched()
        cycle: list[Any] = [rmm_cupy_allocator(1000), rmm_cupy_allocator(1000)]
        cycle.append(cycle)
        cupy.stream = EarlyStream.null
        del cycle
        gc.collect()
    assert events == ["free", "free", "end"] * 2


@needs_simulator
def test_the_garbage_collector_does_not_see_streams_of_buffers(cupy: Any, runtime: Runtime) -> None:
    """Whatever the stream is, and whether it is one of the few that are remembered."""
    owner = OwningStream()
    streams = DerivedStream(), OwningStream.from_external(owner), ExternalStream(owner._handle)
    for cupy.stream in (*streams, *(OwningStream() for _ in range(300)), *streams):
        assert not gc.is_tracked(rmm_cupy_allocator(1000).mem._owner.stream)
    assert gc.is_tracked(Stream(CupyStream(Stream())))  # the package reuses the object


@needs_simulator
def test_more_streams_than_are_remembered(cupy: Any, runtime: Runtime) -> None:
    streams = [OwningStream() for _ in range(300)]
    for _ in range(3):
        for cupy.stream in streams:
            assert handle_of(rmm_cupy_allocator(1000)) == cupy.stream._handle
    cupy.stream = streams[-1]
    for _ in range(600):  # until one that is no longer used gives up its place
        rmm_cupy_allocator(1000)
    assert questions_in(runtime, 100)[:2] == (0, 0)


@needs_simulator
def test_threads_have_streams_of_their_own(cupy: Any, runtime: Runtime) -> None:
    current = threading.local()
    cupy.get_current_stream = lambda: current.stream
    _forget_cupy()

    def allocate(_: int) -> bool:
        right = True
        for _ in range(20):
            streams = [OwningStream() for _ in range(10)]
            for current.stream in streams * 3:
                right = right and handle_of(rmm_cupy_allocator(1000)) == current.stream._handle
        return right

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(allocate, range(4)))


@needs_simulator
def test_a_stream_that_captures_is_identified_later(cupy: Any, runtime: Runtime) -> None:
    cupy.stream = stream = OwningStream()
    for _ in range(2):  # a new stream, and one whose identity is known
        assert runtime.call("cudaStreamBeginCapture", stream._handle, 0) == 0
        identities = runtime.count("cudaStreamGetId")
        with pytest.raises(RuntimeError, match="captures a CUDA graph"):
            rmm_cupy_allocator(1000)
        assert runtime.count("cudaStreamGetId") == identities  # the question would invalidate the capture
        graph = ctypes.c_void_p()
        assert runtime.call("cudaStreamEndCapture", stream._handle, ctypes.byref(graph)) == 0
        assert runtime.library.cudaGraphDestroy(graph) == 0
        assert questions_in(runtime, 100)[:2] == (0, 0)


@needs_simulator
@pytest.mark.parametrize("owned", [False, True], ids=["of another owner", "that CuPy owns"])
def test_memory_does_not_go_to_another_stream_with_the_same_handle(cupy: Any, runtime: Runtime, owned: bool) -> None:
    """A block is freed on a stream that is still busy. The stream ends, and a new one gets its handle.

    The object of the new stream is at the address of the other one.
    """
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
    make: Any = OwningStream if owned else DerivedStream
    _others = [make(), *(make.__new__(make) for _ in range(40))]  # CPython makes the first objects of a class larger
    for _ in range(20):  # until it still sleeps: this thread may have to wait for a processor meanwhile
        stream = make()
        handle, place = stream.ptr, id(stream)
        cupy.stream = stream
        pointer = rmm_cupy_allocator(1000)
        address = pointer.ptr
        assert runtime.call("cudaLaunchHostFunc", handle, sleep, ctypes.c_void_p(300_000)) == 0
        cupy.stream = cupy.Stream.null
        del stream, pointer  # the memory goes back to the pool, then the stream ends
        others: list[OwningStream] = []
        while id(another := make.__new__(make)) != place and len(others) < 100_000:
            others.append(another)
        another.__init__()
        assert (another.ptr, id(another)) == (handle, place), "the test needs a handle and an address that come back"
        cupy.stream = another
        pointer = rmm_cupy_allocator(1000)
        is_safe = pointer.ptr != address or runtime.call("cudaStreamQuery", handle) != 0
        cupy.stream = cupy.Stream.null
        if is_safe:
            break
        del pointer, another
    assert is_safe


# --- errors


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
