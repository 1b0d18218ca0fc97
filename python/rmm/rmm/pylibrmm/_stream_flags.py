# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from enum import IntEnum

__all__ = ["CudaStreamFlags"]


class CudaStreamFlags(IntEnum):
    """The relation of a new stream to the legacy default stream.

    Examples
    --------
    >>> from rmm.pylibrmm.stream import CudaStreamFlags, Stream
    >>> stream = Stream(flags=CudaStreamFlags.NON_BLOCKING)
    """

    SYNC_DEFAULT = 0
    """The stream and the legacy default stream wait for each other's work."""

    NON_BLOCKING = 1
    """The stream and the legacy default stream do not wait for each other."""
