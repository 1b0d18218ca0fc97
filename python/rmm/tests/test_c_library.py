# SPDX-License-Identifier: Apache-2.0
"""`librmm_c.so.1`, the C interface that comes with the package, through ctypes"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

import librmm
from rmm.__main__ import main
from rmm._build_facts import cuda_backend

LIBRARY = Path(librmm.__file__).parent / "lib" / "librmm_c.so.1"
needs_library = pytest.mark.skipif(not LIBRARY.is_file(), reason="the package has no librmm_c.so.1")

PROGRAM = """
import ctypes, librmm

c = ctypes.CDLL(librmm.library_path())
assert ctypes.CDLL("librmm_c.so.1")._handle == c._handle  # the name that programs are linked with
pool, block = ctypes.c_void_p(), ctypes.c_void_p()
assert c.rmm_c_resource_create(b"pool,initial=1MiB", 0, ctypes.byref(pool)) == 0
assert c.rmm_c_resource_allocate(pool, ctypes.c_size_t(1000), ctypes.c_size_t(0), None, ctypes.byref(block)) == 0
assert block.value
c.rmm_c_resource_deallocate(pool, block, ctypes.c_size_t(1000), ctypes.c_size_t(0), None)
assert c.rmm_c_resource_destroy(pool) == 0
print("done")
"""

TAGGED = """
import ctypes, librmm, rmm

c = ctypes.CDLL(librmm.library_path())
pool, block = ctypes.c_void_p(), ctypes.c_void_p()
assert c.rmm_c_resource_create(b"pool,initial=1MiB,tags", 0, ctypes.byref(pool)) == 0
mine = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 20)
with rmm.tag("of Python"):
    own = mine.allocate(1000)
    assert c.rmm_c_resource_allocate(pool, ctypes.c_size_t(1000), ctypes.c_size_t(0), None, ctypes.byref(block)) == 0
visit = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64)
found = []
assert c.rmm_c_resource_visit_tags(pool, visit(lambda argument, tag, *amounts: found.append((tag, amounts[1]))), None) == 0
print(found)
"""


@needs_library
def test_the_path_is_that_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    assert librmm.library_path() == LIBRARY
    assert main(["c-path"]) == 0
    assert capsys.readouterr().out == f"{LIBRARY}\n"
    assert (LIBRARY.parent.parent / "include" / "rmm" / "c" / "rmm.h").is_file()
    assert "-l:librmm_c.so.1" in (LIBRARY.parent / "pkgconfig" / "rmm-c.pc").read_text().split()
    assert [path.name for path in LIBRARY.parent.glob("librmm_c*")] == ["librmm_c.so.1"]  # no copies under other names


def test_a_library_that_is_missing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FileNotFoundError, match=r"librmm\.so is no library of the package"):
        librmm.library_path("librmm.so")
    monkeypatch.setattr(librmm, "__path__", [str(tmp_path)])
    assert main(["c-path"]) == 2
    assert "RMM_BUILD_C_LIBRARY" in capsys.readouterr().err


@needs_library
def test_the_library_has_a_version_without_a_device() -> None:
    library = ctypes.CDLL(str(LIBRARY))
    library.rmm_c_engine_version.restype = ctypes.c_char_p
    assert library.rmm_c_version() >= 1001
    assert library.rmm_c_engine_version().decode().startswith("24.")


@needs_library
@pytest.mark.skipif(cuda_backend != "sim", reason="needs the simulator; tests of the C interface run on devices")
@pytest.mark.program(PROGRAM)
def test_a_pool_serves_a_program_without_the_package(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@needs_library
@pytest.mark.skipif(cuda_backend != "sim", reason="needs the simulator; tests of the C interface run on devices")
@pytest.mark.program(TAGGED)
def test_the_library_keeps_its_state_to_itself(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout) == (0, "[(b'', 1)]\n"), done.stderr


@needs_library
def test_only_the_package_publishes_its_state() -> None:
    """Both contain the same object files of the engine."""

    def published(library: Path) -> set[int]:  # the numbers of the notes of process_wide.hpp
        return {number[0] for number in re.findall(rb"\x04\0\0\0\x04\0\0\0([^\0])\0\0\0RMM\0", library.read_bytes())}

    headers = (LIBRARY.parent.parent / "include" / "rmm").rglob("*.hpp")
    anchors = [
        int(n)
        for header in headers
        for n in re.findall(r"^RMM_PROCESS_WIDE_ANCHOR\(\w+, (\d+)\)", header.read_text(), re.M)
    ]
    assert anchors
    (package,) = LIBRARY.parent.glob("librmm_python*.so")
    assert published(package) >= set(anchors)
    assert not published(LIBRARY)
