# SPDX-License-Identifier: Apache-2.0
"""What `rmm info` and `rmm doctor` say about the driver, and about the kinds of memory that the current device has."""

from __future__ import annotations

import re
from collections.abc import Callable

import rmm
from rmm._cuda import gpu


def version_text(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}" if number else "none"


def has_managed_memory() -> bool:
    return bool(gpu.getDeviceProperties(gpu.getDevice()).managedMemory)


def is_made(make: Callable[[], object]) -> Callable[[], bool]:
    """Returns a function that tells whether `make()` raises no exception, and lets the exception pass."""

    def can_be_made() -> bool:
        make()
        return True

    return can_be_made


def allocates(make: Callable[[], rmm.mr.DeviceMemoryResource]) -> Callable[[], bool]:
    """Returns a function that makes the smallest allocation: the driver may refuse memory that attributes promise."""
    return is_made(lambda: rmm.DeviceBuffer(size=1, mr=make()))


def yes_or_why_not(is_there: Callable[[], bool]) -> str:
    try:
        return "yes" if is_there() else "no"
    except Exception as error:
        return f"no: {reason_of(error)}"


_place = re.compile(r"(RMM failure|CUDA error)( \(.*?\))? at: .*?:\d+: ")  # of the source line that threw the exception


def reason_of(error: Exception) -> str:
    """Returns the first line of an exception's text, without the place in the source."""
    return _place.sub("", str(error).partition("\n")[0]).removeprefix("std::bad_alloc: ")
