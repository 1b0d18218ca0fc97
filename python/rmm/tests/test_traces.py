# SPDX-License-Identifier: Apache-2.0
"""Traces: started by environment variables, with Python stacks, and read by `python -m rmm`."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import rmm
import rmm.librmm
from rmm._commands import trace_program
from rmm.pylibrmm.memory_resource._adaptors import EnvironmentTrace


@dataclass
class Trace:
    """Reads a trace file; see tools/recorded/README.md."""

    events: list[tuple[int, int, list[int]]] = field(default_factory=list)  # kind, size, stack
    names: dict[int, str] = field(default_factory=dict)  # names of frames, by number

    @classmethod
    def read(cls, path: Path | str) -> Trace:
        trace = cls()
        data = Path(path).read_bytes()
        assert data[:8] == b"RMMTRACE"
        at = struct.unpack_from("<I", data, 12)[0]
        while at < len(data):
            assert data[at : at + 4] == b"TBLK"
            length = struct.unpack_from("<I", data, at + 4)[0]
            trace._read_block(data[at + 48 : at + 48 + length])
            at += 48 + (length + 7) // 8 * 8
        return trace

    def _read_block(self, payload: bytes) -> None:
        at, stack = 0, []
        while at < len(payload):
            control, what = payload[at], payload[at + 1]
            at += 2
            if control & 3 == 3:
                (length,) = struct.unpack_from("<H", payload, at)
                content = payload[at + 2 : at + 2 + length]
                at += 2 + length
                if what == 3:
                    stack = list(struct.unpack(f"<{length // 8}Q", content))
                if what == 4:
                    self.names[struct.unpack_from("<Q", content)[0]] = content[8:].decode()
                continue
            at += 1 << (control >> 2 & 3)
            width = 1 << (control >> 4 & 3)
            size = int.from_bytes(payload[at : at + width], "little")
            at += width + 2 + 2 * (control >> 6)
            self.events.append((control & 3, size, stack))
            stack = []

    def stack_of(self, event: int) -> list[str]:
        return [self.names[frame] for frame in self.events[event][2]]

    def with_python(self) -> list[int]:
        """Returns the events whose stacks have functions of Python."""
        return [number for number, event in enumerate(self.events) if any(frame >> 63 for frame in event[2])]


def attempts() -> Iterator[int]:
    """Numbers attempts to get stacks with functions of Python. An allocation waits 20 ms for them, which is too short on a busy
    machine. The next ones of two seconds do not ask."""
    for number in range(60):
        yield number
        time.sleep(2.1)


def frames_here(stack: list[str]) -> list[str]:
    """Returns the functions of this file in a stack, innermost first."""
    return [name.split(" at ")[0] for name in stack if f" at {__file__}:" in name]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch, cuda: rmm.mr.CudaMemoryResource) -> rmm.mr.TraceResourceAdaptor:
    """Traces all allocations and their stacks to the file `trace`."""
    monkeypatch.setenv("RMM_TRACE_STACKS", "1")
    return rmm.mr.TraceResourceAdaptor(cuda, "trace")


def inner(mr: rmm.mr.DeviceMemoryResource) -> rmm.DeviceBuffer:
    return rmm.DeviceBuffer(size=1000, mr=mr)


def outer(mr: rmm.mr.DeviceMemoryResource) -> rmm.DeviceBuffer:
    return inner(mr)


def test_stacks_have_the_functions_of_python(traced: rmm.mr.TraceResourceAdaptor) -> None:
    for _ in attempts():
        buffer = outer(traced)
        traced.flush()
        trace = Trace.read("trace")
        if trace.with_python():
            break
    (event,) = trace.with_python()
    kind, size, stack = trace.events[event]
    assert (kind, size) == (0, 1008)  # a multiple of 16
    assert frames_here(trace.stack_of(event)) == ["inner", "outer", "test_stacks_have_the_functions_of_python"]
    native = [frame for frame in stack if frame < 1 << 63]
    assert native, "the functions of C++ come first"
    assert stack[: len(native)] == native
    assert not any("PyEval" in trace.names[frame] for frame in native)
    del buffer


def test_stacks_of_other_threads_are_theirs(traced: rmm.mr.TraceResourceAdaptor) -> None:
    buffers: list[rmm.DeviceBuffer] = []

    def work() -> None:
        buffers.append(outer(traced))

    for number in attempts():
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        traced.flush()
        trace = Trace.read("trace")
        assert len(trace.events) == 4 * (number + 1)
        if len(trace.with_python()) >= 4:
            break
    assert len(trace.with_python()) >= 4
    for event in trace.with_python():
        assert frames_here(trace.stack_of(event)) == [
            "inner", "outer", "test_stacks_of_other_threads_are_theirs.<locals>.work",
        ]  # fmt: skip


def test_a_thread_that_has_the_lock_of_the_interpreter_reads_its_own_frames(
    traced: rmm.mr.TraceResourceAdaptor,
) -> None:
    """PyTorch holds the GIL when it calls such functions. The reader thread cannot get it, and waiting would take too long."""
    library = ctypes.PyDLL(str(Path(rmm.librmm.__file__).with_name("_torch_allocator.so")))
    library.allocate.restype = ctypes.c_void_p
    library.allocate.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    library.deallocate.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    rmm.mr.set_current_device_resource(traced)
    pointers, seconds = [], []
    for _ in range(10):
        begin = time.monotonic()
        pointers.append(library.allocate(1 << 20, 0, None))
        seconds.append(time.monotonic() - begin)
    assert min(seconds) < 0.02
    for pointer in pointers:
        library.deallocate(pointer, 1 << 20, 0, None)
    traced.flush()
    stack = Trace.read("trace").stack_of(0)
    assert "test_a_thread_that_has_the_lock" in frames_here(stack)[-1]


def test_long_names_lose_their_beginning(traced: rmm.mr.TraceResourceAdaptor) -> None:
    name = "f" + "é" * 100
    scope: dict[str, object] = {"rmm": rmm, "mr": traced}
    for _ in attempts():
        exec(f"def {name}(): return rmm.DeviceBuffer(size=10, mr=mr)\nbuffer = {name}()", scope)
        traced.flush()
        trace = Trace.read("trace")
        if trace.with_python():
            break
    (event,) = trace.with_python()
    assert any(text.startswith("é" * 40) and text.endswith(" at <string>:1") for text in trace.stack_of(event))


# Programs do not know of traces.
begin = "import rmm\n"
tracing = {"RMM_TRACE_FILE": "run.rmmtrace"}


def environment_of(_: pytest.Function) -> dict[str, str]:
    return {"CUDASIM_DEVICES": "2"}


def allocated(trace: Path) -> list[int]:
    """Returns the sizes of the allocations."""
    return [size for kind, size, _ in Trace.read(trace).events if kind == 0]


@pytest.mark.program("rmm.DeviceBuffer(size=4096)", environment=tracing)
def test_the_environment_is_enough(done: subprocess.CompletedProcess[str], folder_of_program: Path) -> None:
    assert done.returncode == 0, done.stderr
    assert [event[:2] for event in Trace.read(folder_of_program / "run.rmmtrace").events] == [(0, 4096), (1, 4096)]


@pytest.mark.program(
    """
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
    rmm.mr.set_current_device_resource(pool)
    a = rmm.DeviceBuffer(size=4096)
    mr = rmm.mr.get_current_device_resource()
    assert mr.upstream_mr is pool and mr.figures()["live_bytes"] == 4096 and mr.pool_size() == 1 << 20
    rmm.mr.set_current_device_resource(rmm.mr.StatisticsResourceAdaptor(mr))
    b = rmm.DeviceBuffer(size=8192)
    rmm.reinitialize(pool_allocator=True, initial_pool_size="1MiB")
    c = rmm.DeviceBuffer(size=256)
    print(mr.get_file_name())
    """,
    environment=tracing,
)
def test_the_environment_traces_what_is_set_later(
    done: subprocess.CompletedProcess[str], folder_of_program: Path
) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(folder_of_program / "run.rmmtrace")
    assert allocated(folder_of_program / "run.rmmtrace") == [4096, 8192, 256], "each once"


@pytest.mark.program(
    """
    import os
    import rmm.statistics
    rmm.reinitialize(logging=True, log_file_name="x.csv")
    rmm.enable_logging("y.csv")  # it is enabled
    assert rmm.get_log_filenames() == {0: os.path.abspath("x.dev0.csv")}, rmm.get_log_filenames()
    rmm.DeviceBuffer(size=4096)
    rmm.disable_logging()
    assert rmm.get_log_filenames() == {0: None}, rmm.get_log_filenames()
    with open("x.dev0.csv") as log:
        assert len(log.readlines()) == 3
    adaptor = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(adaptor)
    a = rmm.DeviceBuffer(size=4096)
    assert rmm.statistics.get_statistics().current_bytes == 4096
    rmm.statistics.enable_statistics()  # they are enabled
    with rmm.statistics.statistics():
        b = rmm.DeviceBuffer(size=512)
        assert rmm.statistics.get_statistics().total_bytes == 512
    assert rmm.mr.get_current_device_resource().upstream_mr is adaptor
    assert rmm.statistics.get_statistics().total_bytes == 4096 + 512
    """,
    environment=tracing,
)
def test_logs_and_statistics_are_found_below_the_trace(
    done: subprocess.CompletedProcess[str], folder_of_program: Path
) -> None:
    assert done.returncode == 0, done.stderr
    assert not (folder_of_program / "y.dev0.csv").exists()
    assert allocated(folder_of_program / "run.rmmtrace") == [4096, 4096, 512], "each once"


def test_a_forked_child_ends_while_its_parent_reads_frames() -> None:
    program = """
import os, signal, sys, threading, time, warnings
import rmm
from rmm.pylibrmm.memory_resource._registry import _end_python_frames

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads, which is meant here
sys.setswitchinterval(1000)  # the thread that reads frames gets the GIL only if this thread releases it
traced = rmm.mr.TraceResourceAdaptor(rmm.mr.CudaMemoryResource(), "trace")
has_ended = False

def allocate():
    while not has_ended:
        rmm.DeviceBuffer(size=256, mr=traced)

thread = threading.Thread(target=allocate, daemon=True)
thread.start()
slow_children = 0
for _ in range(20):
    time.sleep(0.01)
    begin = time.monotonic()
    while time.monotonic() - begin < 0.005:
        pass
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        begin = time.monotonic()
        _end_python_frames()
        os._exit(time.monotonic() - begin > 0.9)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 1), "the child waits for ever"
    slow_children += status
assert slow_children < 5, "they have waited for a thread of their parent"  # some may be slow on a busy machine
has_ended = True
thread.join()
"""
    environment = {**os.environ, "RMM_TRACE_STACKS": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=300)


@pytest.mark.program(
    """
    rmm.DeviceBuffer(size=4096)
    rmm._cuda.gpu.setDevice(1)
    rmm.DeviceBuffer(size=512)
    """,
    environment=tracing,
)
def test_each_device_has_its_trace(
    second_device: int, done: subprocess.CompletedProcess[str], folder_of_program: Path
) -> None:
    assert done.returncode == 0, done.stderr
    assert Trace.read(folder_of_program / "run.rmmtrace").events[0][1] == 4096
    assert Trace.read(folder_of_program / "run.dev1.rmmtrace").events[0][1] == 512


@pytest.mark.program(
    """
    rmm.DeviceBuffer(size=4096)
    print(rmm.mr.get_current_device_resource().figures()["reserved_bytes"])
    """,
    environment={**tracing, "RMM_RESOURCE": "pool,initial=2MiB"},
)
def test_the_environment_chooses_the_resource(done: subprocess.CompletedProcess[str], folder_of_program: Path) -> None:
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 2 << 20
    assert len(Trace.read(folder_of_program / "run.rmmtrace").events) == 2


@pytest.mark.program(
    """
    rmm.DeviceBuffer(size=4096)
    print(rmm.mr.get_current_device_resource().get_file_name())
    """,
    options=[],
    environment={"RMM_TRACE_FILE": "."},  # a folder
)
def test_a_trace_that_cannot_be_written_stops_nothing(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "None"
    assert "RMM_TRACE_FILE: nothing is traced" in done.stderr


def test_nothing_is_traced_unless_the_environment_says_so() -> None:
    assert not isinstance(rmm.mr.get_current_device_resource(), EnvironmentTrace)


def test_commands_of_the_trace_program_get_their_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "rmm-trace"
    program.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setattr(trace_program, "find_trace_program", lambda: str(program))
    from rmm.__main__ import main

    assert main(["report", "a trace", "-o", "page.html", "--help"]) == 3
    assert capfd.readouterr().out == "report a trace -o page.html --help\n"


def test_commands_say_that_the_trace_program_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trace_program, "find_trace_program", lambda: None)
    from rmm.__main__ import main

    assert main(["advise", "trace"]) == 2
    assert "RMM_BUILD_TRACE_TOOL" in capsys.readouterr().err


@pytest.mark.skipif(trace_program.find_trace_program() is None, reason="the package has no rmm-trace")
@pytest.mark.program(
    """
    import os, pathlib, subprocess, sys

    pathlib.Path("program.py").write_text("import rmm\\na = rmm.DeviceBuffer(size=4096)")
    environment = {**os.environ, "RMM_TRACE_FILE": "run.rmmtrace", "RMM_TRACE_STACKS": "1"}
    for _ in range(20):  # on a busy machine, reading the stack can exceed the time that an allocation waits
        subprocess.run([sys.executable, "program.py"], env=environment, check=True)
        if b"program.py:2" in pathlib.Path("run.rmmtrace").read_bytes():
            break
    command = [sys.executable, "-m", "rmm"]
    subprocess.run([*command, "report", "run.rmmtrace", "-o", "page.html"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*command, "advise", "run.rmmtrace"], check=True)
    """,
    begin="",
)
def test_report_and_advise(done: subprocess.CompletedProcess[str], folder_of_program: Path) -> None:
    assert done.returncode == 0, done.stderr
    page = (folder_of_program / "page.html").read_text()
    assert "<html" in page
    assert "program.py:2" in page, "the stack of the allocation"
    assert done.stdout, "the advice"
