# SPDX-License-Identifier: Apache-2.0
"""Exceptions that say more than Python's own, from which they are derived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmm.memory_report import MemoryReport

__all__ = ["LogFileError", "ReportedMemoryError"]


class ReportedMemoryError(MemoryError):
    """A pool could not serve an allocation, and says why in `report`.

    Where memory is missing and no pool was asked, as when `cudaMalloc` itself fails, a plain MemoryError is raised: catch that
    to catch both, and this class to read the report.

    >>> import rmm
    >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "1MiB")
    >>> try:
    ...     buffer = rmm.DeviceBuffer(size=2 << 20, mr=pool)
    ... except rmm.ReportedMemoryError as error:
    ...     print(error.report.asked_bytes, error.report.pool["free_bytes"])
    2097152 1048576
    """

    __module__ = "rmm"  # as tracebacks name it

    def __init__(self, text: str, report: MemoryReport) -> None:
        super().__init__(text)
        self.__dict__["report"] = report

    @property
    def report(self) -> MemoryReport:
        """What the pool and the device had, and what the pool tried."""
        found: MemoryReport = self.__dict__["report"]
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.report)


class LogFileError(OSError, RuntimeError):
    """A log cannot be written: `filename` and `strerror` say which, and why.

    A RuntimeError too, because older releases raised that.
    """

    __module__ = "rmm"

    def __init__(self, number: int, reason: str, file_name: str) -> None:
        super().__init__(number, reason, file_name)
