# SPDX-License-Identifier: Apache-2.0
"""Shows what holds memory in a program of libcudf, by its NVTX ranges, and measures what that costs.

    python cudf_ranges.py [--rounds 7] [--scale 1.0] [--folder results]

Each candidate runs in an interpreter of its own, because NVTX loads its library once in a process. All take turns, round
after round. The times are those of join, sort, groupby and a query of 4 threads of `rapids_programs.py`, in ms: with large
tables the kernels decide, with small ones (`--scale 0.001`) the host.

Then follow the live bytes by range, the report of a join without enough memory, and the name of a trace. `rmm-trace report`,
or `python -m rmm report` of rmm-engine, makes a page of it.

pylibcudf is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# What is measured: whether ranges become tags, and whether the pool tracks tags.
candidates = {
    "no library": (False, False),
    "library": (True, False),
    "no library, tags tracked": (False, True),
    "library, tags tracked": (True, True),
}
showing = "library, tags tracked"
LIMIT = 16 << 30


# --- a candidate's process


def work(name: str, scale: float, trace: str) -> None:
    import rapids_programs as programs
    import rmm

    import rmm_engine_rapids

    tracked = candidates[name][1]
    library = programs.Cudf(scale)
    configuration = f"elastic,max={LIMIT}" + (",tags" if tracked else "")
    resource = rmm_engine_rapids.enable(configuration + (f",log={trace}" if trace else ""))
    wanted = ("cudf join", "cudf sort", "cudf groupby", "cudf query of 4 threads")
    steps = {each: library.workloads()[each]() for each in wanted}
    for step in steps.values():
        programs.run(step)  # loads machine code
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "time":
            answer: dict[str, Any] = {each: timed(programs, step) for each, step in steps.items()}
        elif word == "show":
            answer = show(programs, library, resource)
        else:
            break
        print(json.dumps(answer), flush=True)
    steps.clear()
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())


def timed(programs: Any, step: Any) -> float:
    """Returns the ms of a run: the median of as many as fit into 0.3 s."""
    times: list[float] = []
    begin = time.perf_counter()
    while not times or time.perf_counter() - begin < 0.3:
        times.append(programs.run(step)[0])
    return statistics.median(times)


def live_bytes_of(resource: Any) -> str:
    lines = (
        f"{each.bytes / 2**20:10.1f} MiB in {each.allocations}: {each.tag or '(no tag)'}"
        for each in resource.live_by_tag()
    )
    return "\n".join(lines)


def show(programs: Any, library: Any, resource: Any) -> dict[str, str]:
    """Returns the live bytes by range with results of libcudf alive, and the report of a join without enough memory."""
    import rmm

    import rmm_engine_rapids

    fact, dimension = library.upload(library.fact), library.upload(library.dimension)
    kept = [library.joined(fact, dimension), library.sorted(fact), library.totals(fact)]
    programs.synchronize()
    live = live_bytes_of(resource)
    del fact, dimension, kept
    held = sum(column.nbytes for column in [*library.fact, *library.dimension])
    small = rmm_engine_rapids.EngineMemoryResource(f"elastic,max={held * 3 // 2},tags", resource.device)
    rmm.mr.set_current_device_resource(small)
    try:
        fact, dimension = library.upload(library.fact), library.upload(library.dimension)
        library.joined(fact, dimension)
        text = "the join ended"
    except MemoryError as failure:
        text = str(failure)
    finally:
        rmm.mr.set_current_device_resource(resource)
    return {"live": live, "join": text}


# --- the process that asks them


class Candidate:
    def __init__(self, name: str, scale: float, trace: str = "") -> None:
        import rmm_engine_rapids

        environment = {key: value for key, value in os.environ.items() if key != "NVTX_INJECTION64_PATH"}
        if candidates[name][0]:
            environment["NVTX_INJECTION64_PATH"] = rmm_engine_rapids.nvtx_path()
        environment.setdefault("RMM_NVTX_DOMAINS", "libcudf")
        self.name = name
        self.times: dict[str, list[float]] = {}
        command = [sys.executable, __file__, "--candidate", name, "--scale", str(scale), "--trace", trace]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self, question: str = "") -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if question:
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}: ended with status {self.end()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> int:
        self.process.communicate()
        return self.process.returncode


def compare(rounds: int, scale: float, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    all_candidates = [Candidate(name, scale) for name in candidates]
    for each in all_candidates:
        each.answer()
    for turn in range(rounds):
        first = turn % len(all_candidates)
        for each in all_candidates[first:] + all_candidates[:first]:
            for what, value in each.answer("time").items():
                each.times.setdefault(what, []).append(value)
    print("workload | candidate | ms, median | least | most")
    for what in all_candidates[0].times:
        for each in all_candidates:
            times = each.times[what]
            print(f"{what} | {each.name} | {statistics.median(times):.3f} | {min(times):.3f} | {max(times):.3f}")
    shown = next(each for each in all_candidates if each.name == showing).answer("show")
    print(f"\nlive bytes by range, with a join, a sort and a groupby alive:\n{shown['live']}")
    print(f"\nthe report of a join without enough memory:\n{shown['join']}")
    statuses = [each.end() for each in all_candidates]
    if any(statuses):
        raise SystemExit("a candidate failed at its end")
    trace = Candidate(showing, scale, str(folder / "cudf.bin"))
    trace.answer()
    if trace.end() != 0:
        raise SystemExit("the traced program failed")
    print("\ntraces:", *sorted(str(path) for path in folder.glob("cudf*.bin")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="1.0 is a table of 48 million rows")
    parser.add_argument("--folder", type=Path, default=Path("cudf_ranges"), help="for the trace")
    parser.add_argument("--candidate", choices=candidates, help=argparse.SUPPRESS)
    parser.add_argument("--trace", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.candidate:
        work(options.candidate, options.scale, options.trace)
    else:
        compare(options.rounds, options.scale, options.folder)


if __name__ == "__main__":
    main()
