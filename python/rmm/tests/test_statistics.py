# SPDX-License-Identifier: Apache-2.0
"""rmm.statistics, with the numbers of RMM 24.08: sizes are rounded up to 16 bytes"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import rmm
from rmm._build_facts import cuda_backend
from rmm._cuda import gpu
from rmm.statistics import (
    ProfilerRecords,
    Statistics,
    _get_descriptive_name_of_object,
    default_profiler_records,
    enable_statistics,
    get_statistics,
    pop_statistics,
    profiler,
    push_statistics,
    statistics,
)


@pytest.fixture
def adaptor() -> rmm.mr.StatisticsResourceAdaptor:
    resource = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(resource)
    return resource


def zeros(**changes: int) -> Statistics:
    names = ("current_bytes", "current_count", "peak_bytes", "peak_count", "total_bytes", "total_count")
    return Statistics(**{**dict.fromkeys(names, 0), **changes})


def test_nothing_is_counted_at_first(adaptor: rmm.mr.StatisticsResourceAdaptor) -> None:
    assert adaptor.allocation_counts == zeros()


def test_buffers_are_counted(adaptor: rmm.mr.StatisticsResourceAdaptor) -> None:
    buffers = [rmm.DeviceBuffer(size=1000) for _ in range(10)]
    del buffers[9::-2]
    assert adaptor.allocation_counts == Statistics(5040, 5, 10080, 10, 10080, 10)

    above = rmm.mr.StatisticsResourceAdaptor(adaptor)
    rmm.mr.set_current_device_resource(above)
    buffers += [rmm.DeviceBuffer(size=1000) for _ in range(2)]
    assert above.allocation_counts == Statistics(2016, 2, 2016, 2, 2016, 2)
    assert adaptor.allocation_counts == Statistics(7056, 7, 10080, 10, 12096, 12)
    del buffers
    assert above.allocation_counts.current_bytes == adaptor.allocation_counts.current_bytes == 0
    assert above.allocation_counts.current_count == adaptor.allocation_counts.current_count == 0


def test_counters_are_pushed_and_popped(adaptor: rmm.mr.StatisticsResourceAdaptor) -> None:
    buffers = [rmm.DeviceBuffer(size=10) for _ in range(10)]
    assert adaptor.allocation_counts == Statistics(160, 10, 160, 10, 160, 10)
    assert adaptor.push_counters() == Statistics(160, 10, 160, 10, 160, 10)
    one = rmm.DeviceBuffer(size=10)
    assert adaptor.push_counters() == Statistics(16, 1, 16, 1, 16, 1)
    del one
    assert adaptor.pop_counters() == Statistics(-16, -1, 0, 0, 0, 0)
    buffers.append(rmm.DeviceBuffer(size=10))
    assert adaptor.push_counters() == Statistics(16, 1, 16, 1, 32, 2)
    buffers.append(rmm.DeviceBuffer(size=10))
    assert adaptor.pop_counters() == Statistics(16, 1, 16, 1, 16, 1)
    assert adaptor.pop_counters() == Statistics(32, 2, 32, 2, 48, 3)
    del buffers[-2:]
    assert adaptor.allocation_counts == Statistics(160, 10, 192, 12, 208, 13)
    with pytest.raises(IndexError, match="cannot pop the last counter pair"):
        adaptor.pop_counters()


def test_statistics_can_be_read_like_a_dict() -> None:
    assert zeros(peak_bytes=3)["peak_bytes"] == 3
    with pytest.raises(KeyError):
        zeros()["bytes"]


def test_enabling_twice_changes_nothing() -> None:
    assert get_statistics() is None
    assert push_statistics() is None
    assert pop_statistics() is None
    enable_statistics()
    resource = rmm.mr.get_current_device_resource()
    enable_statistics()
    assert rmm.mr.get_current_device_resource() is resource
    assert get_statistics() == zeros()


def test_the_context_counts_from_zero() -> None:
    before = rmm.mr.get_current_device_resource()
    with statistics():
        first = rmm.DeviceBuffer(size=20)
        assert get_statistics() == Statistics(32, 1, 32, 1, 32, 1)
        with statistics():
            second = rmm.DeviceBuffer(size=10)
            assert get_statistics() == Statistics(16, 1, 16, 1, 16, 1)
        assert get_statistics() == Statistics(48, 2, 48, 2, 48, 2)
        del first, second
    assert rmm.mr.get_current_device_resource() is before
    assert get_statistics() is None


def test_the_context_goes_on_where_statistics_are_enabled(adaptor: rmm.mr.StatisticsResourceAdaptor) -> None:
    with statistics():
        assert rmm.mr.get_current_device_resource() is adaptor
        rmm.DeviceBuffer(size=10)
    assert adaptor.allocation_counts == Statistics(0, 0, 16, 1, 16, 1)


@pytest.mark.parametrize("enabled", [False, True])
def test_the_resource_must_not_change_inside(enabled: bool, cuda: rmm.mr.CudaMemoryResource) -> None:
    if enabled:
        enable_statistics()
    with pytest.raises(ValueError, match="changed"), statistics():
        rmm.mr.set_current_device_resource(cuda)


def test_a_change_inside_loses_no_counts(cuda: rmm.mr.CudaMemoryResource) -> None:
    enable_statistics()
    adaptor: Any = rmm.mr.get_current_device_resource()
    buffer = rmm.DeviceBuffer(size=16)
    with pytest.raises(ValueError, match="changed"), statistics():
        rmm.mr.set_current_device_resource(cuda)
    assert buffer.size == 16
    assert adaptor.allocation_counts == Statistics(16, 1, 16, 1, 16, 1)
    with pytest.raises(IndexError):
        adaptor.pop_counters()


def test_exceptions_leave_the_context() -> None:
    before = rmm.mr.get_current_device_resource()
    with pytest.raises(KeyError), statistics():
        raise KeyError
    assert rmm.mr.get_current_device_resource() is before


@pytest.mark.parametrize("enabled", [False, True])
def test_the_context_ends_on_the_device_on_which_it_began(enabled: bool, second_device: int) -> None:
    if enabled:
        enable_statistics()
    before = rmm.mr.get_per_device_resource(0)
    with statistics():
        rmm.DeviceBuffer(size=16)
        inside: Any = rmm.mr.get_per_device_resource(0)
        gpu.setDevice(second_device)
    assert gpu.getDevice() == second_device
    assert get_statistics() is None
    assert rmm.mr.get_per_device_resource(0) is before
    with pytest.raises(IndexError):
        inside.pop_counters()


async def runs_in_pieces() -> None: ...


def yields() -> Iterator[int]:
    yield 1


async def does_both() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [runs_in_pieces, yields, does_both])
def test_coroutines_and_generators_are_not_profiled(function: Any) -> None:
    with pytest.raises(TypeError, match=r"is a coroutine or a generator.*use the profiler in a with statement"):
        profiler()(function)


def test_functions_are_profiled() -> None:
    records = ProfilerRecords()

    @profiler(records=records)
    def f(count: int) -> int:
        """What f does."""
        buffers = [rmm.DeviceBuffer(size=10) for _ in range(count)]
        return len(buffers)

    enable_statistics()
    assert f(2) == 2
    f(2)
    assert f.__name__ == "f"
    assert f.__doc__ == "What f does."
    ((name, record),) = records.records.items()
    assert name == _get_descriptive_name_of_object(f)
    assert record == ProfilerRecords.MemoryRecord(num_calls=2, memory_total=64, memory_peak=32)


def test_blocks_are_profiled(adaptor: rmm.mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()
    with profiler(records=records, name="buffers"):
        buffers = [rmm.DeviceBuffer(size=100) for _ in range(100)]
        del buffers
    assert records.records == {"buffers": ProfilerRecords.MemoryRecord(1, 11200, 11200)}


def test_recursion_is_profiled_level_by_level(adaptor: rmm.mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()

    @profiler(records=records, name="f")
    def f(depth: int) -> None:
        buffer = rmm.DeviceBuffer(size=16)
        if depth > 0:
            f(depth - 1)
        assert buffer.size == 16

    f(2)
    assert records.records == {"f": ProfilerRecords.MemoryRecord(3, 16 + 32 + 48, 48)}


def test_a_block_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name"), profiler():
        pass


def test_nothing_is_recorded_while_statistics_are_off() -> None:
    with profiler(name="off"):
        rmm.DeviceBuffer(size=10)
    assert "off" not in default_profiler_records.records


@pytest.mark.skipif(cuda_backend != "sim", reason="needs a machine without devices, which the simulator can be")
@pytest.mark.program(
    """
    from rmm.statistics import default_profiler_records, get_statistics, pop_statistics, profiler, push_statistics

    print(get_statistics(), push_statistics(), pop_statistics(), profiler()(lambda: "called")(), default_profiler_records)
    """,
    options=[],
    environment={"CUDASIM_DEVICES": "0", "CUDASIM_QUIET": "1"},
)
def test_nothing_is_counted_without_a_device(done: subprocess.CompletedProcess[str]) -> None:
    assert done.stderr == ""
    assert done.stdout.startswith("None None None called Memory Profiling")
    assert "No data" in done.stdout


def test_the_default_records_are_shared(adaptor: rmm.mr.StatisticsResourceAdaptor) -> None:
    with profiler(name="test_the_default_records_are_shared"):
        rmm.DeviceBuffer(size=10)
    assert default_profiler_records.records["test_the_default_records_are_shared"].memory_total == 16


def test_statistics_may_be_enabled_inside_a_profiler() -> None:
    records = ProfilerRecords()

    @profiler(records=records, name="main")
    def main() -> rmm.DeviceBuffer:
        enable_statistics()
        return rmm.DeviceBuffer(size=16)

    main()
    assert records.records == {}  # was not counted from its begin
    main()
    assert records.records["main"].num_calls == 1


def test_a_profiler_pops_what_it_pushed_where_the_resource_was_changed_inside(
    adaptor: rmm.mr.StatisticsResourceAdaptor,
) -> None:
    records = ProfilerRecords()
    with profiler(records=records, name="changes"):
        buffer = rmm.DeviceBuffer(size=16)
        rmm.mr.set_current_device_resource(rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource()))
        rmm.DeviceBuffer(size=32)
    assert records.records["changes"].memory_total == buffer.size
    assert adaptor.allocation_counts == zeros(
        current_bytes=16, current_count=1, peak_bytes=16, peak_count=1, total_bytes=16, total_count=1
    )


def test_a_profiler_may_be_entered_again_inside_itself(adaptor: rmm.mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()
    block = profiler(records=records, name="block")
    with block, block:
        rmm.DeviceBuffer(size=16)
    assert records.records["block"].num_calls == 2
    with pytest.raises(IndexError):
        adaptor.pop_counters()


def test_exceptions_pass_a_profiler_and_are_recorded(adaptor: rmm.mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()

    @profiler(records=records, name="failing")
    def fail() -> None:
        rmm.DeviceBuffer(size=10)
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert records.records["failing"].num_calls == 1
    with pytest.raises(IndexError):
        adaptor.pop_counters()


def test_records_can_be_added_by_many_threads() -> None:
    records = ProfilerRecords()
    start = threading.Barrier(4)

    def add() -> None:
        start.wait()
        for _ in range(1000):
            records.add("x", zeros(total_bytes=1, peak_bytes=2))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert records.records == {"x": ProfilerRecords.MemoryRecord(4000, 4000, 2)}


def test_the_records_are_a_copy() -> None:
    records = ProfilerRecords()
    records.records["x"] = ProfilerRecords.MemoryRecord()
    assert records.records == {}
    assert repr(records) == "ProfilerRecords({})"
    records.add("x", zeros())
    copied = records.records["x"]
    records.add("x", zeros())
    assert copied.num_calls == 1


def test_a_report_without_records() -> None:
    assert str(ProfilerRecords()) == ("Memory Profiling\n================\n\nNo data, maybe profiling wasn't enabled?")


def test_a_report_is_a_table() -> None:
    records = ProfilerRecords()
    records.add("small", zeros(total_bytes=100_000, peak_bytes=1_000))
    records.add("large", zeros(total_bytes=50_000, peak_bytes=1_234_567))
    lines = str(records).split("\n")
    assert lines[:3] == ["Memory Profiling", "================", ""]
    assert "Ordered by: memory_peak" in lines
    assert lines[-3:] == [
        "ncalls     memory_peak    memory_total  filename:lineno(function)",
        "     1       1,234,567          50,000  large",
        "     1           1,000         100,000  small",
    ]
    by_total = records.report(ordered_by="memory_total").split("\n")
    assert "Ordered by: memory_total" in by_total
    assert by_total[-2].endswith("small")


def test_names_tell_file_line_and_function() -> None:
    def f() -> None:
        pass

    name = _get_descriptive_name_of_object(f)
    assert name == f"{__file__}:{f.__code__.co_firstlineno}(test_names_tell_file_line_and_function.<locals>.f)"
    decorated: Any = profiler(name="x")(f)
    assert _get_descriptive_name_of_object(decorated) == name


def test_names_need_no_source() -> None:
    names: dict[str, Any] = {}
    exec(compile("def f():\n    pass", "<typed in>", "exec"), names)
    assert _get_descriptive_name_of_object(names["f"]) == "<typed in>:1(f)"


SIZES_THAT_ARE_COUNTED = """
import rmm
{choose}
limiting = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), 1000)
statistics = rmm.mr.StatisticsResourceAdaptor(limiting)
tracking = rmm.mr.TrackingResourceAdaptor(statistics)
rmm.mr.set_current_device_resource(tracking)
buffer = rmm.DeviceBuffer(size=25)
print(statistics.allocation_counts.current_bytes, tracking.get_allocated_bytes())
del buffer
print(statistics.allocation_counts.current_bytes, tracking.get_allocated_bytes(), limiting.get_allocated_bytes())
"""


def counting(choose: str, variable: str | None, counted: int) -> Any:
    text = SIZES_THAT_ARE_COUNTED.format(choose=choose)
    program = pytest.mark.program(text, options=[], environment={"RMM_UNROUNDED_SIZES": variable})
    return pytest.param(choose, variable, counted, marks=program)


@pytest.mark.parametrize(
    ("choose", "variable", "counted"),
    [
        counting("", None, 32),
        counting("", "0", 32),
        counting("", "1", 25),
        counting("rmm.mr.use_unrounded_sizes()", None, 25),
        counting("rmm.mr.use_unrounded_sizes(False)", "1", 32),
    ],
)
def test_sizes_are_counted_rounded_or_exactly(
    choose: str, variable: str | None, counted: int, done: subprocess.CompletedProcess[str]
) -> None:
    assert (done.stdout, done.stderr) == (f"{counted} {counted}\n0 0 0\n", "")


def test_sizes_are_chosen_before_the_first_allocation() -> None:
    rmm.DeviceBuffer(size=25)
    with pytest.raises(RuntimeError, match="comes too late"):
        rmm.mr.use_unrounded_sizes()
    rmm.mr.use_unrounded_sizes(False)  # as it is
