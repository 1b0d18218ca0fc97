# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments; Cython modules cimport them."""

from __future__ import annotations

from rmm.pylibrmm.stream import Stream

__all__ = ["as_stream"]


def as_stream(stream: Stream | None) -> Stream:
    """`stream`, unless it is None."""
    if stream is None:
        raise TypeError("stream argument cannot be None")
    return stream
