#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every header of include alone, with warnings as errors, by several compilers, each in its language standard.

    check_headers.py [--compiler g++ --compiler clang++] [--std 17 --std 20] [--isystem FOLDER]... [--cache FILE] [HEADER]...

Public headers are compiled by each compiler in the standard with the same place in the list: what a header includes hardly depends
on either, and the tests are built in all combinations. The headers in detail folders, and those that only forward to another
header, are compiled once, by the first compiler, which does not compile that other header by itself again. Where programs take
names of other headers from a header, the file names them, too.

Without --isystem, looks for the folders of the CUDA toolkit in CUDAToolkit_ROOT, CUDA_HOME, CUDA_PATH, beside the nvcc on PATH,
and in /usr/local/cuda. With --cache, a header that compiled without a warning is not compiled again until a header it includes changes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wold-style-cast", "-Werror"]
FLAGS_OF_GCC = ["-Wuseless-cast"]  # users include the headers without -isystem, too
DEFINITIONS = ["-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"]
# Headers that report by one error that they need a package which is not installed.
NEEDS = {"rmm/logger.hpp": "spdlog/spdlog.h"}
# Names that programs take from a header without including the headers they are from.
NAMES = {
    "rmm/cuda_device.hpp": "rmm::out_of_memory rmm::CUDA_ALLOCATION_ALIGNMENT",
    "rmm/cuda_stream.hpp": "rmm::cuda_stream_view std::unique_ptr",
    "rmm/cuda_stream_pool.hpp": "rmm::cuda_stream rmm::cuda_stream_view std::unique_ptr std::vector",
    "rmm/device_buffer.hpp":
        "rmm::cuda_device_id rmm::cuda_stream_view rmm::device_async_resource_ref rmm::logic_error "
        "rmm::mr::get_current_device_resource std::unique_ptr",
    "rmm/device_scalar.hpp": "rmm::device_uvector std::unique_ptr",
    "rmm/device_uvector.hpp":
        "rmm::align_up rmm::cuda_device_id rmm::cuda_stream_view rmm::device_async_resource_ref rmm::device_buffer "
        "rmm::logic_error rmm::mr::cuda_memory_resource rmm::mr::device_memory_resource "
        "rmm::mr::get_current_device_resource rmm::mr::set_current_device_resource std::unique_ptr std::vector",
    "rmm/device_vector.hpp": "rmm::mr::thrust_allocator std::unique_ptr",
    "rmm/exec_policy.hpp":
        "rmm::cuda_stream_view rmm::device_async_resource_ref rmm::mr::get_current_device_resource "
        "rmm::mr::thrust_allocator",
    "rmm/mr/aligned_resource_adaptor.hpp": "rmm::device_async_resource_ref rmm::mr::get_current_device_resource_ref",
    "rmm/mr/device/arena_memory_resource.hpp": "rmm::cuda_device_id rmm::detail::log_message",
    "rmm/mr/device/binning_memory_resource.hpp":
        "rmm::detail::log_message rmm::device_async_resource_ref rmm::mr::fixed_size_memory_resource std::list",
    "rmm/mr/device/cuda_async_managed_memory_resource.hpp": "rmm::mr::cuda_async_managed_memory_resource",
    "rmm/mr/device/cuda_async_memory_resource.hpp":
        "rmm::cuda_device_id rmm::detail::async_alloc rmm::detail::runtime_async_alloc",
    "rmm/mr/device/cuda_async_view_memory_resource.hpp":
        "rmm::cuda_device_id rmm::detail::async_alloc rmm::detail::runtime_async_alloc",
    "rmm/mr/device/cuda_memory_resource.hpp": "rmm::mr::device_memory_resource",
    "rmm/mr/device/device_memory_resource.hpp": "rmm::align_up rmm::cuda_stream_view rmm::detail::aligned_host_allocate",
    "rmm/mr/device/fixed_size_memory_resource.hpp":
        "rmm::cuda_device_id rmm::detail::log_message rmm::device_async_resource_ref std::list",
    "rmm/mr/device/owning_wrapper.hpp": "rmm::mr::device_memory_resource std::shared_ptr",
    "rmm/mr/device/per_device_resource.hpp":
        "rmm::cuda_stream_view rmm::mr::cuda_memory_resource rmm::mr::device_memory_resource",
    "rmm/mr/device/pool_memory_resource.hpp":
        "rmm::out_of_memory rmm::CUDA_ALLOCATION_ALIGNMENT rmm::cuda_device_id rmm::detail::log_message "
        "rmm::device_async_resource_ref rmm::mr::device_memory_resource std::list",
    "rmm/mr/device/prefetch_resource_adaptor.hpp": "rmm::prefetch",
    "rmm/mr/failure_callback_resource_adaptor.hpp": "rmm::device_async_resource_ref rmm::mr::get_current_device_resource_ref",
    "rmm/mr/host/host_memory_resource.hpp": "std::shared_ptr std::unique_ptr",
    "rmm/mr/host/new_delete_resource.hpp": "std::shared_ptr std::unique_ptr",
    "rmm/mr/host/pinned_memory_resource.hpp": "std::shared_ptr std::unique_ptr",
    "rmm/mr/limiting_resource_adaptor.hpp": "rmm::device_async_resource_ref rmm::mr::get_current_device_resource_ref",
    "rmm/mr/logging_resource_adaptor.hpp": "rmm::device_async_resource_ref rmm::mr::get_current_device_resource_ref",
    "rmm/mr/pinned_host_memory_resource.hpp": "std::shared_ptr std::unique_ptr",
    "rmm/mr/prefetch_resource_adaptor.hpp": "rmm::device_async_resource_ref rmm::mr::get_current_device_resource_ref",
    "rmm/mr/statistics_resource_adaptor.hpp": "rmm::device_async_resource_ref rmm::mr::get_current_device_resource_ref",
    "rmm/mr/thread_safe_resource_adaptor.hpp": "rmm::device_async_resource_ref rmm::mr::get_current_device_resource_ref",
    "rmm/mr/tracking_resource_adaptor.hpp": "rmm::device_async_resource_ref rmm::mr::get_current_device_resource_ref",
}


def toolkit_folders() -> list[Path]:
    """Returns the include folders of the CUDA toolkit."""
    candidates = [Path(os.environ[name]) for name in ("CUDAToolkit_ROOT", "CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    nvcc = shutil.which("nvcc")
    if nvcc:
        candidates.append(Path(nvcc).resolve().parent.parent)
    candidates.append(Path("/usr/local/cuda"))
    for candidate in candidates:
        for include in (candidate / "include", candidate / "targets" / "x86_64-linux" / "include"):
            if (include / "cuda_runtime_api.h").is_file():
                return [include] + ([include / "cccl"] if (include / "cccl").is_dir() else [])
    sys.exit("check_headers.py: no CUDA toolkit found; set CUDAToolkit_ROOT to its folder, or use --isystem")


def forwards_to(header: str) -> str | None:
    """Returns the header that `header` includes if it has no content of its own."""
    code = re.sub(r"//[^\n]*", "", (INCLUDE / header).read_text(encoding="utf-8"))
    match = re.fullmatch(r"\s*#pragma once\s*#include <(rmm/[^>]+)>\s*", code)
    return match[1] if match else None


def is_compiled_once(header: str) -> bool:
    """Whether one compilation of `header` is enough: it is not public, or has no content of its own."""
    return "/detail/" in header or forwards_to(header) is not None


@lru_cache(maxsize=None)
def closure(header: str) -> frozenset[str]:
    """Returns `header` and all of our headers that it includes, directly or indirectly."""
    seen: set[str] = set()
    todo = [header]
    while todo:
        name = todo.pop()
        file = INCLUDE / name
        if name in seen or not file.is_file():
            continue
        seen.add(name)
        todo += re.findall(r"#[ \t]*include[ \t]*<((?:rmm|rapids_logger)/[^>]+)>", file.read_text(encoding="utf-8"))
    return frozenset(seen)


def text_of(header: str) -> str:
    """Returns a file that includes `header` alone, and uses the names that programs take from it, and from the one it forwards to."""
    wanted = {*NAMES.get(header, "").split(), *NAMES.get(forwards_to(header) or "", "").split()}
    names = "".join(f"using {name};\n" for name in sorted(wanted))
    return f"#include <{header}>\nnamespace client {{\n{names}}}\n" if names else f"#include <{header}>\n"


def key_of(header: str, command: list[str], compiler_version: str) -> str:
    """Returns a hash that changes whenever the result of compiling `header` by `command` may change."""
    digest = hashlib.sha256(" ".join([compiler_version, *command, text_of(header)]).encode())
    for name in sorted(closure(header)):
        digest.update(name.encode() + (INCLUDE / name).read_bytes())
    return digest.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description="Compiles every header of include alone.")
    parser.add_argument("--compiler", action="append", help="default: g++ and clang++")
    parser.add_argument("--std", action="append", help="of each compiler, default: 17 and 20")
    parser.add_argument("--isystem", action="append", type=Path, help="folder of foreign headers")
    parser.add_argument("--cache", type=Path, help="file that remembers what compiled")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("header", nargs="*", help="as it is included, such as rmm/error.hpp; default: all")
    args = parser.parse_args()
    compilers = args.compiler or ["g++", "clang++"]
    standards = args.std or ["17", "20"]
    if len(compilers) != len(standards):
        parser.error("there must be as many --std as --compiler")

    # A compiler that gets its own folder by -isystem no longer finds the C library's headers from those of C++.
    folders = [folder for folder in args.isystem or toolkit_folders() if folder != Path("/usr/include")]
    headers = args.header or sorted(file.relative_to(INCLUDE).as_posix() for file in INCLUDE.rglob("*.hpp"))
    skipped = [header for header in headers
               if header in NEEDS and not any((folder / NEEDS[header]).is_file() for folder in [*folders, Path("/usr/include")])]
    cached: set[str] = set()
    if args.cache and args.cache.is_file():
        cached = set(json.loads(args.cache.read_text(encoding="utf-8")))

    once = {header for header in headers if is_compiled_once(header)}
    forwarded = {forwards_to(header) for header in headers}  # the first compiler sees each of them through the other header
    work: list[tuple[str, list[str], str]] = []
    for compiler, std in zip(compilers, standards):
        if not shutil.which(compiler):
            sys.exit(f"check_headers.py: {compiler} is not installed")
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        command = [compiler, f"-std=c++{std}", *FLAGS, *([] if "clang" in compiler else FLAGS_OF_GCC), *DEFINITIONS, f"-I{INCLUDE}"]
        for folder in folders:
            command += ["-isystem", str(folder)]
        wanted = [header for header in headers if header not in skipped and header not in (once if work else forwarded)]
        work += [(header, command, key_of(header, command, version)) for header in wanted]

    def compile_alone(item: tuple[str, list[str], str]) -> str | None:
        header, command, key = item
        if key in cached:
            return None
        result = subprocess.run([*command, "-x", "c++", "-"], input=text_of(header), capture_output=True, text=True)
        if result.returncode == 0:
            return None
        return f"{header} does not compile alone ({command[0]} {command[1]}):\n{result.stderr}"

    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(compile_alone, work))
    failures = [result for result in results if result]
    for failure in failures:
        print(failure)
    for header in skipped:
        print(f"{header} skipped: {NEEDS[header]} is not installed")
    if args.cache:
        args.cache.parent.mkdir(parents=True, exist_ok=True)
        compiled = sorted(item[2] for item, result in zip(work, results) if result is None)
        args.cache.write_text(json.dumps(compiled), encoding="utf-8")
    known = sum(item[2] in cached for item in work)
    print(f"{len(headers) - len(skipped)} headers, {len(work)} compilations ({known} unchanged), {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
