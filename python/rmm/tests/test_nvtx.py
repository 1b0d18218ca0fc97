# SPDX-License-Identifier: Apache-2.0
"""`librmm_nvtx.so`, and `python -m rmm nvtx-path`, which says where it is"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import librmm
from rmm.__main__ import main

LIBRARY = Path(librmm.__file__).parent / "lib" / "librmm_nvtx.so"
needs_library = pytest.mark.skipif(not LIBRARY.is_file(), reason="the package has no librmm_nvtx.so")

# What NVTX does in each shared object that uses it: it hands a tool a table of the places where it keeps functions.
PROGRAM = """
import ctypes
import sys

import rmm

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

assert ctypes.CDLL(sys.argv[1]).InitializeInjectionNvtx2(get_export_table) == 1
push = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(functions[PUSH])
pop = ctypes.CFUNCTYPE(ctypes.c_int)(functions[POP])

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


@needs_library
def test_ranges_are_tags_in_the_figures_of_a_pool() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(LIBRARY)],
        env={**os.environ, "RMM_RESOURCE": "pool,initial=4MiB,tags"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[('of the program', 512), ('aten::add', 256)]\n"
