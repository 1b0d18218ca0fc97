# SPDX-License-Identifier: Apache-2.0
"""Tests the program that compares allocators: it runs from any folder, and says which candidates it could not measure."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from rmm._build_facts import cuda_backend

benchmark = Path(__file__).resolve().parents[1] / "benchmarks" / "frameworks.py"

pytestmark = pytest.mark.skipif(not benchmark.exists(), reason="the package is without its repository")


def program_of(test: pytest.Function) -> list[str]:
    return [str(benchmark), *test.callspec.params["arguments"]]  # type: ignore[misc]


@pytest.mark.program(f"""
    import subprocess, sys
    from pathlib import Path
    Path("rmm.py").write_text("raise ImportError('the folder is looked into')")
    without_rmm = Path("python").absolute()
    without_rmm.write_text("#!/bin/sh\\necho 'No module named rmm' >&2\\nexit 1\\n")
    without_rmm.chmod(0o755)
    subprocess.run([
        *(sys.executable, {str(benchmark)!r}, "--only", "DeviceBuffer", "--only", "no such topic"),
        *("--rounds", "2", "--seconds", "0", "--json", "results.json", "--other-rmm", str(without_rmm)),
    ], check=True)
    print(Path("results.json").read_text().replace("\\n", " "))
""")
def test_topics_are_measured_and_written(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, written = done.stdout.splitlines()
    assert len(lines) == 3
    assert lines[-1].endswith("not measured: No module named rmm")
    measured = next(line for line in lines if "DeviceBuffer, pool" in line)
    assert measured.split()[-6:-4] == ["pool", "1"]  # the second round would begin too late
    content = json.loads(written)
    row = next(row for row in content["rows"] if row["candidate"] == "DeviceBuffer, pool")
    assert (len(row["rounds"]), row["topic"]) == (1, "256 bytes, made and dropped")
    assert 0 < row["p50_ns"] <= row["p99_ns"]
    assert len(content["rows"]) == len(content["not_measured"]) == 1


@pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--rounds", "0"]])
def test_arguments_that_select_nothing_are_refused(
    arguments: list[str], done: subprocess.CompletedProcess[str]
) -> None:
    assert done.returncode == 2
    assert "frameworks.py: error: " in done.stderr


@pytest.mark.skipif(cuda_backend == "sim" or find_spec("cupy") is None, reason="needs CuPy and a GPU")
@pytest.mark.program(arguments=[str(benchmark.with_name("calls.py")), "--rounds", "1", "--calls", "100"])
def test_single_calls_are_timed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 10


@pytest.mark.skipif(cuda_backend == "sim" or find_spec("torch") is None, reason="needs PyTorch and a GPU")
@pytest.mark.program(arguments=[str(benchmark.with_name("torch_calls.py")), "--rounds", "1", "--calls", "100"])
def test_calls_of_pytorch_are_timed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6


@pytest.mark.skipif(cuda_backend == "sim", reason="needs a GPU")
@pytest.mark.skipif(find_spec("warp") is None, reason="needs Warp")
@pytest.mark.program(
    arguments=[
        *("-W", "ignore", str(benchmark.with_name("other_frameworks.py"))),
        *("--rounds", "1", "--seconds", "0.001"),
    ]
)
def test_other_frameworks_are_timed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout
    assert "RMM, elastic pool" in done.stdout
