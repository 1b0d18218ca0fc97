#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares RMM with the frameworks' own allocators: time of allocations in Python, and of training steps of PyTorch.

Each candidate runs in an interpreter of its own, and all take turns, round after round, so that what the machine does
meanwhile concerns them all. Writes a table, and with --json a file that names the machine and the versions. The package is
the one that is installed, whatever folder it is called from.

    python benchmarks/frameworks.py --json results.json
    python benchmarks/frameworks.py --only many --only training --seconds 150
    python benchmarks/frameworks.py --only DeviceBuffer
    python benchmarks/frameworks.py --other-rmm /path/to/python   # an interpreter with RAPIDS RMM, as another candidate
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

# The beginning of each program. `measure` times batches of calls and returns percentiles of the nanoseconds per call.
prelude = """
    import gc, json, sys, time

    def measure(call, batch=1000, batches=200):
        for _ in range(batch): call()
        gc.disable()
        times = []
        for _ in range(batches):
            begin = time.perf_counter_ns()
            for _ in range(batch): call()
            times.append((time.perf_counter_ns() - begin) / batch)
        times.sort()
        return {"p50_ns": times[len(times) // 2], "p99_ns": times[len(times) * 99 // 100]}

    def answer(**values):
        print(json.dumps(values))
        sys.stdout.flush()

    def rmm_pool():
        import rmm
        rmm.mr.set_current_device_resource(
            rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=1 << 30))
        return rmm
"""

# Loops that allocate much: arrays of many sizes, some of which live for a while.
churn = """
    import random
    chooser = random.Random(5)
    sizes = [chooser.choice([256, 1000, 5000, 100000, 3000000]) for _ in range(4096)]
    kept = [None] * 64
    state = [0]
    def step():
        i = state[0] = (state[0] + 1) % 4096
        kept[i % 64] = make(sizes[i])
"""

training = """
    import torch
    torch.manual_seed(7)
    layers = []
    for _ in range(8):
        layers += [torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024), torch.nn.LayerNorm(1024)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.randn(2048, 1024, device="cuda")
    def train():
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for _ in range(20): train()
    torch.cuda.synchronize()
    times = []
    for _ in range(100):
        begin = time.perf_counter_ns()
        train()
        torch.cuda.synchronize()
        times.append(time.perf_counter_ns() - begin)
    times.sort()
    answer(p50_ns=times[50], p99_ns=times[99], peak_reserved_bytes=torch.cuda.max_memory_reserved())
"""

enable_torch = """
    import rmm, rmm.mr, rmm.allocators
    rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=2 << 20))
    rmm.allocators.enable("torch")
"""

enable_torch_elastic = """
    import rmm, rmm.mr, rmm.allocators
    rmm.mr.set_current_device_resource(rmm.mr.ElasticPoolMemoryResource())
    rmm.allocators.enable("torch")
"""

cupy_small = """
    import cupy
    answer(**measure(lambda: cupy.empty(256, dtype="u1")))
"""

cupy_churn = "import cupy\nmake = lambda size: cupy.empty(size, dtype='u1')\n"

enable_cupy = """
    rmm_pool()
    import rmm.allocators
    rmm.allocators.enable("cupy")
"""

torch_small = """
    import torch
    answer(**measure(lambda: torch.empty(256, dtype=torch.uint8, device="cuda")))
"""

device_buffer = """
    DeviceBuffer = rmm_pool().DeviceBuffer
    answer(**measure(lambda: DeviceBuffer(size=256)))
"""

answer_of_churn = "answer(**measure(step))\n"


longest_turn = 120  # seconds; a training takes 10 with the import of PyTorch


def program(*parts: str) -> str:
    return "".join(textwrap.dedent(part) for part in (prelude, *parts))


# Topic, candidate, program; those of one topic are compared with each other.
candidates = [
    ("256 bytes, made and dropped", "DeviceBuffer, pool", program(device_buffer)),
    ("256 bytes, made and dropped", "CuPy", program(cupy_small)),
    ("256 bytes, made and dropped", "CuPy on RMM", program(enable_cupy, cupy_small)),
    ("256 bytes, made and dropped", "PyTorch", program(torch_small)),
    ("256 bytes, made and dropped", "PyTorch on RMM", program(enable_torch, torch_small)),
    ("many sizes, some kept", "CuPy", program(cupy_churn, churn, answer_of_churn)),
    ("many sizes, some kept", "CuPy on RMM", program(enable_cupy, cupy_churn, churn, answer_of_churn)),
    ("training step", "PyTorch", program(training)),
    ("training step", "PyTorch on RMM, pool", program(enable_torch, training)),
    ("training step", "PyTorch on RMM, elastic pool", program(enable_torch_elastic, training)),
]


def run(interpreter: str, code: str, folder: str) -> dict[str, float] | str:
    """What a candidate measured, or the last line of why it did not. `folder` has no module that could be taken for another."""
    try:
        done = subprocess.run(
            [interpreter, "-W", "ignore", "-c", code],
            check=False,
            capture_output=True,
            text=True,
            cwd=folder,
            timeout=longest_turn,
        )
    except subprocess.TimeoutExpired:
        return f"took longer than {longest_turn} s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def output_of(*command: str) -> str:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parent)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def describe_machine() -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for package in ("rmm-engine", "rmm", "cupy-cuda12x", "cupy-cuda13x", "torch", "numba-cuda"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "gpu": output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": versions,
        "commit": output_of("git", "rev-parse", "HEAD"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each candidate has its turn")
    parser.add_argument(
        "--only",
        metavar="TEXT",
        action="append",
        default=[],
        help="topics and candidates that contain it; may be given again",
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="no turn begins later; the first round is whole"
    )
    parser.add_argument("--other-rmm", metavar="PYTHON", help="an interpreter whose package rmm is another one")
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()

    contenders = [(topic, name, sys.executable, code) for topic, name, code in candidates]
    if options.other_rmm:
        contenders.append(
            (candidates[0][0], "DeviceBuffer of the other RMM", options.other_rmm, program(device_buffer))
        )
    if options.only:
        contenders = [each for each in contenders if any(text in name for text in options.only for name in each[:2])]
    if not contenders:
        names = ", ".join(dict.fromkeys(repr(name) for each in candidates for name in each[:2]))
        parser.error(f"none contains {' or '.join(options.only)}; there are {names}")
    if options.rounds < 1:
        parser.error("it takes at least one round")
    begin = time.monotonic()
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    failures: dict[tuple[str, str], str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.rounds):
            for topic, name, interpreter, code in random.sample(contenders, len(contenders)):
                if turn > 0 and time.monotonic() - begin > options.seconds:
                    break
                measured = run(interpreter, code, folder)
                if isinstance(measured, str):
                    failures[topic, name] = measured
                else:
                    results.setdefault((topic, name), []).append(measured)

    rows = []
    print(f"{'topic':28} {'candidate':30} {'rounds':>6} {'p50':>13} {'p99':>13} {'peak reserved':>14}")
    for topic, name, _, _ in contenders:
        rounds = results.get((topic, name))
        if rounds is None:
            print(f"{topic:28} {name:30} not measured: {failures[topic, name]}")
            continue
        row = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
        reserved = f"{row['peak_reserved_bytes'] / 2**20:10,.0f} MiB" if "peak_reserved_bytes" in row else ""
        print(
            f"{topic:28} {name:30} {len(rounds):6} {row['p50_ns']:10,.0f} ns {row['p99_ns']:10,.0f} ns {reserved:>14}"
        )
        rows.append({"topic": topic, "candidate": name, "rounds": rounds, **row})
    if options.json is not None:
        missing = [{"topic": topic, "candidate": name, "why": why} for (topic, name), why in failures.items()]
        content = {"machine": describe_machine(), "rows": rows, "not_measured": missing}
        options.json.write_text(json.dumps(content, indent=2) + "\n")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
