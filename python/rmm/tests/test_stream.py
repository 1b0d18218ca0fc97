# SPDX-License-Identifier: Apache-2.0
"""Streams and stream pools."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import rmm
import rmm._cuda.stream
from rmm.pylibrmm import CudaStreamFlags, CudaStreamPool
from rmm.pylibrmm.cuda_stream import CudaStream
from rmm.pylibrmm.stream import DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream


def handle(stream: Stream) -> int:
    return stream.__cuda_stream__()[1]


def test_default_streams_have_the_handles_of_cuda() -> None:
    assert [handle(stream) for stream in (DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM)] == [
        0,
        1,
        2,
    ]
    assert DEFAULT_STREAM.is_default()
    assert LEGACY_DEFAULT_STREAM.is_default()
    assert not PER_THREAD_DEFAULT_STREAM.is_default()


def test_new_streams_are_new() -> None:
    first, second = Stream(), Stream()
    assert handle(first) > 2
    assert first != second
    assert not first.is_default()
    first.synchronize()


@pytest.mark.parametrize("flags", list(CudaStreamFlags))
def test_flags(flags: CudaStreamFlags) -> None:
    Stream(flags=flags).synchronize()
    CudaStream(flags)
    CudaStreamPool(1, flags).get_stream().synchronize()


def test_flags_are_for_new_streams() -> None:
    with pytest.raises(ValueError, match="flags may only be specified when obj is None"):
        Stream(DEFAULT_STREAM, flags=CudaStreamFlags.NON_BLOCKING)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="CudaStreamFlags"):
        Stream(flags=7)  # type: ignore[call-overload]


def test_a_stream_of_a_stream_is_the_same_and_keeps_it() -> None:
    first = Stream()
    second = Stream(first)
    assert first == second
    assert hash(first) == hash(second)
    del first
    gc.collect()
    second.synchronize()


class Foreign:
    def __init__(self, *answer: int) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> tuple[int, ...]:
        return self.answer


def test_the_protocol_is_understood() -> None:
    stream = Stream()
    assert Stream(Foreign(0, handle(stream))) == stream
    with pytest.raises(NotImplementedError, match="version: '3'"):
        Stream(Foreign(3, 0))


def test_a_wrapped_stream_is_kept_alive() -> None:
    import weakref

    foreign = Foreign(0, 1)
    alive = weakref.ref(foreign)
    stream = Stream(foreign)
    del foreign
    assert alive() is not None
    del stream
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("obj", [1, "stream", object()])
def test_other_types_are_not_streams(obj: Any) -> None:
    with pytest.raises(TypeError, match=f"Cannot create stream from {type(obj)}"):
        Stream(obj)


@pytest.mark.parametrize(
    ("module", "attribute"), [("cupy.cuda.stream", "ptr"), ("numba.cuda.cudadrv.driver", "handle")]
)
def test_streams_of_other_libraries_are_known_without_importing_them(module: str, attribute: str) -> None:
    cls = type("Stream", (), {"__module__": module, attribute: 2})
    assert Stream(cls()) == PER_THREAD_DEFAULT_STREAM
    assert Stream(type("Derived", (cls,), {})()) == PER_THREAD_DEFAULT_STREAM


def test_handles_of_numba_may_be_ctypes() -> None:
    import ctypes

    cls = type("Stream", (), {"__module__": "numba.cuda", "handle": ctypes.c_void_p(2)})
    assert Stream(cls()) == PER_THREAD_DEFAULT_STREAM
    cls = type("Stream", (), {"__module__": "numba.cuda", "handle": ctypes.c_void_p(0)})
    assert Stream(cls()) == DEFAULT_STREAM


def test_a_stream_does_not_equal_other_types() -> None:
    assert DEFAULT_STREAM != 0
    assert DEFAULT_STREAM != LEGACY_DEFAULT_STREAM
    assert DEFAULT_STREAM in {DEFAULT_STREAM}


def test_a_representation_shows_the_handle() -> None:
    assert repr(PER_THREAD_DEFAULT_STREAM) == "Stream(0x2)"


def test_a_pool_hands_its_streams_out_in_turn() -> None:
    pool = CudaStreamPool(3)
    assert pool.get_pool_size() == 3
    streams = [pool.get_stream() for _ in range(6)]
    assert len(set(streams)) == 3
    assert streams[:3] == streams[3:]
    assert pool.get_stream(4) == pool.get_stream(1)
    assert CudaStreamPool().get_pool_size() == 16


def test_a_stream_keeps_its_pool() -> None:
    stream = CudaStreamPool(1).get_stream()
    gc.collect()
    rmm.DeviceBuffer.to_device(b"abc", stream=stream)
    stream.synchronize()


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than zero"):
        CudaStreamPool(0)
    with pytest.raises(OverflowError):
        CudaStreamPool(-1)


def test_older_names() -> None:
    assert rmm._cuda.stream.Stream is Stream
    assert rmm._cuda.stream.DEFAULT_STREAM is DEFAULT_STREAM
    assert rmm._lib.cuda_stream.CudaStream is CudaStream
    assert rmm.pylibrmm.stream.CudaStreamFlags is CudaStreamFlags
