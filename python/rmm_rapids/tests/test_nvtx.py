# SPDX-License-Identifier: Apache-2.0
"""Tags from NVTX ranges, which NVTX brings to the file that `nvtx_path()` names"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import rmm_engine_rapids

Runner = Callable[..., "subprocess.CompletedProcess[str]"]

# What NVTX does in each shared object that uses it: it hands a tool a table of the places where it keeps functions.
PROGRAM = """
import ctypes

import rmm_engine_rapids

class Callbacks(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("get_functions", ctypes.c_void_p)]

CORE, LAST_ID, PUSH, POP = 1, 15, 9, 11
functions = (ctypes.c_void_p * (LAST_ID + 1))()
table = (ctypes.c_void_p * (LAST_ID + 1))(*(ctypes.addressof(functions) + 8 * i for i in range(LAST_ID + 1)))

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint))
def get_functions(module, to_table, to_last_id):
    if module != CORE:
        return 0
    to_table[0] = ctypes.addressof(table)
    to_last_id[0] = LAST_ID
    return 1

callbacks = Callbacks(ctypes.sizeof(Callbacks), ctypes.cast(get_functions, ctypes.c_void_p))

@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
def get_export_table(number):
    return ctypes.addressof(callbacks) if number == 1 else None

assert ctypes.CDLL(rmm_engine_rapids.nvtx_path()).InitializeInjectionNvtx2(get_export_table) == 1
push = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(functions[PUSH])
pop = ctypes.CFUNCTYPE(ctypes.c_int)(functions[POP])

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
    program = f"{PROGRAM}\ndel resource\nprint(b'sort' in open('run.dev0.bin', 'rb').read())"
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
