# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all tests. Each test begins and ends with the initial resources, and must free what it allocates."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from random import Random
from select import select
from types import ModuleType
from typing import Any

import pytest

os.environ.setdefault("CUDASIM_DEVICES", "2")
os.environ.setdefault("CUDASIM_MEMORY", "16GB")
os.environ.setdefault("RMM_DEBUG_LOG_FILE", os.devnull)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # each program would make a thread for each processor
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import rmm
import rmm.mr
from rmm._build_facts import cuda_backend
from rmm._cuda import gpu

is_simulated = cuda_backend == "sim"


@pytest.fixture(autouse=True)
def nothing_left_behind(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RMM_LOG_FILE", raising=False)
    free_before = rmm.mr.available_device_memory()[0]
    yield
    (request.node.funcargs or {}).clear()  # other fixtures' results; None after an interrupt
    gpu.setDevice(0)
    rmm.reinitialize()
    gc.collect()
    if "rmm.sleep" in sys.modules:
        sys.modules["rmm.sleep"]._sleeper.release_unused()
    gc.freeze()  # the remaining objects are mostly modules, which later collections can skip
    if is_simulated:
        assert rmm.mr.available_device_memory()[0] == free_before


longest_program = 900  # seconds

Result = subprocess.CompletedProcess[str] | str  # the result of a program, or the reason to skip its test
Finish = Callable[[], subprocess.CompletedProcess[str]]  # runs the rest of a program that waits for its turn
Results = dict[str, subprocess.CompletedProcess[str]]  # by test: of programs that share an interpreter
FinishAll = Callable[[], Results]
shared_interpreter = Path(__file__).with_name("shared_interpreter.py").read_text()
sign = "waits for its turn\n"  # what such a program prints
Variables = Mapping[str, str | None]  # of an environment; None removes one
Kind = tuple[ModuleType, bool, bool, tuple[str, ...], tuple[tuple[str, str | None], ...]]  # see kind_of
Started = dict[str | ModuleType, Future[Any]]  # by test or module: of Result, Results, Finish or FinishAll, or a reason


def at_code(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Splits the arguments of an interpreter into its options, and the option -c with all that follows."""
    code = arguments.index("-c")
    return arguments[:code], arguments[code:]


class Programs:
    """Runs programs in other interpreters, several at a time, with the environment from before the tests."""

    wait_for_turn = f"input({sign!r})\n"  # a line of programs for prepare()

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(min(16, os.cpu_count() or 1))
        self._running: set[subprocess.Popen[str]] = set()
        self._environment = {name: value for name, value in os.environ.items() if name != "RMM_LOG_FILE"}
        self._is_over = False
        self.folders: dict[str, Path] = {}  # by test: where its program runs

    def ask(self, question: Callable[[], str]) -> Future[str]:
        """Runs a function beside the tests. Submit programs that wait for its answer later."""
        return self._threads.submit(question)

    def submit(
        self, arguments: Sequence[str], folder: Path, reason_to_skip: Future[str], environment: Variables
    ) -> Future[Result]:
        """Runs a program, with other variables in the environment. The result is the reason to skip it, if there is one."""
        return self._threads.submit(
            lambda: reason_to_skip.result() or self._finish(self._start(arguments, folder, environment))
        )

    def start_together(
        self,
        arguments: Mapping[str, Sequence[str]],
        folder: Path,
        environment: Variables,
        stdin: int | None = None,
    ) -> FinishAll:
        """Starts programs in one interpreter, one after the other. `arguments` has those of each program, by its name.

        All have the same options before -c. If a program ends the interpreter, the rest of them run in another one.
        """
        programs: dict[str, dict[str, Any]] = {}
        for name, each in arguments.items():
            options, (_, code, *own) = at_code(each)
            place = folder / str(len(programs))
            place.mkdir()
            self.folders[name] = place
            output, errors = place.with_suffix(".output"), place.with_suffix(".errors")
            output.touch()
            errors.touch()
            files = {"folder": str(place), "output": str(output), "errors": str(errors)}
            programs[name] = {"code": code, "arguments": own, **files}
        listed = folder / "programs.json"

        def start(names: Sequence[str]) -> subprocess.Popen[str]:
            listed.write_text(json.dumps([programs[name] for name in names]))
            command = [*options, "-c", shared_interpreter, str(listed)]
            return self._start(command, folder, environment, stdin)

        def finish(process: subprocess.Popen[str]) -> Results:
            results, rest = Results(), list(programs)
            while True:
                done = self._finish(process)
                for name in rest[: len(done.stdout) + 1]:  # it has a dot for each program that others follow
                    texts = (Path(programs[name][kind]).read_text() for kind in ("output", "errors"))
                    results[name] = subprocess.CompletedProcess(arguments[name], 0, *texts)
                results[name].returncode = done.returncode
                results[name].stderr += done.stderr
                rest = rest[len(done.stdout) + 1 :]
                if not rest or self._is_over:
                    return results
                process = start(rest)

        return partial(finish, start(list(programs)))

    def submit_together(
        self,
        arguments: Mapping[str, Sequence[str]],
        folder: Path,
        reason_to_skip: Future[str],
        environment: Variables,
    ) -> Future[str | Results]:
        """Lets programs share an interpreter. The result is the reason to skip them, if there is one."""
        return self._threads.submit(
            lambda: reason_to_skip.result() or self.start_together(arguments, folder, environment)()
        )

    def prepare(
        self, arguments: Sequence[str], folder: Path, reason_to_skip: Future[str], environment: Variables
    ) -> Future[str | Finish]:
        """Starts a program that waits for its turn. The result is the reason to skip it, or what runs the rest of it.

        Such programs begin beside all others, and keep what they have imported and allocated until their turn.
        """
        return self._threads.submit(
            lambda: (
                reason_to_skip.result()
                or partial(self._finish, self._start(arguments, folder, environment, stdin=subprocess.PIPE))
            )
        )

    def prepare_together(
        self,
        arguments: Mapping[str, Sequence[str]],
        folder: Path,
        reason_to_skip: Future[str],
        environment: Variables,
    ) -> Future[str | FinishAll]:
        """Starts programs that share an interpreter and a turn. The first one waits for it, and the others follow in it."""
        return self._threads.submit(
            lambda: (
                reason_to_skip.result()
                or cache(self.start_together(arguments, folder, environment, stdin=subprocess.PIPE))
            )
        )

    def wait_for_begun(self) -> None:
        """Waits until each program waits for its turn or has ended, if all that run were prepared."""
        for output in [process.stdout for process in self._running if process.stdout]:
            select([output], [], [], longest_program)  # readable after the sign, and at the end

    def stop(self) -> None:
        self._is_over = True
        for process in tuple(self._running):
            self._kill(process)
        self._threads.shutdown(cancel_futures=True)
        for process in tuple(self._running):  # those whose turn has not come
            self._finish(process)

    def _start(
        self, arguments: Sequence[str], folder: Path, environment: Variables, stdin: int | None = None
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={name: value for name, value in {**self._environment, **environment}.items() if value is not None},
            start_new_session=True,
        )
        self._running.add(process)
        if self._is_over:
            self._kill(process)
        return process

    def _finish(self, process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        with process:
            try:
                turn = None if process.stdin is None else "\n"
                output, errors = process.communicate(turn, timeout=longest_program)
            except subprocess.TimeoutExpired:
                self._kill(process)
                output, errors = process.communicate()
                errors += f"\nkilled: it took longer than {longest_program} s"
            finally:
                self._running.discard(process)
        return subprocess.CompletedProcess(process.args, process.returncode, output.removeprefix(sign), errors)

    @staticmethod
    def _kill(process: subprocess.Popen[str]) -> None:
        """Kills the program and all processes that it started."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def uses(test: pytest.Item, fixture: str) -> bool:
    return fixture in getattr(test, "fixturenames", ())


def has_a_turn(test: pytest.Function) -> bool:
    """Returns whether the test's program waits until it has the device alone. Simulated processes do not share one."""
    return uses(test, "device_alone") and uses(test, "done") and not is_simulated


def arguments_of(test: pytest.Function) -> Sequence[str]:
    marker = test.get_closest_marker("program")
    if marker is None or not marker.args:
        arguments: Sequence[str] | None = marker and marker.kwargs.get("arguments")
        return arguments or test.module.program_of(test)
    begin = marker.kwargs.get("begin", getattr(test.module, "begin", ""))
    turn = Programs.wait_for_turn if has_a_turn(test) else ""
    options = marker.kwargs.get("options", ["-W", "ignore"])
    return [*options, "-c", textwrap.dedent(begin) + turn + textwrap.dedent(marker.args[0])]


def environment_of(test: pytest.Function) -> Variables:
    marker = test.get_closest_marker("program")
    of_module: Variables = getattr(test.module, "environment_of", lambda _: {})(test)
    return {**of_module, **(marker.kwargs.get("environment", {}) if marker else {})}


def takes_long(test: pytest.Function) -> bool:
    marker = test.get_closest_marker("program")
    return bool(marker and marker.kwargs.get("takes_long")) or getattr(test.module, "takes_long", False)


def shares(test: pytest.Function) -> bool:
    """Returns whether the test's program may run in one interpreter with others of its module."""
    marker = test.get_closest_marker("program")
    of_module = getattr(test.module, "programs_share", False)
    return bool(marker.kwargs.get("shares", of_module) if marker else of_module)


def kind_of(test: pytest.Function) -> Kind:
    """Returns what programs have in common that share an interpreter.

    That is the module, whether they always run, whether they have a turn, the options and the environment.
    """
    options, _ = at_code(arguments_of(test))
    environment = tuple(sorted(environment_of(test).items()))
    return test.module, is_always_run(test), has_a_turn(test), tuple(options), environment


def is_always_run(test: pytest.Function) -> bool:
    marker = test.get_closest_marker("program")
    return marker is not None and bool(marker.kwargs.get("always", False))


def is_skipped(test: pytest.Function) -> bool:
    """Returns whether a mark skips the test."""
    return any(mark.name == "skip" or (mark.name == "skipif" and mark.args[0] is True) for mark in test.iter_markers())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts those tests last that wait for programs: first those that wait for their own, then those that wait for all."""
    for test in items:
        marker = test.get_closest_marker("program")
        if marker and not uses(test, "done"):
            raise pytest.UsageError(f"{test.nodeid} has a program and does not use the fixture `done`, which runs it")
        if uses(test, "done") and uses(test, "device_alone") and not (marker and marker.args):
            raise pytest.UsageError(
                f"{test.nodeid} needs the device alone, so its program has to be the text of a marker"
            )
    items.sort(
        key=lambda test: 2 if uses(test, "device_alone") else uses(test, "done") or uses(test, "done_for_module")
    )


@pytest.fixture(scope="session")
def programs() -> Iterator[Programs]:
    programs = Programs()
    yield programs
    programs.stop()


@pytest.fixture(scope="session", autouse=True)
def started_programs(
    request: pytest.FixtureRequest, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Started:
    """Starts the programs of all tests that use `done`, one on each processor, beside the other tests.

    A test with the marker `program` runs that text after the marker's or the module's `begin`, with the marker's `options` of
    the interpreter, or with its `arguments` what they say. For the others the module's function `program_of` returns the
    arguments of the interpreter. If a test with such a text also uses `device_alone`, its program waits for its turn between
    `begin` and the text. Its `begin` runs beside other programs: it may make a context, load kernels and keep a
    little memory, and must not measure free memory or print.
    A module with `reason_to_skip` skips them all if that returns one, except those whose marker says `always=True`.
    A module with `environment_of` adds the variables that it returns for a test, and the marker those of its `environment`.
    None removes a variable. A program runs in a new folder, which `folder_of_program` returns after its end.
    Tests that use `done_for_module` share the program whose arguments the module's function `program_of_module` returns.
    Programs of a module with the same options and environment run in one interpreter, one after the other, if their markers say
    `shares=True` or the module `programs_share = True`. Each gets a new `__main__` and folder, and RMM's initial resources. Its
    changes of the environment, the paths of imports and the filters of warnings are undone. A program needs an interpreter of
    its own if it tests imports or the end of a process, or shares memory with another process. It may compare what frameworks
    count with what they had counted before.
    Programs with a turn share it, too: the first one waits for it, and the others run in it, with their `begin`.
    Programs that share start first, then those with a turn, because others wait until these have begun. The others follow in
    random order: those that import much need processors, and those that make a context wait for the driver, which makes one at
    a time. Those whose marker says `takes_long=True` or whose module does are in the first half: none runs alone at the end.
    """
    tests = [test for test in request.session.items if isinstance(test, pytest.Function) and not is_skipped(test)]
    shared = {test.module for test in tests if uses(test, "done_for_module")}
    tests = [test for test in tests if uses(test, "done")]
    reasons = {
        module: programs.ask(getattr(module, "reason_to_skip", str))
        for module in shared | {test.module for test in tests}
    }
    no_reason = programs.ask(str)
    started: Started = {
        module: programs.submit(module.program_of_module(), tmp_path_factory.mktemp("program"), reasons[module], {})
        for module in shared
    }
    if any(uses(test, "kernels_of_numba") for test in tests) and not is_simulated:
        program = 'from numba import cuda; cuda.jit("void()")(lambda: None)'
        folder = tmp_path_factory.mktemp("program")
        started["kernels of Numba"] = programs.submit(["-W", "ignore", "-c", program], folder, no_reason, {})
    together: dict[Kind, dict[str, Sequence[str]]] = {}
    for test in filter(shares, tests):
        together.setdefault(kind_of(test), {})[test.nodeid] = arguments_of(test)
    for (module, always, has_turn, _, environment), arguments in together.items():
        folder = tmp_path_factory.mktemp("programs")
        reason = no_reason if always else reasons[module]
        start = programs.prepare_together if has_turn else programs.submit_together
        started |= dict.fromkeys(arguments, start(arguments, folder, reason, dict(environment)))
    tests = [test for test in tests if not shares(test)]
    number = Random(0).random
    for test in sorted(tests, key=lambda test: (not has_a_turn(test), number() / (2 if takes_long(test) else 1))):
        folder = programs.folders[test.nodeid] = tmp_path_factory.mktemp("program")
        started[test.nodeid] = (programs.prepare if has_a_turn(test) else programs.submit)(
            arguments_of(test),
            folder,
            reason_to_skip=no_reason if is_always_run(test) else reasons[test.module],
            environment=environment_of(test),
        )
    return started


def result_of(program: Future[Any], name: str = "") -> subprocess.CompletedProcess[str]:
    result: Result | Results | Finish | FinishAll = program.result()
    if isinstance(result, str):
        pytest.skip(result)
    if callable(result):
        result = result()
    return result[name] if isinstance(result, dict) else result


@pytest.fixture
def done(request: pytest.FixtureRequest, started_programs: Started) -> subprocess.CompletedProcess[str]:
    """Returns the result of the test's program."""
    if has_a_turn(request.node):
        request.getfixturevalue("device_alone")
    return result_of(started_programs[request.node.nodeid], request.node.nodeid)


@pytest.fixture
def folder_of_program(
    request: pytest.FixtureRequest, done: subprocess.CompletedProcess[str], programs: Programs
) -> Path:
    """Returns the folder that the test's program ran in, with the files that it left there."""
    return programs.folders[request.node.nodeid]


@pytest.fixture(scope="module")
def done_for_module(request: pytest.FixtureRequest, started_programs: Started) -> subprocess.CompletedProcess[str]:
    """Returns the result of the module's program."""
    return result_of(started_programs[request.module])


@pytest.fixture
def device_alone(started_programs: Started, programs: Programs) -> None:
    """Waits until each program has ended or waits for its turn, for tests that compare free memory.

    Simulated processes do not share a device.
    """
    if not is_simulated:
        wait(started_programs.values())
        programs.wait_for_begun()


@pytest.fixture
def open_descriptors(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], int]:
    """A function that counts the open descriptors without those by which other threads talk to the programs of tests."""
    folder_of_programs = str(tmp_path_factory.getbasetemp().resolve() / "programs")

    def count() -> int:
        targets = []
        for each in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # it has been closed meanwhile
                targets.append(os.readlink(each))
        return sum(not target.startswith(("pipe:", folder_of_programs)) for target in targets)

    return count


@pytest.fixture
def cuda() -> rmm.mr.CudaMemoryResource:
    return rmm.mr.CudaMemoryResource()


@pytest.fixture
def small_pool(cuda: rmm.mr.CudaMemoryResource) -> rmm.mr.PoolMemoryResource:
    """Makes a pool of at most 8 MiB the current resource."""
    pool = rmm.mr.PoolMemoryResource(cuda, initial_pool_size=1 << 20, maximum_pool_size=1 << 23)
    rmm.mr.set_current_device_resource(pool)
    return pool


@pytest.fixture
def second_device() -> Iterator[int]:
    """The number of a second device. Device 0 is the current one."""
    if gpu.getDeviceCount() < 2:
        pytest.skip("needs two devices")
    yield 1
    gpu.setDevice(0)


@pytest.fixture(scope="session")
def kernels_of_numba(started_programs: Started) -> None:
    """Skips tests with kernels if Numba cannot import its compiler, for example because NumPy is too new for it."""
    if is_simulated:
        return  # no test on the simulator compiles a kernel
    done = result_of(started_programs["kernels of Numba"])
    reason = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode != 0 and reason.startswith(("AttributeError: module 'numpy'", "ImportError", "ModuleNotFound")):
        pytest.skip(f"Numba cannot import its compiler: {reason}")
