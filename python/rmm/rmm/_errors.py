# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the package. Each derives from an exception of Python and adds information."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmm.memory_report import MemoryReport

__all__ = ["LogFileError", "ReportedMemoryError"]


class ReportedMemoryError(MemoryError):
    """A MemoryError of a pool that is out of memory, with a report.

    If memory is missing and no pool is involved, for example because `cudaMalloc` fails, a plain MemoryError is raised. Catch
    MemoryError for both, and this class to read the report.

    Parameters
    ----------
    text : str
        The message.
    report : rmm.memory_report.MemoryReport
        The report.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "1MiB")
    >>> try:
    ...     buffer = rmm.DeviceBuffer(size=2 << 20, mr=pool)
    ... except rmm.ReportedMemoryError as error:
    ...     print(error.report.asked_bytes, error.report.pool["free_bytes"])
    2097152 1048576
    """

    __module__ = "rmm"  # the name that tracebacks show

    def __init__(self, text: str, report: MemoryReport) -> None:
        super().__init__(text)
        self.__dict__["report"] = report

    @property
    def report(self) -> MemoryReport:
        """The `rmm.memory_report.MemoryReport`: the memory of the pool and the device, and what the pool tried."""
        found: MemoryReport = self.__dict__["report"]
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.report)


class LogFileError(OSError, RuntimeError):
    """An OSError for a log that cannot be written: `filename` is its name, and `strerror` the reason.

    It is also a RuntimeError, because older releases raised that.

    Parameters
    ----------
    number : int
        The number of the error.
    reason : str
        The reason.
    file_name : str
        The name of the file.

    Examples
    --------
    >>> import rmm
    >>> rmm.LogFileError(2, "No such file or directory", "log.csv").filename
    'log.csv'
    """

    __module__ = "rmm"

    def __init__(self, number: int, reason: str, file_name: str) -> None:
        super().__init__(number, reason, file_name)
