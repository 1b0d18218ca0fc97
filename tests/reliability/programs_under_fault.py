#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs programs that know nothing of the simulator; in each run another one of their calls of CUDA fails.

    programs_under_fault.py PROGRAM...

A program is an executable that is linked to the simulator, or a Python file (.py) for this interpreter, with a package built on the simulator.

A first run counts the calls. Then each call fails in a run of its own, through CUDASIM_FAULT, and the program has to

- exit with status 0, or with a text that says what failed: not by a signal, and without hanging;
- give back all that it took, and order all that it does, as the simulator reports at exit. If the failing call was to release
  something, that one thing may stay; if it was to get or set the current device, calls for a wrong device may be refused (`excused`).

Destructors and deallocations cannot report that a call failed. A library with assertions ends the process there instead, with a text that
names the call and its error: that is taken for such calls (`asserted`) only. The call then fails once more, with an error that the assertions
let pass, and the program has to do all of the above, as without assertions.

For each program about 40 calls are tried, some of each function. RMM_TEST_FAULTS=n tries about n, and RMM_TEST_EVERY_FAULT=1 tries all. The
test also fails if less than 90 % of the chosen calls were made at all.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

longest_run = 300  # seconds
least_reached = 0.9

# Calls that report errors of other calls, and return none of their own.
never_fail = {"cudaGetErrorName", "cudaGetErrorString", "cudaGetLastError", "cudaPeekAtLastError", "cudasim::launch"}
never_fail |= {"cuGetErrorName", "cuGetErrorString"}
releases_something = re.compile(r"Free|Destroy|Unmap|Release|Unregister")
# Functions whose failures the library asserts, because what calls them cannot report an error.
asserted = {"cudaFree", "cudaFreeAsync", "cudaFreeHost", "cudaHostUnregister"}  # deallocations
asserted |= {"cudaEventDestroy", "cudaMemPoolDestroy", "cudaStreamDestroy"}  # destructors
asserted |= {"cuMemAddressFree", "cuMemRelease", "cuMemUnmap"}  # destructors of mapped memory
asserted |= {"cudaEventSynchronize", "cudaStreamSynchronize"}  # waits before memory is released
asserted |= {"cudaGetDevice", "cudaSetDevice", "cuCtxPopCurrent"}  # scopes of another device, which end in destructors
asserted |= {"cudaGetDeviceCount"}  # get_num_cuda_devices(), which does not throw
asserted_with_any_error = {"cudaGetDeviceCount"}
accepted_error = "cudaErrorCudartUnloading"  # all other assertions let it pass, since destructors run after the runtime has ended
# What the simulator may report after a failure: the device is unknown (get_current_cuda_device() returns -1 then), or still the one before.
excused = {
    "cudaGetDevice": re.compile(r"misuse: \w+: there is no device -1;"),
    "cudaSetDevice": re.compile(r"misuse: .*: work of device \d+ has no access to memory of device \d+,"),
}
takes_memory = re.compile(r"Malloc|Create|Alloc|Reserve|Register|Map$")
# Matches a text that says why a program ended.
names_a_reason = re.compile(r"cuda(?:Error\w+|GetDeviceCount)|CUDA_ERROR_\w+|\d (?:[KMGT]i)?B\b|\d bytes|which the device does not have")


@dataclass(frozen=True)
class End:
    """How a run ended."""

    status: int  # negative for a signal; -SIGALRM if it had to be killed
    output: str
    report: str  # the simulator's; empty if it wrote none

    def calls(self) -> dict[str, int]:
        found = re.findall(r"^  (\w+) +(\d+)$", self.report.partition("cudasim: leaks")[0], re.MULTILINE)
        return {name: int(count) for name, count in found if name not in never_fail}

    def leaks(self) -> Counter[str]:
        """The leaks of the report, without addresses."""
        lines = self.report.partition("cudasim: leaks")[2].partition("cudasim: violations")[0].splitlines()
        return Counter(re.sub(r"0x\w+", "", line) for line in lines if line.startswith("  "))

    def violations(self) -> list[str]:
        return [line for line in self.report.partition("cudasim: violations")[2].splitlines() if line.startswith("  ")]


@dataclass(frozen=True)
class Fault:
    function: str
    number: int
    asked_error: str = ""

    @property
    def error(self) -> str:
        return self.asked_error or ("cudaErrorMemoryAllocation" if takes_memory.search(self.function) else "cudaErrorUnknown")

    @property
    def text(self) -> str:
        return f"{self.function}:{self.number}:{self.error}"


def environment_of(report: Path) -> dict[str, str]:
    return {
        "CUDASIM_CHECK": "1",
        "CUDASIM_DEVICES": "2",
        "CUDASIM_TIMEOUT": "60",
        "CUDASIM_ALL": "1",
        **os.environ,
        "CUDASIM_REPORT": str(report),
        "RMM_DEBUG_LOG_FILE": os.devnull,
    }


def run_executable(program: Path, fault: Fault | None) -> End:
    with tempfile.TemporaryDirectory(prefix="under-fault-") as folder:
        report = Path(folder) / "report"
        environment = environment_of(report)
        if fault is not None:
            environment["CUDASIM_FAULT"] = fault.text
        with subprocess.Popen([program], env=environment, cwd=folder, text=True, errors="replace", start_new_session=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            status = -signal.SIGALRM
            try:
                errors, _ = process.communicate(timeout=longest_run)
                status = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                errors, _ = process.communicate()
        return End(status, errors, report.read_text() if report.exists() else "")


def run_python(program: Path, faults: list[Fault | None]) -> list[End]:
    """Runs a Python program once for each fault, one after the other."""
    with tempfile.TemporaryDirectory(prefix="under-fault-") as folder:
        texts = ["none" if fault is None else fault.text for fault in faults]
        command = [sys.executable, "-B", "-W", "ignore", Path(__file__).with_name("run_forked.py"), program, folder, str(longest_run), *texts]
        done = subprocess.run(command, env=environment_of(Path(folder) / "report.%p"), cwd=folder, text=True, capture_output=True, check=False)
        ends = [line.split() for line in done.stdout.splitlines()]
        if done.returncode != 0 or len(ends) != len(faults):
            raise SystemExit(f"{program}: {done.stderr or done.stdout}")
        texts_of = lambda name: path.read_text(errors="replace") if (path := Path(folder) / name).exists() else ""
        return [End(int(status), texts_of(f"output.{child}"), texts_of(f"report.{child}")) for status, child in ends]


def run_all(program: Path, faults: list[Fault | None], jobs: int) -> list[End]:
    with ThreadPoolExecutor(jobs) as pool:
        if program.suffix != ".py":
            return list(pool.map(lambda fault: run_executable(program, fault), faults))
        parts = [faults[begin::jobs] for begin in range(min(jobs, len(faults)))]
        ends = list(pool.map(lambda part: run_python(program, part), parts))
        return [ends[index % jobs][index // jobs] for index in range(len(faults))]


def is_assertion(end: End, fault: Fault) -> bool:
    """Returns whether an assertion of the library has ended the run, and says that a call failed with the error of the fault."""
    text = rf"^CUDA Error detected\. {fault.error} .*\n.*: Assertion `.+' failed\.$"
    return end.status == -signal.SIGABRT and fault.function in asserted and re.search(text, end.output, re.MULTILINE) is not None


def problem_of(end: End, fault: Fault | None, kept: Counter[str]) -> str | None:
    """Returns what is wrong with the end of a run, or None. `kept` is what the program leaks if nothing fails."""
    if end.status == -signal.SIGALRM:
        return f"does not end in {longest_run} s"
    if end.status < 0:
        return f"ends by {signal.Signals(-end.status).name}"
    if not end.report:
        return f"ends with status {end.status} and without the simulator's report"
    if fault is None and end.status != (66 if kept else 0):
        return f"ends with status {end.status}, though nothing fails"
    if end.status not in (0, 66) and not names_a_reason.search(end.output):
        return f"ends with status {end.status}, and does not say why"
    may_stay = 1 if fault is not None and releases_something.search(fault.function) else 0
    if (end.leaks() - kept).total() > may_stay:
        return "loses something"
    violations = end.violations()
    excuse = excused.get(fault.function) if fault is not None else None
    is_excused = bool(violations and excuse) and all(excuse.search(line) for line in violations)
    return None if is_excused or "cudasim: violations: none" in end.report else "does what is not ordered, or not allowed"


def chosen(calls: dict[str, int], most: int) -> list[Fault]:
    """Returns about `most` faults: the same number for each function, if it is called as often, from all parts of the run."""
    each = max(calls.values(), default=0)
    if most != 0:
        each = next((n for n in range(1, each) if sum(min(n, count) for count in calls.values()) >= most), each)
    faults = []
    for function, count in calls.items():
        tried = min(each, count)
        faults += [Fault(function, 1 + (2 * index + 1) * count // (2 * tried)) for index in range(tried)]
    return faults


def try_faults(program: Path, faults: list[Fault], jobs: int) -> list[tuple[Fault, End]]:
    """Returns how the program ends with each fault. A fault that an assertion reports is tried again with an error that it accepts."""
    ends = list(zip(faults, run_all(program, list(faults), jobs)))
    stopped = [fault for fault, end in ends if is_assertion(end, fault) and fault.function not in asserted_with_any_error]
    again = [Fault(fault.function, fault.number, accepted_error) for fault in stopped]
    return ends + list(zip(again, run_all(program, list(again), jobs)))


def common_calls(runs: list[End]) -> dict[str, int]:
    """Returns the calls that all runs make. Threads make other numbers of calls each time."""
    counts = [run.calls() for run in runs]
    return {name: min(each[name] for each in counts) for name in counts[0] if all(name in each for each in counts)}


def try_program(program: Path, most: int, jobs: int) -> bool:
    """Prints the result for a program. Returns whether it passed."""
    runs = run_all(program, [None] * 3, jobs)
    kept = runs[0].leaks()
    for run in runs:
        if problem := problem_of(run, None, kept):
            print(f"{program.stem}: {problem}\n{run.output}\n{run.report}")
            return False
    calls = common_calls(runs)
    tried = chosen(calls, most)
    reached = wrong = failed = stopped = 0
    for fault, end in try_faults(program, tried, jobs):
        if fault.error != accepted_error:
            reached += not end.report or end.calls().get(fault.function, 0) >= fault.number
            if is_assertion(end, fault):
                stopped += 1
                continue
            failed += end.status not in (0, 66)
        if problem := problem_of(end, fault, kept):
            wrong += 1
            print(f"{program.stem}, CUDASIM_FAULT={fault.text}: {problem}\n{end.output[-3000:]}\n{end.report.partition('cudasim: leaks')[2]}")
    print(
        f"{program.stem}: {reached} of {len(tried)} calls reached, of {sum(calls.values())}; {failed} runs ended with an error, {stopped} with "
        f"an assertion; {wrong} were wrong",
        flush=True,
    )
    if reached < least_reached * len(tried):
        print(f"{program.stem}: less than {least_reached:.0%} were reached")
    return wrong == 0 and reached >= least_reached * len(tried) and bool(tried)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="PROGRAM", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    most = 0 if "RMM_TEST_EVERY_FAULT" in os.environ else int(os.environ.get("RMM_TEST_FAULTS", "40"))
    return 0 if all([try_program(program.resolve(), most, given.jobs) for program in given.programs]) else 1


if __name__ == "__main__":
    sys.exit(main())
