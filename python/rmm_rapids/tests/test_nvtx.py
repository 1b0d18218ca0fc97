# SPDX-License-Identifier: Apache-2.0
"""Tags from NVTX ranges, which NVTX brings to the file that `nvtx_path()` names"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import rmm_engine_rapids

Runner = Callable[..., "subprocess.CompletedProcess[str]"]

# NVTX for programs that do not have it; they begin with this text.
NVTX = Path(__file__).parents[3] / "tests" / "nvtx" / "nvtx_stand_in.py"

PROGRAM = """
import rmm_engine_rapids

push, pop = connect(rmm_engine_rapids.nvtx_path())
resource = rmm_engine_rapids.EngineMemoryResource("pool,initial=4MiB,max=64MiB,tags,log=run.bin")
blocks = [resource.allocate(512)]
push(b"sort")
blocks.append(resource.allocate(1024))
try:
    resource.allocate(1 << 40)
except MemoryError:
    print(resource.report().text.splitlines()[-1].strip())
pop()
blocks.append(resource.allocate(256))
print([tuple(each) for each in resource.live_by_tag()])
for block, size in zip(blocks, (512, 1024, 256)):
    resource.deallocate(block, size)
print(resource.live_by_tag())
"""


def test_figures_reports_and_traces_name_ranges(run_program: Runner) -> None:
    program = f"{NVTX.read_text()}{PROGRAM}\ndel resource\nprint(b'sort' in open('run.dev0.bin', 'rb').read())"
    done = run_program(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "holders: sort 1.000000 KiB in 1, (no tag) 512.000000 B in 1",
        "[('sort', 1024, 1), ('', 768, 2)]",
        "[]",
        "True",
    ]


def test_the_engine_of_another_installation_is_refused(run_program: Runner, tmp_path: Path) -> None:
    other = tmp_path / Path(rmm_engine_rapids.nvtx_path()).name
    shutil.copyfile(rmm_engine_rapids.nvtx_path(), other)
    done = run_program("import rmm_engine_rapids", NVTX_INJECTION64_PATH=str(other))
    assert (
        f"ImportError: NVTX_INJECTION64_PATH names the engine of another installation, {other}. Set it to"
        in done.stderr
    )
    own = run_program("import rmm_engine_rapids", NVTX_INJECTION64_PATH=rmm_engine_rapids.nvtx_path())
    assert own.returncode == 0, own.stderr
