# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments, for Cython modules."""

from __future__ import annotations

from rmm.pylibrmm.stream import Stream

__all__ = ["as_stream"]


def as_stream(stream: Stream | None) -> Stream:
    """Check that a stream is not None.

    Parameters
    ----------
    stream : Stream or None
        The stream.

    Returns
    -------
    Stream
        The same stream.

    Raises
    ------
    TypeError
        If it is None.

    Examples
    --------
    >>> from rmm.pylibrmm.stream import DEFAULT_STREAM
    >>> from rmm.pylibrmm.utils import as_stream
    >>> as_stream(DEFAULT_STREAM) is DEFAULT_STREAM
    True
    """
    if stream is None:
        raise TypeError("stream argument cannot be None")
    return stream
