#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what `librmm_nvtx.so` costs a program of PyTorch with `emit_nvtx()`, and shows what a user gets for it.

    python benchmarks/nvtx_ranges.py --seconds 60 --folder results

Each candidate runs in an interpreter of its own, because NVTX loads its library once in a process. All take turns, round
after round. A step is a training or an inference of a model whose kernels are small, so the host's time decides. On the
simulator, which has no kernels, it only allocates and copies. Then the program prints the live bytes by range, the report
of a failure, and what the page of a trace has of the ranges. The page is `page.html` in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

# What is measured: whether PyTorch makes ranges, whether they become tags, and whether the pool tracks them.
candidates = {
    "no ranges": (False, False, False),
    "emit_nvtx()": (True, False, False),
    "emit_nvtx(), tags tracked": (True, False, True),
    "emit_nvtx(), librmm_nvtx": (True, True, False),
    "emit_nvtx(), librmm_nvtx, tags tracked": (True, True, True),
}
showing = "emit_nvtx(), librmm_nvtx, tags tracked"


def library() -> str:
    import librmm

    found = Path(librmm.__file__).parent / "lib" / "librmm_nvtx.so"
    if not found.is_file():
        raise SystemExit("the package has no librmm_nvtx.so")
    return str(found)


# --- a candidate's process


def steps_of(device_has_kernels: bool) -> dict[str, Callable[[], object]]:
    """Returns the steps by name. What lives between two steps is kept by them."""
    import torch

    if not device_has_kernels:
        hosts = [torch.arange(256 << i % 8, dtype=torch.float32) for i in range(40)]
        kept: list[object] = []

        def copy() -> None:
            kept[:] = [[torch.empty_like(host, device="cuda"), host.to("cuda")] for host in hosts]

        return {"copies": copy}

    torch.manual_seed(7)
    layers: list[torch.nn.Module] = []
    for _ in range(12):
        layers += [torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.randn(64, 256, device="cuda")

    def train() -> None:
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()

    def infer() -> None:
        with torch.no_grad():
            model(data)

    return {"training": train, "inference": infer}


def count_ranges(step: Callable[[], object]) -> int:
    """Returns how many ranges emit_nvtx() makes of a step: one for each event of the profiler on the host."""
    import torch

    with torch.autograd.profiler.profile() as profile:
        step()
    return len(profile.function_events)


def microseconds(call: Callable[[], object], seconds: float) -> float:
    """Returns the time of a call, the device's work included."""
    import torch

    calls = 0
    torch.cuda.synchronize()
    begin = time.perf_counter()
    while calls == 0 or time.perf_counter() - begin < seconds:
        call()
        calls += 1
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / calls * 1e6


def push_and_pop() -> None:
    import torch

    push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    for _ in range(1000):
        push("aten::add, seq = 12345")
        pop()


def show() -> dict[str, Any]:
    """Returns the live bytes by range, and the report of a failure."""
    import torch

    import rmm

    pool: Any = rmm.mr.get_current_device_resource()
    tags = sorted(((holder.bytes, holder.tag) for holder in pool.live_by_tag()), reverse=True)
    try:
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return {"live": tags, "report": str(error)}
    raise AssertionError("4 TiB of a device")


def run_candidate(name: str, traced_steps: int) -> None:
    import torch

    import rmm
    import rmm.allocators
    from rmm._build_facts import cuda_backend

    rmm.allocators.enable("torch")
    steps = steps_of(cuda_backend != "sim")
    emits = candidates[name][0]
    ranges = torch.autograd.profiler.emit_nvtx() if emits else nullcontext()
    if traced_steps:
        with ranges:
            for _ in range(traced_steps):
                for step in steps.values():
                    step()
            torch.cuda.synchronize()
        return
    counts = {key: count_ranges(step) for key, step in steps.items()}
    with ranges:
        for step in steps.values():
            microseconds(step, 0.3)  # warm-up
        print(
            json.dumps({"ranges": counts, "device": torch.cuda.get_device_name(), "torch": torch.__version__}),
            flush=True,
        )
        for line in sys.stdin:
            if line.strip() == "show":
                torch.cuda.synchronize()
                print(json.dumps(show()), flush=True)
                continue
            times = {key: microseconds(step, float(line)) for key, step in steps.items()}
            print(json.dumps({**times, "a range pushed and popped": microseconds(push_and_pop, 0.05)}), flush=True)


# --- the process that asks them


class Candidate:
    def __init__(self, name: str, traced_steps: int = 0, trace: str = "") -> None:
        _, tagged, tracked = candidates[name]
        environment = {key: value for key, value in os.environ.items() if key != "RMM_TRACE_FILE"}
        environment["RMM_RESOURCE"] = "pool,initial=256MiB,max=2GiB" + (",tags" if tracked else "")
        environment.pop("NVTX_INJECTION64_PATH", None)
        if tagged:
            environment["NVTX_INJECTION64_PATH"] = library()
        if trace:
            environment["RMM_TRACE_FILE"] = trace
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--candidate", name]
        self.name = name
        self.times: dict[str, list[float]] = {}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*command, "--traced-steps", str(traced_steps)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )  # fmt: skip

    def answer(self, question: str = "") -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if question:
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                result: dict[str, Any] = json.loads(line)
                return result
        raise SystemExit(f"{self.name}: ended with status {self.end()}\n{self.said()}")

    def end(self) -> int:
        self.process.communicate(timeout=60)
        return self.process.returncode

    def said(self) -> str:
        self.errors.seek(0)
        return "".join(self.errors.readlines()[-12:])


def print_times(all_candidates: list[Candidate], ranges: dict[str, int]) -> None:
    print("step | ranges | candidate | µs, median | least | ns a range more than without the library")
    for what in all_candidates[0].times:
        least = {each.name: min(each.times[what]) for each in all_candidates}
        count = ranges.get(what, 1000)
        for each in all_candidates:
            base = least["emit_nvtx(), tags tracked" if candidates[each.name][2] else "emit_nvtx()"]
            more = f"{(least[each.name] - base) * 1000 / count:.0f}" if candidates[each.name][1] else "-"
            print(
                f"{what} | {count} | {each.name} | {statistics.median(each.times[what]):.1f} | {least[each.name]:.1f} | {more}"
            )


def print_page(folder: Path) -> None:
    """Makes the page of a trace, and prints what it has of the ranges."""
    trace = folder / "run.rmmtrace"
    traced = Candidate(showing, traced_steps=20, trace=str(trace))
    if traced.end() != 0:
        raise SystemExit(f"the traced program failed\n{traced.said()}")
    report = [sys.executable, "-P", "-m", "rmm", "report", str(trace), "--no-what-if"]
    subprocess.run([*report, "-o", str(folder / "page.html")], check=True, timeout=60)
    figures = json.loads(
        subprocess.run([*report, "--json", "-o", "-"], check=True, timeout=60, capture_output=True).stdout
    )
    names = [name for name in figures["tags"] if name]
    text = (folder / "page.html").read_text()
    print(f"page.html: {len(text)} bytes; the trace has {len(names)} ranges: {', '.join(sorted(names)[:12])}, …")


def compare(seconds: float, folder: Path) -> None:
    begin = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    all_candidates = [Candidate(name) for name in candidates]
    facts = [each.answer() for each in all_candidates]
    print(f"{facts[0]['device']}, PyTorch {facts[0]['torch']}; ready after {time.monotonic() - begin:.0f} s")
    rounds = 0
    while rounds < 3 or (rounds < 9 and time.monotonic() - begin < seconds - 20):
        for each in all_candidates[rounds % len(all_candidates) :] + all_candidates[: rounds % len(all_candidates)]:
            for what, value in each.answer("0.3").items():
                each.times.setdefault(what, []).append(value)
        rounds += 1
    print(f"{rounds} rounds")
    print_times(all_candidates, facts[0]["ranges"])
    shown = next(each for each in all_candidates if each.name == showing).answer("show")
    print("\nlive bytes by range, after a step")
    for live, tag in shown["live"][:12]:
        print(f"{live:12,}  {tag or '(no range)'}")
    print(f"\nthe report of a failure\n{shown['report']}\n")
    for each in all_candidates:
        each.end()
    print_page(folder)
    print(f"ended after {time.monotonic() - begin:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="begin no round after this time less 20 s")
    parser.add_argument("--folder", type=Path, default=Path("nvtx_ranges"), help="for the trace and its page")
    parser.add_argument("--candidate", choices=candidates, help=argparse.SUPPRESS)
    parser.add_argument("--traced-steps", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.candidate:
        run_candidate(options.candidate, options.traced_steps)
    else:
        compare(options.seconds, options.folder)


if __name__ == "__main__":
    main()
