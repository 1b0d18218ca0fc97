#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times `torch.empty()` on PyTorch's own allocator and on RMM's plug-in: a tensor of 256 bytes is made and dropped.

PyTorch keeps its allocator for as long as the process lives, so each allocator has a process. Both run on one processor and
take turns, because processors of one machine can differ by a factor of two. Writes the median of the rounds, the shortest, and
the median ratio to PyTorch's allocator in the same round, in nanoseconds.

    python benchmarks/torch_calls.py --rounds 15
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

nbytes = 256
kept: list[Any] = []  # tensors that live all the time
rows = {"pair": "one live tensor", "hundred": "100 live tensors", "stream": "a stream of its own"}


def times(live: int, calls: int) -> dict[str, Callable[[], float]]:
    """Returns what times each row, in nanoseconds a call."""
    import torch

    device, dtype, empty = torch.device("cuda:0"), torch.uint8, torch.empty
    own = torch.cuda.Stream()
    kept.extend(empty(nbytes, device=device, dtype=dtype) for _ in range(live))

    def pair() -> float:
        begin = time.perf_counter_ns()
        for _ in range(calls):
            empty(nbytes, device=device, dtype=dtype)
        return (time.perf_counter_ns() - begin) / calls

    def hundred() -> float:
        begin = time.perf_counter_ns()
        for _ in range(calls // 100):
            tensors = [empty(nbytes, device=device, dtype=dtype) for _ in range(100)]
            del tensors
        return (time.perf_counter_ns() - begin) / (calls // 100 * 100)

    def stream() -> float:
        with torch.cuda.stream(own):
            return pair()

    return {"pair": pair, "hundred": hundred, "stream": stream}


def serve(allocator: str, live: int, calls: int) -> None:
    """Times the row that each line of standard input names, and writes the result."""
    import torch

    if allocator == "rmm":
        import rmm
        from rmm.allocators.torch import rmm_torch_allocator

        rmm.reinitialize(pool_allocator=True, initial_pool_size="1GiB")
        torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
    timed = times(live, calls)
    for call in timed.values():
        call()
    gc.disable()
    print(flush=True)
    for line in sys.stdin:
        print(timed[line.strip()](), flush=True)


class Process:
    """A process that times calls with one allocator."""

    def __init__(self, allocator: str, options: argparse.Namespace) -> None:
        arguments = ["--serve", allocator, "--live", str(options.live), "--calls", str(options.calls)]
        # Threads of NumPy that wait would take the processor.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.running = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.read()
        for task in os.listdir(f"/proc/{self.running.pid}/task"):
            os.sched_setaffinity(int(task), {options.processor})

    def read(self) -> str:
        assert self.running.stdout is not None
        line = self.running.stdout.readline()
        if not line:
            sys.exit("A process has ended; its message is above.")
        return line

    def time(self, row: str) -> float:
        assert self.running.stdin is not None
        print(row, file=self.running.stdin, flush=True)
        return float(self.read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=1000, help="number of calls in each timing, a multiple of 100")
    parser.add_argument("--live", type=int, default=0, help="number of tensors that live all the time")
    parser.add_argument("--processor", type=int, default=max(os.sched_getaffinity(0)), help="the one that all run on")
    parser.add_argument("--serve", choices=["torch", "rmm"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rounds < 1 or options.calls < 100 or options.calls % 100 != 0 or options.live < 0:
        parser.error("it takes at least one round, and a multiple of 100 calls")
    if options.serve:
        serve(options.serve, options.live, options.calls)
        return
    names = ["torch", "rmm"]
    processes = {name: Process(name, options) for name in names}
    measured: dict[tuple[str, str], list[float]] = {(row, name): [] for row in rows for name in names}
    for number in range(options.rounds):
        for row in rows:
            for name in names if number % 2 == 0 else reversed(names):
                measured[row, name].append(processes[name].time(row))
    for (row, name), of in measured.items():
        ratio = statistics.median(each / first for each, first in zip(of, measured[row, names[0]], strict=True))
        print(
            f"{rows[row]:20} {name:6} median {statistics.median(of):7,.0f} ns, least {min(of):7,.0f} ns, ratio {ratio:.3f}"
        )


if __name__ == "__main__":
    main()
