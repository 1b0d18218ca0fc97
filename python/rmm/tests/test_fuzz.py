# SPDX-License-Identifier: Apache-2.0
"""Calls functions that take text, numbers or bytes from users with random changes of good input. Each call has to succeed or be
refused.

RMM_FUZZ_RUNS says how many calls of each; the same ones every time.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

import rmm
import rmm.mr
from rmm.pylibrmm.helper import parse_bytes

# Exceptions for invalid input. Anything else, or a crash, is a defect.
refusals = (ValueError, TypeError, OverflowError, MemoryError, rmm.RMMError)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _number(data: bytes) -> int:
    return int.from_bytes(data[:10], "little", signed=True)


def _size(data: bytes) -> None:
    size = parse_bytes(_text(data))
    assert isinstance(size, int)


def _limit(data: bytes) -> None:
    with rmm.memory_limit(_text(data)) as limited:
        limited.deallocate(limited.allocate(1), 1)


def _configuration(data: bytes) -> None:
    text = _text(data)
    if "log" in text:  # must not write to arbitrary files
        return
    resource = rmm.mr.ConfiguredMemoryResource(text)
    resource.deallocate(resource.allocate(256), 256)


def _allocation(data: bytes) -> None:
    resource = rmm.mr.get_current_device_resource()
    size = _number(data)
    if size == 0 or size > 1 << 20:
        size += 1 << 40  # more than any device has
    resource.deallocate(resource.allocate(size), size)


def _buffer(data: bytes) -> None:
    buffer = rmm.DeviceBuffer.to_device(data)
    assert buffer.tobytes() == data
    size = _number(data) % (1 << 20)
    buffer.resize(size)
    assert buffer.size == size
    buffer.copy_to_host(bytearray(size))


def _array_interface(data: bytes) -> None:
    class Array:
        def __init__(self) -> None:
            self.__cuda_array_interface__ = {
                "data": (0, bool(data and data[0] & 1)),
                "shape": tuple(byte - 128 for byte in data[1:4]),
                "strides": None if len(data) < 8 else tuple(data[5:8]),
                "typestr": _text(data[8:12]),
                "version": data[4] if len(data) > 4 else 3,
            }

    rmm.DeviceBuffer(size=64).copy_from_device(Array())


def _tag(data: bytes) -> None:
    with rmm.tag(_text(data)):
        rmm.DeviceBuffer(size=1)


entry_points: dict[bytes, Callable[[bytes], None]] = {
    b"s": _size,
    b"l": _limit,
    b"c": _configuration,
    b"a": _allocation,
    b"b": _buffer,
    b"i": _array_interface,
    b"t": _tag,
}

good_inputs = [
    b"s1.5 GiB",
    b"s512000000",
    b"l80%",
    b"l4GiB",
    b"cpool,initial=1MiB,max=2MiB,statistics",
    b"cbinning,smallest=256,largest=4KiB,upstream=(pool,initial=1MiB)",
    b"celastic,chunk=2MiB,decay_ms=5",
    b"cfixed_size,block=1KiB,preallocate=16",
    b"a\x00\x01",
    b"bsome bytes",
    b"i\x00\x81\x81\x81\x03\x01\x01\x01|u1\x00",
    b"tmodel",
]


def one_input(data: bytes) -> None:
    call = entry_points.get(data[:1], _size)
    try:
        call(data[1:])
    except refusals:
        pass
    except RuntimeError as error:  # rmm::logic_error
        if not str(error).startswith("RMM failure at"):
            raise


runs = int(os.environ.get("RMM_FUZZ_RUNS", "1000"))


def changed(data: bytes, chance: random.Random) -> bytes:
    """Returns `data` with up to four bytes changed, lost, doubled, or taken from another input."""
    result = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(1, len(result) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            result[at:at] = bytes([chance.randrange(256)])
        elif kind == 1 and at < len(result):
            del result[at]
        elif kind == 2 and at < len(result):
            result[at] = chance.choice(b'0123456789.,=()"%-+ KMGTib\x00\xff')
        else:
            other = chance.choice(good_inputs)
            begin = chance.randrange(1, len(other))
            result[at:at] = other[begin : begin + chance.randint(1, 6)]
    return bytes(result)


@pytest.mark.parametrize("entry_point", entry_points, ids=lambda key: key.decode())
def test_changed_input_is_refused_or_served(entry_point: bytes, small_pool: rmm.mr.PoolMemoryResource) -> None:
    chance = random.Random(1)
    good = [data for data in good_inputs if data[:1] == entry_point]
    for data in good:
        one_input(data)
    for _ in range(runs):
        data = changed(chance.choice(good), chance)
        try:
            one_input(data)
        except BaseException as error:
            pytest.fail(f"{data!r} raised {error!r}")


def test_good_inputs_are_served() -> None:
    for data in good_inputs:
        if data[:1] not in (b"a", b"i"):
            entry_points[data[:1]](data[1:])
