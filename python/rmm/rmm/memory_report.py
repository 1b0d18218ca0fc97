# SPDX-License-Identifier: Apache-2.0
"""Why an allocation failed, and what pools have: what resources answer with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["GuardViolation", "Holder", "MemoryReport", "RungFigures"]


class Holder(NamedTuple):
    """What the live allocations of one tag hold; the tag is empty for what has none."""

    tag: str
    bytes: int
    allocations: int


class RungFigures(NamedTuple):
    """How often a pool tried something to serve an allocation, and how often that served it."""

    tried: int
    served: int


# mypy takes these for the values, whose docstrings could not be set
for _field, _text in (
    (Holder.tag, "Name of the tag; empty for what has none."),
    (Holder.bytes, "Bytes of its live allocations."),
    (Holder.allocations, "How many those are."),
    (RungFigures.tried, "How often the pool tried it."),
    (RungFigures.served, "How often an allocation was served by it."),
):
    _field.__doc__ = _text


@dataclass(frozen=True)
class MemoryReport:
    """Why a pool could not serve an allocation: what it and the device had at that moment.

    The attribute `report` of `rmm.ReportedMemoryError`, whose text ends with the same in lines. Other threads go on while it is
    made, so that its figures need not fit each other to the byte.
    """

    asked_bytes: int
    alignment_bytes: int
    stream: int  #: the handle; the stream may be gone
    device: int  #: -1 if unknown
    reason: str  #: what failed at last
    pool: dict[str, int] = field(repr=False)  #: `figures()` of the pool
    maximum_bytes: int | None  #: that the pool may have
    device_free_bytes: int | None
    device_total_bytes: int | None
    held_by_others: int | None  #: bytes of the device that neither are free nor the pool's
    tries: dict[str, int]  #: what the pool tries, in its order, and how often it did so for this allocation
    tags_tracked: bool  #: whether the pool knows its holders
    holders: list[Holder]  #: those with most bytes first

    @property
    def fragmentation(self) -> float:
        """Which part of the pool's free memory lies outside its largest piece."""
        free = self.pool["free_bytes"]
        return 1 - self.pool["largest_free_bytes"] / free if free else 0.0


@dataclass(frozen=True)
class GuardViolation:
    """What a `GuardResourceAdaptor` found."""

    #: "double_free", "unknown_pointer", "wrong_size", "overrun", "underrun" or "write_after_free"
    what: str
    ptr: int  #: the allocation
    bytes: int  #: its size; of an unknown pointer, the size that it was freed with
    offset: int  #: from the begin of the allocation to the first byte that was written; else 0
    report: str  #: some lines that say all, with the places of allocation and first free
