# SPDX-License-Identifier: Apache-2.0
"""How much memory code uses: counters of the current device's resource, and a profiler that reports them by name.

>>> import rmm
>>> import rmm.statistics
>>> with rmm.statistics.statistics():
...     buffer = rmm.DeviceBuffer(size=1024)
...     rmm.statistics.get_statistics().current_bytes
1024
"""

from __future__ import annotations

import inspect
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from rmm.pylibrmm.memory_resource import (
    StatisticsResourceAdaptor,
    get_current_device_resource,
    set_current_device_resource,
)

__all__ = [
    "ProfilerContext",
    "ProfilerRecords",
    "Statistics",
    "default_profiler_records",
    "enable_statistics",
    "get_statistics",
    "pop_statistics",
    "profiler",
    "push_statistics",
    "statistics",
]

_F = TypeVar("_F")


@dataclass
class Statistics:
    """Bytes and numbers of allocations: in use, the most that were in use at a time, and in all."""

    current_bytes: int
    current_count: int
    peak_bytes: int
    peak_count: int
    total_bytes: int
    total_count: int

    def __getitem__(self, name: str) -> int:
        """`statistics["current_bytes"]`, as it was written when this was a dict."""
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        value: int = getattr(self, name)
        return value


def _adaptor() -> StatisticsResourceAdaptor | None:
    resource = get_current_device_resource()
    return resource if isinstance(resource, StatisticsResourceAdaptor) else None


def enable_statistics() -> None:
    """Counts what is allocated from the current device's resource from here on, unless that is done already."""
    if _adaptor() is None:
        set_current_device_resource(StatisticsResourceAdaptor(get_current_device_resource()))


def get_statistics() -> Statistics | None:
    """The statistics of the current device's resource, since the last push; None if they are not enabled."""
    adaptor = _adaptor()
    return None if adaptor is None else adaptor.allocation_counts


def push_statistics() -> Statistics | None:
    """Starts to count from zero; returns the statistics until now, None if they are not enabled."""
    adaptor = _adaptor()
    return None if adaptor is None else adaptor.push_counters()


def pop_statistics() -> Statistics | None:
    """Ends what the last push started; returns its statistics, None if they are not enabled."""
    adaptor = _adaptor()
    return None if adaptor is None else adaptor.pop_counters()


@contextmanager
def statistics() -> Iterator[None]:
    """Counts from zero in a block of code, with statistics enabled for it if they are not.

    ValueError at its end if the current device's resource is another one than at its begin.
    """
    before = get_current_device_resource()
    if isinstance(before, StatisticsResourceAdaptor):
        inside = before
        inside.push_counters()
        try:
            yield
        finally:
            _expect_current(inside)
            inside.pop_counters()
    else:
        inside = StatisticsResourceAdaptor(before)
        set_current_device_resource(inside)
        try:
            yield
        finally:
            _expect_current(inside)
            set_current_device_resource(before)


def _expect_current(resource: StatisticsResourceAdaptor) -> None:
    if get_current_device_resource() is not resource:
        raise ValueError("the current device's resource was changed inside rmm.statistics.statistics()")


class ProfilerRecords:
    """What a profiler found, by name. Thread-safe."""

    @dataclass
    class MemoryRecord:
        """How often something was called, the bytes that it allocated in all, and the most that a call had at a time."""

        num_calls: int = 0
        memory_total: int = 0
        memory_peak: int = 0

        def add(self, memory_total: int, memory_peak: int) -> None:
            """Adds a call."""
            self.num_calls += 1
            self.memory_total += memory_total
            self.memory_peak = max(self.memory_peak, memory_peak)

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the records
        self._records: dict[str, ProfilerRecords.MemoryRecord] = defaultdict(ProfilerRecords.MemoryRecord)

    def add(self, name: str, data: Statistics) -> None:
        """Adds a call of `name`."""
        with self._lock:
            self._records[name].add(memory_total=data.total_bytes, memory_peak=data.peak_bytes)

    @property
    def records(self) -> dict[str, MemoryRecord]:
        """A copy of the records, by name."""
        with self._lock:
            return dict(self._records)

    def report(self, ordered_by: str = "memory_peak") -> str:
        """A table of the records, the largest first.

        Parameters
        ----------
        ordered_by:
            `num_calls`, `memory_peak` or `memory_total`.
        """
        heading = "Memory Profiling\n" + "=" * 16 + "\n\n"
        records = self.records
        if not records:
            return heading + "No data, maybe profiling wasn't enabled?"
        legend = (
            "Legends:\n"
            "  ncalls       - number of times the function or code block was called\n"
            "  memory_peak  - most bytes that one call had allocated at a time\n"
            "  memory_total - bytes that all calls allocated\n"
        )
        header = "ncalls     memory_peak    memory_total  filename:lineno(function)"
        rows = sorted(records.items(), key=lambda row: getattr(row[1], ordered_by), reverse=True)
        lines = [
            f"{record.num_calls:6,d} {record.memory_peak:15,d} {record.memory_total:15,d}  {name}"
            for name, record in rows
        ]
        return heading + legend + f"\nOrdered by: {ordered_by}\n\n" + "\n".join([header, *lines])

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.records!r})"


default_profiler_records = ProfilerRecords()


def _get_descriptive_name_of_object(obj: object) -> str:
    """`<file>:<first line>(<qualified name>)` of a function, without its decorators."""
    function: Any = inspect.unwrap(obj)  # type: ignore[arg-type]
    code = getattr(function, "__code__", None)
    if code is not None:  # which is there where no source is: in an interactive interpreter
        return f"{code.co_filename}:{code.co_firstlineno}({function.__qualname__})"
    _, line = inspect.getsourcelines(function)
    return f"{inspect.getfile(function)}:{line}({function.__qualname__})"


class ProfilerContext(ContextDecorator):
    """What `profiler` returns: a context manager, and a decorator of functions."""

    def __init__(self, records: ProfilerRecords, name: str) -> None:
        self._records = records
        self._name = name
        self._entered: list[StatisticsResourceAdaptor | None] = []  # what was pushed on by each entry

    def _recreate_cm(self) -> ProfilerContext:
        return ProfilerContext(self._records, self._name)  # for each call of a function, which threads may call

    def __call__(self, func: _F) -> _F:
        named = ProfilerContext(self._records, self._name or _get_descriptive_name_of_object(func))
        return ContextDecorator.__call__(named, func)  # type: ignore[type-var]

    def __enter__(self) -> None:
        if not self._name:
            raise ValueError("rmm.statistics.profiler() needs a name where it is used as context manager")
        adaptor = _adaptor()
        if adaptor is not None:
            adaptor.push_counters()
        self._entered.append(adaptor)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        adaptor = self._entered.pop()  # the current resource may be another one by now
        if adaptor is not None:
            self._records.add(self._name, adaptor.pop_counters())


def profiler(*, records: ProfilerRecords = default_profiler_records, name: str = "") -> ProfilerContext:
    """Records what a function, or a block of code, allocates. Does nothing while statistics are not enabled.

    Parameters
    ----------
    records:
        Where to.
    name:
        Under which name; that of the function, with its file and line, where it decorates one and the name is empty.

    >>> import rmm
    >>> from rmm.statistics import ProfilerRecords, enable_statistics, profiler
    >>> records = ProfilerRecords()
    >>> enable_statistics()
    >>> with profiler(records=records, name="one buffer"):
    ...     buffer = rmm.DeviceBuffer(size=1024)
    >>> records.records["one buffer"].memory_peak
    1024
    """
    return ProfilerContext(records, name)
