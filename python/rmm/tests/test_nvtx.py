# SPDX-License-Identifier: Apache-2.0
"""`librmm_nvtx.so`, and `python -m rmm nvtx-path`, which says where it is"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import librmm
from rmm.__main__ import main
from rmm._build_facts import cuda_backend
from rmm._commands.simulate import is_simulated

LIBRARY = Path(librmm.__file__).parent / "lib" / "librmm_nvtx.so"
needs_library = pytest.mark.skipif(not LIBRARY.is_file(), reason="the package has no librmm_nvtx.so")

# NVTX for programs that do not have it; they begin with this text.
NVTX = Path(__file__).resolve().parents[3] / "tests" / "nvtx" / "nvtx_stand_in.py"

PROGRAM = """
import sys

import rmm

push, pop = connect(sys.argv[1])
pool = rmm.mr.get_current_device_resource()
push(b"aten::add, seq = 1")
assert rmm.tag.current() == "aten::add"
with rmm.tag("of the program"):
    inner = rmm.DeviceBuffer(size=512)
outer = rmm.DeviceBuffer(size=256)
pop()
assert rmm.tag.current() == ""
print([(holder.tag, holder.bytes) for holder in pool.live_by_tag()])
"""


@needs_library
def test_the_command_prints_the_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nvtx-path"]) == 0
    assert capsys.readouterr().out == f"{LIBRARY}\n"


def test_the_command_says_that_the_library_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(librmm, "__path__", [str(tmp_path)])
    assert main(["nvtx-path"]) == 2
    assert "RMM_BUILD_NVTX_LIBRARY" in capsys.readouterr().err


def program_of(_: pytest.Function) -> list[str]:
    return ["-c", NVTX.read_text() + PROGRAM, str(LIBRARY)]


@needs_library
@pytest.mark.skipif(not NVTX.exists(), reason="needs the repository")
@pytest.mark.program(always=True, environment={"RMM_RESOURCE": "pool,initial=4MiB,tags"})
def test_ranges_are_tags_in_the_figures_of_a_pool(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[('of the program', 512), ('aten::add', 256)]\n"


# --- with PyTorch: an unchanged program, apart from what it prints

WITH_PYTORCH = """
import json

import torch

import rmm
import rmm.allocators

rmm.allocators.enable("torch")
on_host = torch.arange(1 << 18, dtype=torch.float32)
before = torch.empty(100, device="cuda")
with torch.autograd.profiler.emit_nvtx():
    made = torch.empty(1 << 16, device="cuda")
    copied = on_host.to("cuda")
torch.cuda.nvtx.range_push("load weights")
weights = torch.empty(1 << 17, device="cuda")
try:
    torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    report = str(error)
torch.cuda.nvtx.range_pop()
after = torch.empty(200, device="cuda")
live = {holder.tag: holder.bytes for holder in rmm.mr.get_current_device_resource().live_by_tag()}
print(json.dumps({"live": live, "report": report}))
"""

LIVE_AT_FAILURE = {"": 400, "aten::empty": 1 << 18, "aten::empty_strided": 1 << 20, "load weights": 1 << 19}


@dataclass
class Run:
    """What the program printed, and the document in the page of its trace."""

    live: dict[str, int]
    report: str
    page: dict[str, Any]


python = [*(["-m", "rmm", "simulate"] if cuda_backend == "sim" and not is_simulated() else []), "-W", "ignore", "-c"]


def reason_to_skip() -> str:
    if find_spec("torch") is None:
        return "PyTorch is not installed"
    if not LIBRARY.is_file():
        return "the package has no librmm_nvtx.so"
    probe = "import torch; raise SystemExit(0 if torch.cuda.is_available() else 77)"
    found = subprocess.run([sys.executable, "-P", *python, probe], check=False, capture_output=True, timeout=300)
    return "PyTorch finds no GPU" if found.returncode == 77 else ""


def program_of_module() -> list[str]:
    """Runs the program, and prints the document in the page of its trace after what the program prints."""
    environment = {
        "NVTX_INJECTION64_PATH": str(LIBRARY),
        "RMM_RESOURCE": "pool,initial=4MiB,max=64MiB,tags",
        "RMM_TRACE_FILE": "run.rmmtrace",
    }
    report = ["-m", "rmm", "report", "run.rmmtrace", "--no-what-if", "-o", "page.html"]
    program = f"""
import json, os, re, subprocess, sys
subprocess.run([sys.executable, *{[*python, WITH_PYTORCH]!r}], env={{**os.environ, **{environment!r}}}, check=True)
subprocess.run([sys.executable, *{report!r}], check=True, stdout=subprocess.DEVNULL)
with open("page.html") as page:
    document = re.search('<script type="application/json" id="document">(.*?)</script>', page.read(), re.S)
print(json.dumps(json.loads(document[1])))
"""
    return ["-c", program]


@pytest.fixture(scope="module")
def run(done_for_module: subprocess.CompletedProcess[str]) -> Run:
    assert done_for_module.returncode == 0, done_for_module.stderr
    printed, page = done_for_module.stdout.splitlines()
    return Run(**json.loads(printed), page=json.loads(page))


def test_operators_of_pytorch_hold_what_they_allocated(run: Run) -> None:
    assert run.live == {**LIVE_AT_FAILURE, "": 400 + 800}


def test_the_report_of_a_failure_names_ranges_of_pytorch(run: Run) -> None:
    assert run.report.startswith("CUDA out of memory. ")
    assert run.report.splitlines()[-1] == (
        "  holders: aten::empty_strided 1.000000 MiB in 1, load weights 512.000000 KiB in 1, "
        "aten::empty 256.000000 KiB in 1, (no tag) 400.000000 B in 1"
    )


def test_the_page_of_a_trace_has_ranges_of_pytorch(run: Run) -> None:
    tags = run.page["tags"]
    (device,) = run.page["devices"]
    blocks = device["map"]["blocks"]
    sizes = sorted((tags[tag], size) for tag, size in zip(blocks["tag"], blocks["size"], strict=True))
    assert sizes == sorted([*LIVE_AT_FAILURE.items(), ("", 800)])
    failure = device["failures"][0]
    assert tags[failure["tag"]] == "load weights"
    assert {tags[tag]: held for tag, held, _ in failure["holders"]} == LIVE_AT_FAILURE
