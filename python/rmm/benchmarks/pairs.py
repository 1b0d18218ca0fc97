# SPDX-License-Identifier: Apache-2.0
"""Two processes that measure together, with a GPU each. What `nccl_all_reduce.py` and `ucx_transfers.py` share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np

import rmm
from rmm._build_facts import cuda_backend
from rmm.pylibrmm.stream import DEFAULT_STREAM

MIB = 1 << 20
is_simulated = cuda_backend == "sim"
_for_others = "for others: "


def pattern(size: int, seed: int) -> np.ndarray[Any, Any]:
    """Returns `size` bytes as 32-bit integers, of which no two of one seed are equal."""
    return np.arange(size // 4, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(seed)


def fill(buffer: rmm.DeviceBuffer, content: np.ndarray[Any, Any]) -> None:
    """Writes to a buffer, and waits for that."""
    buffer.copy_from_host(content.view(np.uint8).data)
    DEFAULT_STREAM.synchronize()


def compare(buffer: rmm.DeviceBuffer, expected: np.ndarray[Any, Any]) -> str:
    """Returns "right", or which part of a buffer differs."""
    found = buffer.copy_to_host().view(np.uint32)
    wrong = np.flatnonzero(found != expected)
    if wrong.size == 0:
        return "right"
    return f"WRONG: {wrong.size} of {expected.size} words, first {int(wrong[0])}, last {int(wrong[-1])}"


def release_unused(resource: Any) -> None:
    """Lets a resource give back what it holds and does not use, if it can."""
    release = getattr(resource, "release_unused", None) or getattr(resource, "release", None)
    if release is not None:
        release()


def answer(**values: Any) -> None:
    """Hands a result to the parent process."""
    print(json.dumps(values), flush=True)


def say_to_others(text: object) -> None:
    """Hands a line from process 0 to the standard input of the others."""
    print(f"{_for_others}{text}", flush=True)


def run_pair(
    command: list[str], environments: list[dict[str, str]], seconds: float
) -> tuple[list[Any], str, list[str]]:
    """Runs a process for each environment, at most for `seconds`.

    Returns what all of them answered, how the run ended, and what else they wrote.
    """
    with tempfile.TemporaryFile("w+") as errors:
        children = [
            subprocess.Popen(
                [sys.executable, *command, "--rank", str(rank)],
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            for rank, environment in enumerate(environments)
        ]
        lines: list[str] = []
        readers = [threading.Thread(target=_read, args=(child, children, lines)) for child in children]
        for reader in readers:
            reader.start()
        end = _wait(children, seconds)
        for reader in readers:
            reader.join()
        errors.seek(0)
        rest = errors.read().splitlines()
    results = [json.loads(line) for line in lines if line.startswith("{")]
    return results, end, [line for line in lines if not line.startswith("{")] + rest


def _read(child: subprocess.Popen[str], children: list[subprocess.Popen[str]], lines: list[str]) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        if not line.startswith(_for_others):
            lines.append(line.rstrip())
            continue
        for other in children[1:]:
            assert other.stdin is not None
            with suppress(BrokenPipeError):
                other.stdin.write(line.removeprefix(_for_others))
                other.stdin.flush()


def _wait(children: list[subprocess.Popen[str]], seconds: float) -> str:
    """Waits for all processes. If one fails, the others wait for it in vain, so they are stopped soon after."""
    begin = time.monotonic()
    while any(child.poll() is None for child in children):
        passed = time.monotonic() - begin
        if any(child.returncode for child in children):
            seconds = min(seconds, passed + 3)
        if passed > seconds:
            break
        time.sleep(0.02)
    running = [child for child in children if child.poll() is None]
    ends = [
        f"process {rank} hung" if child in running else f"process {rank} ended with status {child.returncode}"
        for rank, child in enumerate(children)
        if child in running or child.returncode
    ]
    for child in running:
        child.kill()
        child.wait()
    return ", ".join(ends) or "ended"
