# SPDX-License-Identifier: Apache-2.0
"""Statistics of the current device's resource, and a profiler that reports the memory of functions and blocks.

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
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeVar

from rmm.pylibrmm._decorated_functions import expect_whole_calls
from rmm.pylibrmm.memory_resource import (
    DeviceMemoryResource,
    StatisticsResourceAdaptor,
    get_current_device_resource,
    get_per_device_resource,
    set_current_device_resource,
    set_per_device_resource,
)
from rmm.pylibrmm.memory_resource._registry import current_device, registered_resources, without_trace

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
    """Counts of bytes and allocations: in use, at the peak, and in total.

    Parameters
    ----------
    current_bytes : int
        The bytes in use.
    current_count : int
        The allocations in use.
    peak_bytes : int
        The most bytes in use at a time.
    peak_count : int
        The most allocations in use at a time.
    total_bytes : int
        The bytes of all allocations.
    total_count : int
        The number of all allocations.

    Examples
    --------
    >>> from rmm.statistics import Statistics
    >>> Statistics(0, 0, 1024, 1, 1024, 1).peak_bytes
    1024
    """

    current_bytes: int
    current_count: int
    peak_bytes: int
    peak_count: int
    total_bytes: int
    total_count: int

    def __getitem__(self, name: str) -> int:
        """Return a field by its name, because older releases returned a dict."""
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        value: int = getattr(self, name)
        return value


def _as_adaptor(resource: DeviceMemoryResource) -> StatisticsResourceAdaptor | None:
    resource = without_trace(resource)
    return resource if isinstance(resource, StatisticsResourceAdaptor) else None


def _adaptor() -> StatisticsResourceAdaptor | None:
    if not any(_as_adaptor(resource) for resource in registered_resources().values()):
        return None  # without asking for the current device, because there may be none
    return _as_adaptor(get_current_device_resource())


def enable_statistics() -> None:
    """Start to count the allocations from the current device's resource. Does nothing if they are counted already.

    Examples
    --------
    >>> import rmm.statistics
    >>> rmm.statistics.enable_statistics()
    >>> buffer = rmm.DeviceBuffer(size=1024)
    >>> rmm.statistics.get_statistics().current_bytes
    1024
    """
    if _adaptor() is None:
        set_current_device_resource(StatisticsResourceAdaptor(get_current_device_resource()))


def get_statistics() -> Statistics | None:
    """Return the statistics of the current device's resource since the last push.

    Returns
    -------
    Statistics or None
        The statistics; None if they are not enabled.

    Examples
    --------
    >>> import rmm.statistics
    >>> rmm.statistics.get_statistics() is None
    True
    """
    adaptor = _adaptor()
    return None if adaptor is None else adaptor.allocation_counts


def push_statistics() -> Statistics | None:
    """Save the counters, and count from zero until `pop_statistics` is called.

    Returns
    -------
    Statistics or None
        The statistics until now; None if they are not enabled.

    Examples
    --------
    >>> import rmm.statistics
    >>> rmm.statistics.enable_statistics()
    >>> before = rmm.statistics.push_statistics()
    >>> buffer = rmm.DeviceBuffer(size=1024)
    >>> rmm.statistics.pop_statistics().total_bytes
    1024
    """
    adaptor = _adaptor()
    return None if adaptor is None else adaptor.push_counters()


def pop_statistics() -> Statistics | None:
    """Restore the counters of the last push, and add the counts since then to them.

    Returns
    -------
    Statistics or None
        The statistics since the last push; None if they are not enabled.

    Examples
    --------
    >>> import rmm.statistics
    >>> rmm.statistics.enable_statistics()
    >>> before = rmm.statistics.push_statistics()
    >>> rmm.statistics.pop_statistics().total_bytes
    0
    """
    adaptor = _adaptor()
    return None if adaptor is None else adaptor.pop_counters()


@contextmanager
def statistics() -> Iterator[None]:
    """Enable statistics of the current device's resource in a `with` statement, and count from zero.

    If the block makes another device current, the resource of the first device is still the one that is counted.

    Raises
    ------
    ValueError
        At the end, if the resource of that device was changed inside.

    Examples
    --------
    >>> import rmm.statistics
    >>> with rmm.statistics.statistics():
    ...     buffer = rmm.DeviceBuffer(size=1024)
    ...     rmm.statistics.get_statistics().current_bytes
    1024
    """
    device = current_device()
    before = get_per_device_resource(device)
    inside = _as_adaptor(before)
    if inside is not None:
        inside.push_counters()
        try:
            yield
        finally:
            inside.pop_counters()
            _expect_set(device, inside)
    else:
        inside = StatisticsResourceAdaptor(before)
        set_per_device_resource(device, inside)
        try:
            yield
        finally:
            _expect_set(device, inside)
            set_per_device_resource(device, before)


def _expect_set(device: int, resource: StatisticsResourceAdaptor) -> None:
    if _as_adaptor(get_per_device_resource(device)) is not resource:
        raise ValueError(f"the resource of device {device} was changed inside rmm.statistics.statistics()")


class ProfilerRecords:
    """The results of profilers, by name. Thread-safe.

    Examples
    --------
    >>> from rmm.statistics import ProfilerRecords
    >>> ProfilerRecords().records
    {}
    """

    @dataclass
    class MemoryRecord:
        """The calls of one function or block: their number, the bytes of all calls, and the highest peak of one call.

        Parameters
        ----------
        num_calls : int, optional
            The number of calls.
        memory_total : int, optional
            The bytes that all calls allocated.
        memory_peak : int, optional
            The most bytes that one call had in use at a time.
        """

        num_calls: int = 0
        memory_total: int = 0
        memory_peak: int = 0

        def add(self, memory_total: int, memory_peak: int) -> None:
            """Add a call.

            Parameters
            ----------
            memory_total : int
                The bytes that the call allocated.
            memory_peak : int
                The most bytes that it had in use at a time.
            """
            self.num_calls += 1
            self.memory_total += memory_total
            self.memory_peak = max(self.memory_peak, memory_peak)

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the records
        self._records: dict[str, ProfilerRecords.MemoryRecord] = defaultdict(ProfilerRecords.MemoryRecord)

    def add(self, name: str, data: Statistics) -> None:
        """Add a call.

        Parameters
        ----------
        name : str
            The name of the function or block.
        data : Statistics
            The statistics of the call.

        Examples
        --------
        >>> from rmm.statistics import ProfilerRecords, Statistics
        >>> records = ProfilerRecords()
        >>> records.add("load", Statistics(0, 0, 1024, 1, 1024, 1))
        >>> records.records["load"].num_calls
        1
        """
        with self._lock:
            self._records[name].add(memory_total=data.total_bytes, memory_peak=data.peak_bytes)

    @property
    def records(self) -> dict[str, MemoryRecord]:
        """A copy of the records, by name."""
        with self._lock:
            return {name: replace(record) for name, record in self._records.items()}

    def report(self, ordered_by: str = "memory_peak") -> str:
        """Return a table of the records, largest first.

        Parameters
        ----------
        ordered_by : {"memory_peak", "memory_total", "num_calls"}, optional
            The column to order by.

        Returns
        -------
        str
            The table.

        Examples
        --------
        >>> import rmm
        >>> records = rmm.statistics.ProfilerRecords()
        >>> report = records.report()
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
    """Returns `<file>:<first line>(<qualified name>)` of a function below its decorators."""
    function: Any = inspect.unwrap(obj)  # type: ignore[arg-type]
    code = getattr(function, "__code__", None)
    if code is not None:  # works in an interactive interpreter, where there is no source
        return f"{code.co_filename}:{code.co_firstlineno}({function.__qualname__})"
    _, line = inspect.getsourcelines(function)
    return f"{inspect.getfile(function)}:{line}({function.__qualname__})"


class ProfilerContext(ContextDecorator):
    """A context manager and decorator that records allocations. `profiler` makes it.

    Parameters
    ----------
    records : ProfilerRecords
        The records to add to.
    name : str
        The name to record under.

    Examples
    --------
    >>> from rmm.statistics import ProfilerContext, ProfilerRecords
    >>> with ProfilerContext(ProfilerRecords(), "nothing"):
    ...     pass
    """

    def __init__(self, records: ProfilerRecords, name: str) -> None:
        self._records = records
        self._name = name
        self._entered: list[StatisticsResourceAdaptor | None] = []  # the adaptor of each entry

    def _recreate_cm(self) -> ProfilerContext:
        return ProfilerContext(self._records, self._name)  # for each call, as threads may call the function

    def __call__(self, func: _F) -> _F:
        expect_whole_calls(func, "the profiler")
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
        adaptor = self._entered.pop()  # not the current resource, which may have changed
        if adaptor is not None:
            self._records.add(self._name, adaptor.pop_counters())


def profiler(*, records: ProfilerRecords = default_profiler_records, name: str = "") -> ProfilerContext:
    """Record what a function or a block allocates. Does nothing if statistics are not enabled.

    Raises TypeError for coroutines and generators: other code runs between their pieces, and would be counted.

    Parameters
    ----------
    records : ProfilerRecords, optional
        The records to add to.
    name : str, optional
        The name to record under. If empty, the name of the decorated function, with its file and line.

    Returns
    -------
    ProfilerContext
        A context manager, which is also a decorator.

    Raises
    ------
    ValueError
        When it is entered as a context manager without a name.

    Examples
    --------
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
