# SPDX-License-Identifier: Apache-2.0
"""rmm.DeviceBuffer"""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, ClassVar, Self
from unittest import mock

import numpy as np
import pytest

import librmm
import rmm
from rmm._build_facts import cuda_backend
from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from rmm.pylibrmm.device_buffer import (
    _is_called_directly,
    copy_device_to_ptr,
    copy_host_to_ptr,
    copy_ptr_to_host,
    to_device,
)
from rmm.pylibrmm.stream import DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream

bad_hosts = [
    pytest.param(None, TypeError, id="None"),
    pytest.param("abc", TypeError, id="str"),
    pytest.param(3, TypeError, id="int"),
    pytest.param(np.zeros(4, dtype="i4"), ValueError, id="wrong format"),
    pytest.param(np.zeros((2, 2), dtype="u1"), ValueError, id="two dimensions"),
    pytest.param(np.zeros(8, dtype="u1")[::2], ValueError, id="strided"),
]


@pytest.mark.parametrize("size", [0, 1, 5, 1000, 1 << 20])
def test_sizes_agree(size: int) -> None:
    buffer = rmm.DeviceBuffer(size=size)
    assert buffer.size == buffer.nbytes == len(buffer) == buffer.__sizeof__() == size
    assert buffer.capacity() >= size


def test_an_empty_buffer_has_no_address() -> None:
    assert rmm.DeviceBuffer().ptr == 0
    assert rmm.DeviceBuffer(size=1).ptr % 256 == 0
    assert rmm.DeviceBuffer(size=1).ptr != 0


def test_arguments_are_keywords() -> None:
    with pytest.raises(TypeError):
        rmm.DeviceBuffer(10)  # type: ignore[call-arg]


class OwnInt(int):
    pass


class OwnStream(Stream):
    pass


class OwnBuffer(rmm.DeviceBuffer):
    pass


def outcome_of(call: Callable[[], rmm.DeviceBuffer]) -> tuple[Any, ...]:
    try:
        buffer = call()
    except MemoryError as error:  # its text says how often memory ran out
        return (type(error),)
    except (TypeError, ValueError, OverflowError) as error:
        return (type(error), str(error))
    return (type(buffer), buffer.size, buffer.stream, type(buffer.stream), buffer.mr)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"size": 0},
        {"size": 5},
        {"".join(("si", "ze")): 5},  # another object than the name in the package
        {"size": True},
        {"size": np.int64(5)},
        {"size": OwnInt(5)},
        {"size": -1},
        {"size": 1 << 62},
        {"size": 1 << 64},
        {"size": 1.5},
        {"size": "5"},
        {"size": None},
        {"size": 5, "stream": PER_THREAD_DEFAULT_STREAM},
        {"stream": PER_THREAD_DEFAULT_STREAM, "size": 5},
        {"stream": PER_THREAD_DEFAULT_STREAM},
        {"size": 5, "stream": OwnStream()},
        {"size": 5, "stream": None},
        {"size": 5, "stream": 0},
        {"size": -1, "stream": 0},
        {"size": 5, "mr": None},
        {"size": 5, "mr": rmm.mr.CudaMemoryResource()},
        {"size": 5, "ptr": 0},
        {"size": 5, "other": 5},
        {"sizes": 5},
    ],
    ids=str,
)
@pytest.mark.parametrize("positional", [(), (5,)], ids=str)
def test_direct_calls_do_what_calls_with_a_dict_do(arguments: dict[str, Any], positional: tuple[Any, ...]) -> None:
    assert _is_called_directly
    usual = outcome_of(lambda: type.__call__(rmm.DeviceBuffer, *positional, **arguments))
    assert outcome_of(lambda: rmm.DeviceBuffer(*positional, **arguments)) == usual


def test_direct_calls_keep_no_reference_to_their_arguments() -> None:
    size, stream = int("1000"), Stream()
    before = sys.getrefcount(size), sys.getrefcount(stream)
    for _ in range(1000):
        rmm.DeviceBuffer(size=size, stream=stream)
        with pytest.raises(TypeError):
            rmm.DeviceBuffer(size=size, stream=stream, other=stream)  # type: ignore[call-arg]
    assert (sys.getrefcount(size), sys.getrefcount(stream)) == before


def test_a_direct_call_does_not_pass_over_a_mock() -> None:
    seen = []
    with mock.patch.object(rmm.DeviceBuffer, "__init__", lambda _, **arguments: seen.append(arguments)):
        rmm.DeviceBuffer(size=5)
    assert seen == [{"size": 5}]
    assert rmm.DeviceBuffer(size=5).size == 5


def test_a_call_of_a_derived_class_makes_an_object_of_it() -> None:
    class Named(rmm.DeviceBuffer):
        def __init__(self, *, size: int, name: str = "none") -> None:
            self.name = name

        def __new__(cls, *, size: int, name: str = "none") -> Self:
            return super().__new__(cls, size=size)

    assert type(OwnBuffer(size=5)) is OwnBuffer
    named = Named(size=5, name="five")
    assert (type(named), named.size, named.name) == (Named, 5, "five")


@pytest.mark.parametrize("stream", ["0", 0, object()])
def test_a_stream_of_another_type_is_refused(stream: Any) -> None:
    with pytest.raises(TypeError):
        rmm.DeviceBuffer(size=1, stream=stream)


def test_stream_none_is_refused_everywhere() -> None:
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    none: Any = None
    for call in (
        lambda: rmm.DeviceBuffer(size=1, stream=none),
        lambda: to_device(b"abc", stream=none),
        lambda: buffer.resize(1, stream=none),
        lambda: buffer.reserve(1, stream=none),
        lambda: buffer.tobytes(stream=none),
        lambda: buffer.copy_to_host(stream=none),
        lambda: buffer.copy_from_host(b"a", stream=none),
        lambda: buffer.copy_from_device(buffer, stream=none),
        lambda: copy_ptr_to_host(buffer.ptr, bytearray(1), stream=none),
        lambda: copy_host_to_ptr(b"a", buffer.ptr, stream=none),
        lambda: copy_host_to_ptr(b"", buffer.ptr, stream=none),
        lambda: copy_ptr_to_host(buffer.ptr, bytearray(), stream=none),
        lambda: copy_device_to_ptr(buffer.ptr, buffer.ptr, 1, stream=none),
    ):
        with pytest.raises(TypeError, match="stream argument cannot be None"):
            call()


@pytest.mark.parametrize("size", [-1, 1 << 64])
def test_invalid_sizes_are_refused(size: int) -> None:
    with pytest.raises(OverflowError):
        rmm.DeviceBuffer(size=size)


@pytest.mark.parametrize("size", [1 << 62, (1 << 64) - 1])
def test_absurd_sizes_are_out_of_memory(size: int) -> None:
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=size)


def test_a_wrong_resource_is_refused() -> None:
    resource: Any = "pool"
    with pytest.raises(TypeError):
        rmm.DeviceBuffer(size=1, mr=resource)
    with pytest.raises(TypeError, match="is not a resource"):
        rmm.DeviceBuffer(size=1, mr=rmm.mr.DeviceMemoryResource())


@pytest.mark.parametrize("stream", [DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, "new"])
def test_content_is_copied_from_an_address(stream: Any) -> None:
    stream = Stream() if stream == "new" else stream
    source = np.arange(100, dtype="u1")
    buffer = rmm.DeviceBuffer(ptr=source.ctypes.data, size=source.size, stream=stream)
    assert buffer.tobytes(stream) == source.tobytes()
    again = rmm.DeviceBuffer(ptr=buffer.ptr, size=buffer.size, stream=stream)
    assert again.ptr != buffer.ptr
    assert again.tobytes(stream) == source.tobytes()


def test_a_null_address_leaves_the_memory_as_it_is() -> None:
    assert rmm.DeviceBuffer(ptr=0, size=10).size == 10


def test_the_array_interface_has_exactly_five_keys() -> None:
    buffer = rmm.DeviceBuffer(size=10)
    assert buffer.__cuda_array_interface__ == {
        "data": (buffer.ptr, False),
        "shape": (10,),
        "strides": None,
        "typestr": "|u1",
        "version": 0,
    }
    assert rmm.DeviceBuffer().__cuda_array_interface__["data"] == (0, False)


@pytest.mark.parametrize("host", [b"", b"abc", bytearray(b"abc"), memoryview(b"abc"), np.arange(3, dtype="u1")])
def test_bytes_go_to_the_device_and_back(host: Any) -> None:
    for buffer in (rmm.DeviceBuffer.to_device(host), to_device(host)):
        assert bytes(buffer) == buffer.tobytes() == bytes(host)


@pytest.mark.parametrize(("host", "error"), bad_hosts)
def test_to_device_refuses_other_types(host: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        rmm.DeviceBuffer.to_device(host)
    with pytest.raises(error):
        to_device(host)


def test_copy_to_host_makes_an_array() -> None:
    array = rmm.DeviceBuffer.to_device(b"abc").copy_to_host()
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.uint8
    assert array.tobytes() == b"abc"


@pytest.mark.parametrize("host", [bytearray(5), np.zeros(5, dtype="u1")])
def test_copy_to_host_fills_the_given_buffer(host: Any) -> None:
    assert rmm.DeviceBuffer.to_device(b"abc").copy_to_host(host) is host
    assert bytes(host) == b"abc\0\0"


def test_copy_to_host_refuses_too_little_room() -> None:
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    with pytest.raises(ValueError, match="too small"):
        buffer.copy_to_host(bytearray(2))
    with pytest.raises((ValueError, BufferError)):
        buffer.copy_to_host(b"abc")


def test_copy_from_host_overwrites_the_beginning() -> None:
    buffer = rmm.DeviceBuffer.to_device(b"abcde")
    buffer.copy_from_host(b"XY")
    assert buffer.tobytes() == b"XYcde"
    with pytest.raises(ValueError, match="too large"):
        buffer.copy_from_host(b"123456")
    assert buffer.tobytes() == b"XYcde"


@pytest.mark.parametrize(("host", "error"), bad_hosts)
def test_copy_from_host_refuses_other_types(host: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        rmm.DeviceBuffer(size=100).copy_from_host(host)


class Array:
    """Device memory as another library shows it."""

    def __init__(self, buffer: rmm.DeviceBuffer, **changes: Any) -> None:
        self.buffer = buffer
        self.__cuda_array_interface__ = {**buffer.__cuda_array_interface__, **changes}


def test_copy_from_device_overwrites_the_beginning() -> None:
    buffer = rmm.DeviceBuffer.to_device(b"abcde")
    buffer.copy_from_device(rmm.DeviceBuffer.to_device(b"XY"))
    assert buffer.tobytes() == b"XYcde"
    words = Array(rmm.DeviceBuffer.to_device(b"1234"), typestr="<u2", shape=(2,), strides=(2,))
    buffer.copy_from_device(words)
    assert buffer.tobytes() == b"1234e"


@pytest.mark.parametrize(
    "changes", [{"shape": (2, 2)}, {"strides": (2,), "shape": (2,)}, {"shape": (3,), "typestr": "<i8"}, {"shape": (6,)}]
)
def test_copy_from_device_refuses_unsuitable_arrays(changes: dict[str, Any]) -> None:
    buffer = rmm.DeviceBuffer(size=5)
    source = Array(rmm.DeviceBuffer(size=100), **changes)
    with pytest.raises(ValueError, match=r"1-D|contiguous|too large"):
        buffer.copy_from_device(source)
    with pytest.raises(ValueError, match="__cuda_array_interface__"):
        buffer.copy_from_device(np.zeros(3, dtype="u1"))  # type: ignore[arg-type]


def test_from_device_waits_for_the_stream_of_the_array() -> None:
    stream = Stream()
    source = rmm.DeviceBuffer.to_device(b"abc", stream=stream)
    array = Array(source, stream=stream.__cuda_stream__()[1], version=3)
    assert rmm.DeviceBuffer.from_device(array).tobytes() == b"abc"


def test_from_device_takes_arrays_of_any_type() -> None:
    buffer = rmm.DeviceBuffer.from_device(Array(rmm.DeviceBuffer(size=24), typestr="<f8", shape=(3, 1), strides=(8, 8)))
    assert buffer.size == 24
    with pytest.raises(ValueError, match="contiguous"):
        rmm.DeviceBuffer.from_device(Array(rmm.DeviceBuffer(size=24), typestr="<f8", shape=(2,), strides=(16,)))
    nowhere = SimpleNamespace(__cuda_array_interface__={"shape": (3,), "typestr": "|u1", "data": (0, False)})
    with pytest.raises(ValueError, match="no address"):
        rmm.DeviceBuffer.from_device(nowhere)
    with pytest.raises(TypeError, match="neither"):
        rmm.DeviceBuffer.from_device(b"abc")  # type: ignore[arg-type]


def test_copies_have_memory_of_their_own_from_the_same_resource(cuda: rmm.mr.CudaMemoryResource) -> None:
    stream = Stream()
    buffer = rmm.DeviceBuffer(size=3, mr=cuda, stream=stream)
    buffer.copy_from_host(b"abc", stream)
    for made in (buffer.copy(), copy.copy(buffer)):
        assert made.ptr != buffer.ptr
        assert made.mr is cuda
        assert made.stream is stream
        assert made.tobytes(stream) == b"abc"
    assert rmm.DeviceBuffer().copy().size == 0


@pytest.mark.skipif(cuda_backend != "sim", reason="looks at the simulator's runtime")
@pytest.mark.parametrize("is_default", [True, False])
def test_a_copy_waits_for_the_default_stream_and_for_no_other(is_default: bool) -> None:
    stream = DEFAULT_STREAM if is_default else Stream()
    runtime = ctypes.CDLL(str(Path(librmm.__file__).parent / "lib" / "libcudart_sim.so"))
    is_copied, done = Event(), Event()

    def wait(_: object) -> None:
        is_copied.wait(0.5 if is_default else 30)  # a copy that waits for the other stream takes 30 s
        done.set()

    work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(wait)
    buffer = rmm.DeviceBuffer.to_device(b"abc", stream=stream)
    assert runtime.cudaLaunchHostFunc(ctypes.c_void_p(stream.__cuda_stream__()[1]), work, None) == 0
    made = buffer.copy()
    assert done.is_set() == is_default
    is_copied.set()
    assert made.tobytes(stream) == b"abc"
    assert done.is_set()


def test_reserve_and_resize() -> None:
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    buffer.reserve(100)
    assert (buffer.size, buffer.capacity()) == (3, 100)
    address = buffer.ptr
    buffer.resize(50)
    assert (buffer.size, buffer.ptr) == (50, address)
    assert buffer.tobytes()[:3] == b"abc"
    buffer.resize(2)
    assert (buffer.tobytes(), buffer.capacity()) == (b"ab", 100)
    empty = rmm.DeviceBuffer()
    empty.resize(10)
    assert empty.size == 10


def test_a_buffer_is_given_back_on_the_stream_of_its_last_change() -> None:
    freed = []
    cuda = rmm.mr.CudaMemoryResource()

    def deallocate(ptr: int, nbytes: int, stream: Stream) -> None:
        freed.append(stream)
        cuda.deallocate(ptr, nbytes, stream)

    resource = rmm.mr.CallbackMemoryResource(cuda.allocate, deallocate)
    first, second = Stream(), Stream()
    buffer = rmm.DeviceBuffer(size=10, stream=first, mr=resource)
    buffer.resize(5, stream=second)
    assert buffer.stream is second
    del buffer
    assert freed == [second]


def test_prefetch_ignores_memory_that_does_not_move() -> None:
    rmm.DeviceBuffer(size=10).prefetch()
    buffer = rmm.DeviceBuffer(size=10, mr=rmm.mr.ManagedMemoryResource())
    buffer.prefetch()
    buffer.prefetch(device=0, stream=Stream())
    buffer.stream.synchronize()
    with pytest.raises(TypeError):
        buffer.prefetch(stream="0")  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("content", [b"", b"abc"])
def test_buffers_are_pickled(protocol: int, content: bytes) -> None:
    again = pickle.loads(pickle.dumps(rmm.DeviceBuffer.to_device(content), protocol))
    assert isinstance(again, rmm.DeviceBuffer)
    assert again.tobytes() == content


def test_out_of_band_pickling_hands_out_one_buffer() -> None:
    parts: list[pickle.PickleBuffer] = []
    text = pickle.dumps(rmm.DeviceBuffer.to_device(b"abc"), protocol=5, buffer_callback=parts.append)
    assert [part.raw().tobytes() for part in parts] == [b"abc"]
    assert pickle.loads(text, buffers=parts).tobytes() == b"abc"


def test_pointer_functions_copy_between_host_and_device() -> None:
    buffer = rmm.DeviceBuffer(size=4)
    copy_host_to_ptr(b"abcd", buffer.ptr)
    host = bytearray(4)
    copy_ptr_to_host(buffer.ptr, host)
    assert host == b"abcd"
    other = rmm.DeviceBuffer(size=4)
    copy_device_to_ptr(buffer.ptr, other.ptr, 4)
    assert other.tobytes() == b"abcd"
    copy_host_to_ptr(b"", 0)
    with pytest.raises(TypeError):
        copy_ptr_to_host(buffer.ptr, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        copy_host_to_ptr(None, buffer.ptr)  # type: ignore[arg-type]


def test_a_failed_copy_is_a_runtime_error(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="Memcpy failed with error: "):
        copy_device_to_ptr(0, 0, 100)
    capfd.readouterr()  # removes the simulator's message


class Described:
    """An array with a given `__cuda_array_interface__`."""

    def __init__(self, interface: Any) -> None:
        self.__cuda_array_interface__ = interface


def described(buffer: rmm.DeviceBuffer, **changes: Any) -> Any:
    interface = {**buffer.__cuda_array_interface__, **changes}
    return Described({name: value for name, value in interface.items() if value is not ...})


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"shape": ...}, ValueError, "has no 'shape'"),
        ({"typestr": ...}, ValueError, "has no 'typestr'"),
        ({"data": ...}, ValueError, "has no 'data'"),
        ({"shape": 8}, TypeError, "shape of .* tuple of ints, and is 8"),
        ({"shape": ("8",)}, TypeError, "shape of .* tuple of ints"),
        ({"shape": (8.0,)}, TypeError, "shape of .* tuple of ints"),
        ({"shape": (-8,)}, ValueError, "below 0"),
        ({"typestr": 1}, TypeError, "typestr of .* has to be a str"),
        ({"typestr": ""}, ValueError, "no type of elements"),
        ({"typestr": "u1"}, ValueError, "no type of elements"),
        ({"typestr": "|u"}, ValueError, "no type of elements"),
        ({"typestr": "|u-1"}, ValueError, "no type of elements"),
        ({"typestr": "|O8"}, ValueError, "no type of elements"),
        ({"data": 4096}, TypeError, "an address and whether"),
        ({"data": ("4096", False)}, TypeError, "data of .* tuple of ints"),
        ({"data": (0, False)}, ValueError, "8 bytes and no address"),
        ({"data": (None, False)}, ValueError, "8 bytes and no address"),
        ({"data": (-1, False)}, OverflowError, "negative"),
        ({"strides": 1}, TypeError, "strides of .* tuple of ints"),
        ({"strides": (1, 1)}, ValueError, "not as many"),
        ({"strides": (2,)}, ValueError, "has to be contiguous"),
        ({"shape": (1 << 62, 1 << 62)}, OverflowError, "too large"),
        ({"stream": "1"}, TypeError, "integer"),
    ],
    ids=str,
)
def test_invalid_array_interfaces_are_refused(changes: dict[str, Any], error: type, text: str) -> None:
    buffer = rmm.DeviceBuffer.to_device(b"abcdefgh")
    with pytest.raises(error, match=text):
        rmm.DeviceBuffer.from_device(described(buffer, **changes))
    if changes.get("shape") != (1 << 62, 1 << 62):
        with pytest.raises(error, match=text):
            rmm.DeviceBuffer(size=8).copy_from_device(described(buffer, **changes))


def test_an_array_interface_has_to_be_a_dict() -> None:
    bad: Any
    for bad in ([], "interface", 7):
        with pytest.raises(TypeError, match="has to be a dict"):
            rmm.DeviceBuffer.from_device(Described(bad))
        with pytest.raises(TypeError, match="has to be a dict"):
            rmm.DeviceBuffer(size=8).copy_from_device(Described(bad))


@pytest.mark.parametrize(
    ("typestr", "shape"), [("<f4", (2,)), ("<U1", (2,)), ("|S8", ()), ("<M8[ns]", (1,)), ("|V4", (2, 1)), ("|b1", [8])]
)
def test_elements_of_all_kinds_have_their_size(typestr: str, shape: Any) -> None:
    buffer = rmm.DeviceBuffer.to_device(b"abcdefgh")
    copy = rmm.DeviceBuffer.from_device(described(buffer, typestr=typestr, shape=shape))
    assert copy.tobytes() == b"abcdefgh"


def test_fractional_sizes_are_a_type_error() -> None:
    """They are not rounded."""
    wrong: Any = 1.5
    buffer = rmm.DeviceBuffer(size=8)
    cuda = rmm.mr.CudaMemoryResource()
    for call in (
        lambda: rmm.DeviceBuffer(size=wrong),
        lambda: rmm.DeviceBuffer(ptr=wrong, size=1),
        lambda: buffer.resize(wrong),
        lambda: buffer.reserve(wrong),
        lambda: buffer.prefetch(device=wrong),
        lambda: copy_device_to_ptr(buffer.ptr, buffer.ptr, wrong),
        lambda: cuda.allocate(wrong),
        lambda: cuda.deallocate(buffer.ptr, wrong),
        lambda: rmm.mr.LimitingResourceAdaptor(cuda, wrong),
        lambda: rmm.mr.FixedSizeMemoryResource(cuda, wrong),
        lambda: rmm.mr.BinningMemoryResource(cuda, wrong, 20),
        lambda: rmm.mr.get_per_device_resource(wrong),
        lambda: rmm._cuda.gpu.setDevice(wrong),
        lambda: CudaStreamPool(wrong),
        lambda: rmm.DeviceBuffer(size="8"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match="integer"):
            call()
    assert buffer.size == 8


def test_integers_of_numpy_are_accepted_as_sizes() -> None:
    assert rmm.DeviceBuffer(size=np.uint16(8)).size == 8  # type: ignore[arg-type]


def test_no_comparison_by_content_and_no_indexing() -> None:
    buffer: Any = rmm.DeviceBuffer.to_device(b"abc")
    assert buffer != rmm.DeviceBuffer.to_device(b"abc")
    assert {buffer: 1}[buffer] == 1
    with pytest.raises(TypeError):
        buffer[0]


def test_the_resource_lives_as_long_as_the_buffer() -> None:
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=1 << 20)
    rmm.mr.set_current_device_resource(pool)
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    assert buffer.mr is pool
    del pool
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
    gc.collect()
    assert buffer.tobytes() == b"abc"
    buffer.resize(1000)
    assert buffer.tobytes()[:3] == b"abc"


def test_the_stream_lives_as_long_as_the_buffer() -> None:
    buffer = rmm.DeviceBuffer(size=10, stream=Stream())
    gc.collect()
    buffer.stream.synchronize()
    buffer.resize(20, buffer.stream)


def test_a_buffer_in_a_cycle_survives_its_collection() -> None:
    class Holder:
        pass

    holder: Any = Holder()
    holder.itself = holder
    holder.pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=1 << 20)
    rmm.mr.set_current_device_resource(holder.pool)
    holder.buffers = [rmm.DeviceBuffer(size=100) for _ in range(10)]
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
    del holder
    gc.collect()


def test_a_representation_shows_size_address_stream_and_resource() -> None:
    buffer = rmm.DeviceBuffer(size=10)
    assert repr(buffer) == f"DeviceBuffer(size=10, ptr={buffer.ptr:#x}, stream=Stream(0x0), mr=CudaMemoryResource())"


@pytest.mark.usefixtures("device_alone")
def test_a_buffer_tells_its_own_device_and_not_the_current_one(second_device: int) -> None:
    buffer = rmm.DeviceBuffer(size=10)
    rmm._cuda.gpu.setDevice(second_device)
    assert buffer.__dlpack_device__() == (2, 0)
    assert rmm.DeviceBuffer().__dlpack_device__() == (2, second_device)


def test_a_buffer_is_freed_on_its_own_device(second_device: int) -> None:
    with_second = rmm._cuda.gpu
    with_second.setDevice(second_device)
    free = rmm.mr.available_device_memory()[0]
    buffer = rmm.DeviceBuffer(size=1 << 20)
    assert buffer.__dlpack_device__() == (2, second_device)
    assert rmm.mr.available_device_memory()[0] < free
    with_second.setDevice(0)
    del buffer
    assert with_second.getDevice() == 0
    with_second.setDevice(second_device)
    assert rmm.mr.available_device_memory()[0] == free


def test_no_reference_to_none_is_lost() -> None:
    before = sys.getrefcount(DEFAULT_STREAM)
    for _ in range(100):
        rmm.DeviceBuffer(size=10)
    assert sys.getrefcount(DEFAULT_STREAM) == before


class Watchful(rmm.DeviceBuffer):
    """Looks at itself in its __del__, and keeps what it finds."""

    heard: ClassVar[list[str]] = []

    def __del__(self) -> None:
        looks = (
            lambda: self.size,
            lambda: self.ptr,
            lambda: self.capacity(),
            lambda: self.reserve(10),
            lambda: self.resize(10),
            lambda: self.tobytes(),
            lambda: self.copy(),
            lambda: self.prefetch(),
            lambda: self.copy_from_host(b"a"),
            lambda: self.__dlpack__(),
            lambda: repr(self),
        )
        for look in looks:
            try:
                look()
            except ValueError as error:
                self.heard.append(str(error))


@pytest.mark.parametrize(
    "arguments", [{"size": 10, "stream": None}, {"size": 10, "mr": 5}, {"ptr": 8, "size": 1 << 50}]
)
def test_a_buffer_that_could_not_be_made_can_be_looked_at(arguments: dict[str, Any]) -> None:
    Watchful.heard.clear()
    with pytest.raises((MemoryError, TypeError)):
        Watchful(**arguments)
    gc.collect()
    assert Watchful.heard == ["the buffer was not made, or was given away"] * 11


def test_a_stream_of_none_is_refused_where_arrays_are_copied() -> None:
    source = rmm.DeviceBuffer.to_device(b"abc")
    for each in (source, np.arange(3)):
        with pytest.raises(TypeError, match="stream argument cannot be None"):
            rmm.DeviceBuffer.from_device(each, stream=None)  # type: ignore[arg-type]


def test_buffers_of_all_sizes_go_back_on_any_thread() -> None:
    """Sizes that the fast path serves, and others: the live bytes are always the sum of the held buffers."""
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 24, 1 << 24)
    rmm.mr.set_current_device_resource(pool)
    stream = Stream()
    random = Random(1)

    def use() -> None:
        held: list[rmm.DeviceBuffer] = []
        for _ in range(2000):
            size = random.choice([0, 1, 256, 5000, 70_000, 300_000])
            held.append(rmm.DeviceBuffer(size=size, stream=random.choice([DEFAULT_STREAM, stream])))
            if len(held) > 20:
                del held[random.randrange(len(held))]
        kept.append(held)

    kept: list[list[rmm.DeviceBuffer]] = []
    threads = [Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept) == 3
    blocks = sorted((buffer.ptr, buffer.size) for held in kept for buffer in held if buffer.size)
    assert all(one + size <= next_one for (one, size), (next_one, _) in pairwise(blocks))
    assert pool.figures()["live_bytes"] == sum((size + 255) // 256 * 256 for _, size in blocks)
    kept.clear()
    assert pool.figures()["live_bytes"] == 0


@pytest.fixture
def turns() -> Iterator[list[int]]:
    """Counts how often another thread gets the GIL. Only threads that release it give it away."""
    taken = [0]
    done = Event()

    def take_turns() -> None:
        while not done.is_set():
            taken[0] += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    other = Thread(target=take_turns)
    other.start()
    yield taken
    done.set()
    sys.setswitchinterval(interval)
    other.join()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda pool: pool,
        rmm.mr.StatisticsResourceAdaptor,
        lambda pool: rmm.mr.LimitingResourceAdaptor(pool, 1 << 20),
        lambda pool: rmm.mr.StatisticsResourceAdaptor(rmm.mr.LimitingResourceAdaptor(pool, 1 << 20)),
    ],
)
def test_the_gil_is_held_where_a_pool_serves_at_once(
    small_pool: rmm.mr.PoolMemoryResource, turns: list[int], wrap: Any
) -> None:
    rmm.mr.set_current_device_resource(wrap(small_pool))
    for _ in range(1000):  # fills the thread's cache; the first calls of the statistics take a lock
        rmm.DeviceBuffer(size=256)
    before = turns[0]
    for _ in range(20_000):
        rmm.DeviceBuffer(size=256)
    assert turns[0] == before


@pytest.mark.parametrize("size", [256, 1000, 20_000])
def test_adaptors_count_the_same_whether_the_gil_is_held_or_not(
    small_pool: rmm.mr.PoolMemoryResource, size: int
) -> None:
    limited = rmm.mr.LimitingResourceAdaptor(small_pool, 10 * size + 2559)
    counting = rmm.mr.StatisticsResourceAdaptor(limited)
    through_tracking = rmm.mr.StatisticsResourceAdaptor(rmm.mr.TrackingResourceAdaptor(counting))  # releases the GIL
    for _ in range(100):
        buffers = [rmm.DeviceBuffer(size=size, mr=counting) for _ in range(7)]
        buffers += [rmm.DeviceBuffer(size=size, mr=through_tracking) for _ in range(3)]
        each = counting.allocation_counts.current_bytes // 10
        assert each in (size, -(-size // 16) * 16)
        assert limited.get_allocated_bytes() == 10 * (-(-size // 256) * 256)
        with pytest.raises(MemoryError, match="Exceeded memory limit"):
            rmm.DeviceBuffer(size=10 * size, mr=counting)
        del buffers
    assert limited.get_allocated_bytes() == 0
    for adaptor, count in ((counting, 10), (through_tracking, 3)):
        counts = adaptor.allocation_counts
        assert (counts.current_bytes, counts.current_count) == (0, 0)
        assert (counts.peak_bytes, counts.peak_count) == (count * each, count)
        assert (counts.total_bytes, counts.total_count) == (100 * count * each, 100 * count)


def test_threads_are_counted_exactly_while_others_read_the_statistics(small_pool: rmm.mr.PoolMemoryResource) -> None:
    adaptor = rmm.mr.StatisticsResourceAdaptor(small_pool)
    done = Event()

    def work() -> None:
        for i in range(3000):
            kept = [rmm.DeviceBuffer(size=256 * (1 + i % 3), mr=adaptor) for _ in range(3)]
            del kept

    threads = [Thread(target=work) for _ in range(4)]

    def look() -> None:
        while not done.is_set():
            counts = adaptor.allocation_counts
            assert 0 <= counts.current_count <= counts.peak_count <= 12

    reader = Thread(target=look)
    for thread in (*threads, reader):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    reader.join()
    counts = adaptor.allocation_counts
    assert (counts.current_bytes, counts.current_count) == (0, 0)
    assert (counts.total_bytes, counts.total_count) == (4 * 3 * 256 * 6000, 4 * 3 * 3000)


def test_the_gil_is_released_where_a_resource_may_wait(small_pool: rmm.mr.PoolMemoryResource, turns: list[int]) -> None:
    counting = rmm.mr.StatisticsResourceAdaptor(rmm.mr.TrackingResourceAdaptor(small_pool))
    rmm.mr.set_current_device_resource(counting)
    before = turns[0]
    deadline = time.monotonic() + 30
    count = 0
    while turns[0] == before and time.monotonic() < deadline:
        rmm.DeviceBuffer(size=256)
        count += 1
    assert turns[0] > before
    assert counting.allocation_counts.total_count == count


@pytest.mark.parametrize(
    "function", [rmm.DeviceBuffer.to_device, rmm.DeviceBuffer.from_device, rmm.DeviceBuffer.tobytes]
)
def test_functions_of_the_class_can_be_pickled(function: Any) -> None:
    assert pickle.loads(pickle.dumps(function)) == function
