# SPDX-License-Identifier: Apache-2.0
"""Tests the build of the package: which CUDA toolkit it uses, and the libraries that wheels are linked against."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

folder = Path(__file__).parents[1]
sys.path.insert(0, str(folder / "build_backend"))
try:
    import build_folder
    import cuda_packages
finally:
    sys.path.pop(0)


@pytest.fixture
def without_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDACXX", "CUDAToolkit_ROOT", "CUDA_PATH", "RMM_CUDA_PACKAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(Path, "exists", lambda self: False)


def unpack_packages(site: Path) -> Path:
    """Makes the files of NVIDIA's packages that a build looks for."""
    packages = site / "nvidia" / "cu13"
    for name in (*cuda_packages._needed_files, "lib/libcudart.so.13"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text("#define CUDART_VERSION  13050\n")
    return packages


@pytest.mark.usefixtures("without_toolkit")
def test_packages_are_used_without_a_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cuda_packages.wants_packages()
    monkeypatch.setenv("CUDAToolkit_ROOT", "/opt/cuda")
    assert not cuda_packages.wants_packages()
    monkeypatch.setenv("RMM_CUDA_PACKAGES", "1")
    assert cuda_packages.wants_packages()


@pytest.mark.usefixtures("without_toolkit")
def test_packages_can_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMM_CUDA_PACKAGES", "0")
    assert not cuda_packages.wants_packages()


def test_packages_are_laid_out_as_a_toolkit_is(tmp_path: Path) -> None:
    packages = unpack_packages(tmp_path / "site")
    for _ in range(2):  # the second time, the folder exists
        cuda_packages.make_toolkit(tmp_path / "toolkit", cuda_packages.folder_of_packages(tmp_path / "site"))
    toolkit = tmp_path / "toolkit"
    assert (toolkit / "include" / "cuda_runtime_api.h").samefile(packages / "include" / "cuda_runtime_api.h")
    assert (toolkit / "lib64" / "libcudart.so").samefile(packages / "lib" / "libcudart.so.13")
    assert (toolkit / "lib64" / "cmake" / "cccl" / "cccl-config.cmake").is_file()
    assert (toolkit / "version.txt").read_text() == "CUDA Version 13.5.0\n"


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    packages = unpack_packages(tmp_path)
    (packages / "include" / "nvtx3" / "nvtx3.hpp").unlink()
    with pytest.raises(SystemExit, match=r"pip install .*nvidia-nvtx"):
        cuda_packages.folder_of_packages(tmp_path)


def test_a_build_that_cannot_write_beside_its_sources_gets_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SKBUILD_BUILD_DIR", raising=False)
    with build_folder.writable_build_folder(None) as settings:
        assert settings == {}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with build_folder.writable_build_folder({"cmake.build-type": "Debug"}) as settings:
        made = Path(settings["build-dir"])
        assert made.is_dir()
        assert settings["cmake.build-type"] == "Debug"
    assert not made.exists()
    with build_folder.writable_build_folder({"build-dir": "chosen"}) as settings:
        assert settings == {"build-dir": "chosen"}


@pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("ninja") is None, reason="needs CMake and Ninja")
@pytest.mark.skipif(find_spec("Cython") is None, reason="could not import 'Cython': No module named 'Cython'")
@pytest.mark.parametrize("are_errors", [False, True])
def test_warnings_of_cython_are_errors_only_where_that_is_asked_for(
    are_errors: bool, done: subprocess.CompletedProcess[str]
) -> None:
    assert done.returncode == 0, done.stderr
    assert ("--warning-errors" in done.stdout) == are_errors


@pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("ninja") is None, reason="needs CMake and Ninja")
@pytest.mark.skipif(find_spec("Cython") is None, reason="could not import 'Cython': No module named 'Cython'")
@pytest.mark.skipif(
    not hasattr(sys, "abiflags") or "t" in sys.abiflags, reason="free-threaded Pythons always run Cython"
)
def test_a_source_distribution_runs_cython_only_after_changes(tmp_path: Path) -> None:
    copy = tmp_path / "distribution"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("build", "tests", "__pycache__"))
    (copy / "cpp").symlink_to(folder.parents[1])
    script = [sys.executable, str(copy / "cmake" / "translate.py")]
    for module in copy.glob("rmm/**/*.pyx"):
        translated = copy / "translated" / module.relative_to(copy).with_suffix(".cpp")
        translated.parent.mkdir(parents=True, exist_ok=True)
        translated.touch()
    digest = subprocess.run([*script, "--digest"], check=True, capture_output=True, text=True).stdout
    (copy / "translated" / "digest").write_text(digest)
    places = ["-S", str(copy), "-B", str(tmp_path / "build"), "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"]

    def runs_cython() -> bool:
        subprocess.run(["cmake", *places, "-DRMM_CUDA_BACKEND=sim"], check=True, stdout=subprocess.DEVNULL)
        return "translate.py" in (tmp_path / "build" / "build.ninja").read_text()

    assert not runs_cython()
    with (copy / "rmm" / "pylibrmm" / "stream.pxd").open("a") as declarations:
        declarations.write("# changed\n")
    assert runs_cython()


# Each line says which function of newer_functions.cpp was called, and its effect.
program = r"""
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <sstream>
#include <sys/stat.h>
#include <vector>

struct counted {
  counted() { std::puts("thrown"); }
  counted(counted const&) = delete;
  ~counted() { std::puts("destroyed"); }
};

struct before_main {
  before_main() { std::puts("constructed"); }
} const constructed;

int main(int count, char** arguments)
{
  std::exception_ptr kept;
  try {
    throw std::make_unique<counted>();
  } catch (...) {
    kept = std::current_exception();
    std::exception_ptr const second{kept};
    std::exception_ptr third;
    third = second;
  }
  std::puts("kept");
  kept = nullptr;
  std::ostringstream text;
  text << count << 2.5;
  std::puts(text.str().c_str());
  try {
    std::puts(new int[count - 3LL] == nullptr ? "null" : "memory");
  } catch (std::bad_array_new_length const&) {
    std::puts("bad length");
  }
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock<std::mutex> lock{mutex};
  auto const begin = std::chrono::steady_clock::now();
  never.wait_for(lock, std::chrono::milliseconds{30}, [] { return false; });
  auto const waited = std::chrono::steady_clock::now() - begin;
  std::puts(waited >= std::chrono::milliseconds{30} && waited < std::chrono::seconds{20} ? "waited" : "not waited");
  struct stat status{};
  std::FILE* const file = std::fopen(arguments[0], "r");
  std::puts(fstat(fileno(file), &status) == 0 && status.st_size > 1000 ? "file" : "no file");
}
"""
printed = "constructed\nthrown\nkept\ndestroyed\n12.5\nbad length\nwaited\nfile\n"


configuring = """
import pathlib, subprocess, sys
subprocess.run(["cmake", *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
print(pathlib.Path("build", "build.ninja").read_text())
"""

linking = f"""
import subprocess, sys
from pathlib import Path

def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

compiler, readelf, script, optimization = sys.argv[1:]
run(sys.executable, script, compiler, "stubs")
Path("program.cpp").write_text({program!r})
libraries = ["-Wl,--push-state,--no-as-needed", "-lpthread", "-ldl", "-lrt", "-Wl,--pop-state"]
run(
    *(compiler, "-std=c++17", optimization, "program.cpp", "-o", "program"),
    *("-Lstubs", "stubs/libnewer_functions.a", *libraries),
)
print(run("./program"), run(readelf, "--wide", "-V", "program"), sep="--\\n")
"""
script = folder / "cmake" / "manylinux" / "link_stubs.py"
compiler, readelf = shutil.which("g++"), shutil.which("readelf")


def program_of(test: pytest.Function) -> list[str]:
    parameters = test.callspec.params
    if "optimization" in parameters:
        return ["-c", linking, str(compiler), str(readelf), str(script), str(parameters["optimization"])]
    places = ["-S", str(folder), "-B", "build", "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"]
    wish = ["-DRMM_CYTHON_WARNINGS_ARE_ERRORS=ON"] if parameters["are_errors"] else []
    return ["-c", configuring, *places, "-DRMM_CUDA_BACKEND=sim", *wish]


@pytest.mark.skipif(compiler is None or readelf is None, reason="needs g++ and readelf")
@pytest.mark.parametrize("optimization", ["-O0", "-O2"])
def test_binaries_for_manylinux_need_no_newer_symbols(
    optimization: str, done: subprocess.CompletedProcess[str]
) -> None:
    assert done.returncode == 0, done.stderr
    output, _, versions = done.stdout.partition("--\n")
    assert output == printed
    needed = {word for word in versions.split() if word.startswith(("GLIBC", "CXXABI", "GCC"))}
    sys.path.insert(0, str(script.parent))
    try:
        from link_stubs import number_of
    finally:
        sys.path.pop(0)
    assert needed >= {"GLIBCXX_3.4.21", "CXXABI_1.3"}
    assert [version for version in needed if number_of(version) is None] == []
