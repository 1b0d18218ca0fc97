# SPDX-License-Identifier: Apache-2.0
"""Sizes in bytes as people write them"""

from __future__ import annotations

from typing import Any

import pytest

import rmm
from rmm.pylibrmm.helper import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (17, 17),
        (1e9, 10**9),
        ("0", 0),
        ("17", 17),
        ("17 b", 17),
        ("1kB", 1000),
        ("1KIB", 1024),
        ("2 \t mb", 2_000_000),
        ("2MiB", 2 << 20),
        ("1.5 GB", 1_500_000_000),
        ("0.5gib", 1 << 29),
        (".5 TiB", 1 << 39),
        ("3TB", 3 * 10**12),
        ("1PB", 10**15),
        ("1PiB", 1 << 50),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes_are_understood(text: Any, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "b", "2k", "-1", "+1", "1 kb ", " 1", "1 kb x", "1e3", "1,5 kb", "1 eb", "0x10", "5%"],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Could not parse"):
        parse_bytes(text)


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize("rest", ["", ".0", " PiB", ".5 PiB"])
def test_very_large_numbers_are_refused_or_exact(digits: int, rest: str) -> None:
    if digits == 400 and "." not in rest:
        assert parse_bytes("9" * digits + rest) >= 10**digits - 1
    else:
        with pytest.raises(ValueError, match=r"Could not parse '9999.*the number is too large"):
            parse_bytes("9" * digits + rest)


@pytest.mark.parametrize("number", [1.5, float("nan"), float("inf")])
def test_fractional_bytes_are_refused(number: Any) -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        parse_bytes(number)


def test_resources_accept_sizes_as_text() -> None:
    cuda = rmm.mr.CudaMemoryResource()
    assert rmm.mr.PoolMemoryResource(cuda, "1MiB", "2MiB").pool_size() == 1 << 20
    assert rmm.mr.LimitingResourceAdaptor(cuda, "1GiB").get_allocation_limit() == 1 << 30
    pool = rmm.mr.PoolMemoryResource(cuda, "64MiB")
    bins = rmm.mr.BinningMemoryResource(pool)
    bins.add_bin("64KiB", rmm.mr.FixedSizeMemoryResource(pool, "64KiB", 4))
    rmm.DeviceBuffer(size=1 << 16, mr=bins)
    rmm.DeviceBuffer(size=1, mr=rmm.mr.AlignedResourceAdaptor(cuda, "1KiB", "1MiB"))
    assert rmm.mr.CachedMemoryResource(cuda).trim_to("1MiB") == 0
    for wrong in (lambda: rmm.mr.LimitingResourceAdaptor(cuda, "1 apple"), lambda: bins.add_bin("much")):
        with pytest.raises(ValueError, match="Could not parse"):
            wrong()
    with pytest.raises(OverflowError):
        rmm.mr.LimitingResourceAdaptor(cuda, -1)
    with pytest.raises(ValueError, match="there would be no bin"):
        rmm.mr.BinningMemoryResource(cuda, 20, 18)
    with pytest.raises(ValueError, match="Could not parse"):
        rmm.mr.PoolMemoryResource(cuda, initial_pool_size="2k")
    with pytest.raises(ValueError, match="Could not parse"):
        rmm.reinitialize(pool_allocator=True, maximum_pool_size="much")
