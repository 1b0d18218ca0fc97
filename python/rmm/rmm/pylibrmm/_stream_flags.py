# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from enum import IntEnum

__all__ = ["CudaStreamFlags"]


class CudaStreamFlags(IntEnum):
    """How a new stream relates to the legacy default stream."""

    SYNC_DEFAULT = 0
    """Each waits for the work of the other."""

    NON_BLOCKING = 1
    """Neither waits."""
