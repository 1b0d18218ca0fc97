#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of the hot calls under callgrind, and fails if allocating and freeing costs too many, or in a pinned pool
notably more with many holes than with one.

    instruction_budget.py PROGRAM [--budget N] [--valgrind PATH]

PROGRAM is INSTRUCTION_BUDGET of the benchmarks, on the simulated CUDA runtime. The figure of a call is the difference between two runs
divided by the difference in their numbers of calls, so one-time work does not count, and the figures of a binary are
always the same.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MEASURED = {
    "pair": "256 B allocated and freed through a device_memory_resource*",
    "foreign": "256 B allocated and freed on a stream of cudaStreamCreate(), whose id is asked for",
    "arena": "1 MiB allocated and freed in an arena",
    "middle": "one of 100 blocks of 64 KiB to 1 MiB freed, another allocated",
    "uvector": "device_uvector<int>(1000) made and destroyed",
    "getter": "get_current_device_resource()",
    "pinned-1": "72 KiB allocated and freed in a pinned pool with one hole of 1 KiB",
    "pinned-65536": "72 KiB allocated and freed in a pinned pool with 65,536 holes of 1 KiB",
}
FEW, MANY = 2000, 6000
COLLECTED = re.compile(r"Collected\s*:\s*(\d+)")


def count_instructions(valgrind: str, program: str, what: str, times: int) -> int:
    """Returns the instructions of a whole run of `program`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [valgrind, "--tool=callgrind", f"--callgrind-out-file={folder}/out", program, what, str(times)]
        environment = {**os.environ, "CUDASIM_MODE": "stepped"}  # no threads but the program's own
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found = COLLECTED.search(run.stderr)
    if run.returncode != 0 or found is None:
        raise RuntimeError(f"{' '.join(command)} ended with status {run.returncode}:\n{run.stdout}{run.stderr}")
    return int(found.group(1))


def cost_of(few: int, many: int, calls: int) -> float:
    """Returns the instructions of one call, from those of two runs that differ by `calls` calls."""
    return (many - few) / calls


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Counts the instructions of the hot calls under callgrind.")
    parser.add_argument("program", type=Path, help="INSTRUCTION_BUDGET")
    parser.add_argument("--budget", type=float, default=150, help="most instructions of a pair (%(default)g)")
    parser.add_argument("--foreign-budget", type=float, default=650, help="most instructions of a pair on a foreign stream (%(default)g)")
    parser.add_argument("--arena-budget", type=float, default=300, help="most instructions of a pair in an arena (%(default)g)")
    parser.add_argument("--middle-budget", type=float, default=830, help="most instructions of a replacement of middle sizes (%(default)g)")
    parser.add_argument("--holes-factor", type=float, default=1.05,
                        help="largest ratio of the cost with many holes to that with one (%(default)g)")
    parser.add_argument("--valgrind", default="valgrind")
    options = parser.parse_args(arguments)

    program = str(options.program.resolve())
    figures: dict[str, float] = {}
    for what, text in MEASURED.items():
        few, many = (count_instructions(options.valgrind, program, what, times) for times in (FEW, MANY))
        figures[what] = cost_of(few, many, MANY - FEW)
        print(f"{figures[what]:8.1f} instructions: {text}")
    budgets = {
        "pair": options.budget,
        "foreign": options.foreign_budget,
        "arena": options.arena_budget,
        "middle": options.middle_budget,
        "pinned-65536": options.holes_factor * figures["pinned-1"],
    }
    above = [what for what, budget in budgets.items() if figures[what] > budget]
    for what in above:
        print(f"`{what}` is above its budget of {budgets[what]:g} instructions")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
