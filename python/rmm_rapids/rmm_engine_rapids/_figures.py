# SPDX-License-Identifier: Apache-2.0
"""Figures, holders and reports of the engine's resources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Figures:
    """The memory of a pool at one moment, and counts of how allocations were served."""

    live_blocks: int  #: allocated, and not given back
    live_bytes: int
    free_bytes: int
    graph_bytes: int  #: kept for CUDA graphs
    cached_bytes: int  #: the part of free_bytes in caches of single threads
    reserved_bytes: int
    largest_free_bytes: int
    upstream_blocks: int
    caches: int
    from_other_streams: int  #: allocations served by memory of another stream, after a wait on the device
    from_other_caches: int  #: allocations served out of the cache of another thread or stream
    coalesced: int  #: allocations served by neighbours that lay in different caches
    device_synchronizations: int  #: allocations served after a wait on the host for the whole device
    failures: int  #: allocations not served


class Holder(NamedTuple):
    """The live allocations of one tag."""

    tag: str  #: empty for allocations without a tag
    bytes: int
    allocations: int


@dataclass(frozen=True)
class Report:
    """The memory of a pool when an allocation failed. None stands for an unknown value, or for no limit."""

    text: str  #: the same in words, as in the exception
    asked_bytes: int
    alignment_bytes: int
    device: int | None  #: of the resource
    maximum_bytes: int | None  #: that the pool may reserve
    reserved_bytes: int | None
    live_bytes: int | None
    free_bytes: int | None
    cached_bytes: int | None
    largest_free_bytes: int | None
    device_free_bytes: int | None
    device_total_bytes: int | None
    held_by_others_bytes: int | None  #: on the device, besides this pool
    failures: int  #: of this pool so far
