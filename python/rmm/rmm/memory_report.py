# SPDX-License-Identifier: Apache-2.0
"""Reports of resources: why an allocation failed, what a pool holds, and what a guard found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["GuardViolation", "Holder", "MemoryReport", "RungFigures"]


class Holder(NamedTuple):
    """The live allocations of one tag.

    Parameters
    ----------
    tag : str
        The name of the tag; empty for allocations without a tag.
    bytes : int
        The bytes.
    allocations : int
        The number of allocations.

    Examples
    --------
    >>> from rmm.memory_report import Holder
    >>> Holder("loader", 1024, 1).bytes
    1024
    """

    tag: str
    bytes: int
    allocations: int


class RungFigures(NamedTuple):
    """Counts of one rung of recovery.

    Parameters
    ----------
    tried : int
        How often a pool tried it.
    served : int
        How often it served an allocation.

    Examples
    --------
    >>> from rmm.memory_report import RungFigures
    >>> RungFigures(tried=2, served=1).served
    1
    """

    tried: int
    served: int


# assigned in a loop, because mypy takes docstrings in a NamedTuple for values
for _field, _text in (
    (Holder.tag, "Name of the tag; empty for allocations without a tag."),
    (Holder.bytes, "Bytes of the live allocations."),
    (Holder.allocations, "Number of the live allocations."),
    (RungFigures.tried, "How often the pool tried it."),
    (RungFigures.served, "How often it served an allocation."),
):
    _field.__doc__ = _text


@dataclass(frozen=True)
class MemoryReport:
    """A report why a pool could not serve an allocation, with the memory of the pool and the device at that time.

    The attribute `report` of `rmm.ReportedMemoryError` has it, and the text of that exception ends with it. Other threads may
    allocate while the report is made, so its figures are not from exactly one moment.

    Parameters
    ----------
    asked_bytes : int
        The requested bytes.
    alignment_bytes : int
        The alignment that the memory would have had.
    stream : int
        The handle of the stream, which may be destroyed by now.
    device : int
        The current device of the requesting thread; -1 if unknown.
    reason : str
        The last failure.
    pool : dict of str to int
        `figures()` of the pool.
    maximum_bytes : int or None
        The most bytes that the pool may hold; None without a limit.
    device_free_bytes : int or None
        The free bytes of the device; None if unknown.
    device_total_bytes : int or None
        All bytes of the device; None if unknown.
    held_by_others : int or None
        The bytes of the device that are not free and do not belong to the pool; None if unknown.
    tries : dict of str to int
        How often the pool tried each rung of recovery for this allocation, in order.
    tags_tracked : bool
        Whether the pool tracks tags.
    holders : list of Holder
        The live allocations by tag, in descending order of bytes.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "1MiB")
    >>> try:
    ...     buffer = rmm.DeviceBuffer(size=2 << 20, mr=pool)
    ... except rmm.ReportedMemoryError as error:
    ...     report = error.report
    >>> report.asked_bytes, report.fragmentation
    (2097152, 0.0)
    """

    asked_bytes: int
    alignment_bytes: int
    stream: int
    device: int
    reason: str
    pool: dict[str, int] = field(repr=False)
    maximum_bytes: int | None
    device_free_bytes: int | None
    device_total_bytes: int | None
    held_by_others: int | None
    tries: dict[str, int]
    tags_tracked: bool
    holders: list[Holder]

    @property
    def fragmentation(self) -> float:
        """Part of the pool's free memory that lies outside of its largest free range, from 0 to 1."""
        free = self.pool["free_bytes"]
        return 1 - self.pool["largest_free_bytes"] / free if free else 0.0


@dataclass(frozen=True)
class GuardViolation:
    """An error that a `rmm.mr.GuardResourceAdaptor` found.

    Parameters
    ----------
    what : str
        "double_free", "unknown_pointer", "wrong_size", "overrun", "underrun" or "write_after_free".
    ptr : int
        The address of the allocation.
    bytes : int
        The size of the allocation; for an unknown pointer, the size in the call that freed it.
    offset : int
        The offset of the first wrong byte from the allocation; 0 if no write was found.
    report : str
        Several lines of text, with the places of the allocation and the first free.

    Examples
    --------
    >>> from rmm.memory_report import GuardViolation
    >>> GuardViolation("overrun", 0x1000, 100, 100, "").what
    'overrun'
    """

    what: str
    ptr: int
    bytes: int
    offset: int
    report: str
