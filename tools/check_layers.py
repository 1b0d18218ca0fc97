#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the layers of include/rmm: a header includes only headers of its own layer and of lower ones.

    check_layers.py [FOLDER]     FOLDER contains rmm/; default: include/ of this repository

A header that the table lacks is an error, so that the author of a new folder decides on its layer. Also checks
which foreign headers a layer may include, that includes form no cycle, that only detail/cuda calls the CUDA runtime, that each
class that a header declares or befriends is defined in its own layer or a lower one, and that each header of detail
is included by another one. Without FOLDER, also checks that no shipped program includes a file of benchmarks/, and that each shipped
file with atomic variables says in a comment `Order: ...` which memory orders they need, and why these suffice.
"""

from __future__ import annotations

import argparse
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

# The layer of each header: the first pattern that matches its path below rmm/ decides. Headers that clients include
# keep their paths, so some detail headers are listed alone, with the layer of their content.
LAYERS: list[tuple[int, tuple[str, ...]]] = [
    (1, ("detail/config.hpp", "detail/export.hpp", "detail/assert.hpp", "detail/exec_check_disable.hpp", "version_config.hpp")),
    (2, ("aligned.hpp", "detail/base/*", "detail/logging_assert.hpp", "detail/runtime_shutdown.hpp",
         "detail/stack_trace.hpp", "process_is_exiting.hpp", "heap_figures.hpp", "recovery.hpp", "tag_scope.hpp",
         "mr/failure_callback_t.hpp", "memory_amount.hpp")),
    (3, ("detail/heap/*",)),
    (4, ("error.hpp", "detail/error.hpp", "detail/aligned.hpp", "detail/checked_size.hpp", "detail/cuda/*", "detail/nvtx/*",
         "detail/runtime_capabilities.hpp", "detail/dynamic_load_runtime.hpp", "detail/runtime_async_alloc.hpp")),
    (5, ("cuda_device.hpp", "cuda_stream*.hpp", "capture_scope.hpp", "prefetch.hpp", "detail/cuda_mr.hpp", "detail/cuda_memcpy.hpp", "detail/cuda_stream.hpp",
         "resource_ref.hpp",
         "detail/resource_*.hpp", "detail/cccl_*.hpp", "detail/cuda_memory_resource.hpp", "detail/format.hpp",
         "detail/logger_frontend.hpp")),
    (9, ("logger.hpp", "logger_macros.hpp", "detail/logger*.hpp", "detail/plain_logger.hpp", "detail/rapids_logger*.hpp",
         "exec_policy.hpp", "detail/thrust_namespace.h",
         "device_vector.hpp", "mr/*logging_resource_adaptor.hpp", "mr/*tracking_resource_adaptor.hpp",
         "mr/*thrust_allocator_adaptor.hpp")),
    (7, ("mr/detail/registry.hpp", "mr/host/*", "mr/device/*")),
    (6, ("detail/stream/*", "detail/trace/*", "memory_report.hpp", "memory_snapshot.hpp", "mr/device_memory_resource.hpp", "mr/detail/*")),
    (7, ("mr/*",)),
    (8, ("device_buffer.hpp", "device_uvector.hpp", "device_scalar.hpp")),
]

# Foreign headers, and the lowest layer that may include them.
FOREIGN: list[tuple[str, re.Pattern[str], int]] = [
    ("the C++ library", re.compile(r"[a-z_0-9]+"), 1),
    ("the system", re.compile(r"(cpuid|cxxabi|dirent|dlfcn|execinfo|fcntl|link|pthread|sched|unistd)\.h|(linux|sanitizer|sys)/\w+\.h"), 2),
    ("the CUDA runtime", re.compile(r"(cuda|cuda_runtime|cuda_runtime_api|driver_types)\.h"), 4),
    ("NVTX", re.compile(r"nvtx3/.*"), 4),
    ("libcu++", re.compile(r"cuda/.*"), 5),
    ("Thrust and CUB", re.compile(r"(thrust|cub)/.*"), 9),
    ("the logging library", re.compile(r"(spdlog|fmt|rapids_logger)/.*"), 9),
]

# Headers of detail that programs include themselves, so no other header has to.
ENTRY_POINTS = {
    "detail/cuda_memcpy.hpp",
    "detail/cuda_memory_resource.hpp",
    "detail/dynamic_load_runtime.hpp",
    "detail/nvtx/ranges.hpp",
    "detail/runtime_async_alloc.hpp",
    "mr/detail/device_memory_resource_view.hpp",
}

# Classes of higher layers that a header may declare, because it does not use their members.
DECLARED_ONLY = {
    ("detail/resource_facade.hpp", "device_memory_resource"),
    ("detail/resource_facade.hpp", "host_memory_resource"),
    ("error.hpp", "memory_report"),
    ("mr/detail/growing_pool.hpp", "memory_reservation"),
}

# Folders whose programs and libraries are installed or packaged.
SHIPPED = ("include", "c/include", "c/src", "python/rmm", "tools/audit", "tools/environment", "tools/gdb", "tools/nvtx", "tools/recorded",
           "tools/trace")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
CUDA_CALL = re.compile(r"(?<![\w.>])cu(da)?[A-Z][a-z]\w*(?<!_t)\s*\(")
DEFINED_CLASS = re.compile(
    r"\b(?:class|struct|union)\s+(?:alignas\([^)]*\)\s*|[A-Z_]+\s+|\[\[[^\]]*\]\]\s*)*(?:\w+::)*(\w+)(?:<[^{;]*>)?(?:\s+final)?\s*(?::[^;{]*)?\{"
)
DECLARED_CLASS = re.compile(
    r"^[ \t]*(?:template\s*<[^{;]*?>\s*)?(?:friend\s+)?(?:class|struct)\s+(?:\w+::)*(\w+)(?:<[^;{]*>)?;"
    r"|^[ \t]*friend\s+(?:\w+::)*(\w+)(?:<[^;{]*>)?;",
    re.MULTILINE,
)
ATOMIC = re.compile(r"\bstd::atomic\w*\b|\b__(?:atomic|sync)_\w+")
ARGUMENT = re.compile(r"//.*\bOrder: ")
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)


def layer_of(path: str) -> int | None:
    """Returns the layer of the header at `path` below rmm/, or None if the table lacks it."""
    for layer, patterns in LAYERS:
        if any(fnmatchcase(path, pattern) for pattern in patterns):
            return layer
    return None


def foreign_problem(path: str, layer: int, include: str) -> str | None:
    """Returns why the header at `path` may not include the foreign header `include`, or None."""
    if include == "cuda/memory_resource" and path != "detail/cuda_mr.hpp":
        return f"<{include}> is included by detail/cuda_mr.hpp only"
    for name, pattern, first_layer in FOREIGN:
        if pattern.fullmatch(include):
            if layer < first_layer:
                return f"layer {layer} includes <{include}>, but {name} may be used from layer {first_layer} on"
            return None
    return f"<{include}> is not in the table of foreign headers"


def blanked(text: str) -> str:
    """Returns `text` without comments and string literals, with the same line numbers."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match.group().count("\n")

    return COMMENT_OR_STRING.sub(blank, text)


def without_headers(table: str) -> str:
    """Returns the table of resources without the headers that it includes for files that define RMM_RESOURCE_HEADERS."""
    return re.sub(r"^#ifdef RMM_RESOURCE_HEADERS$.*?^#endif$", lambda match: "\n" * match.group().count("\n"), table,
                  flags=re.MULTILINE | re.DOTALL)


def declaration_problems(codes: dict[str, str]) -> list[str]:
    """Returns the problems of classes that are declared or befriended, but defined in no header or only in headers of higher layers.

    `codes`: the text of each header, blanked.
    """
    defined: dict[str, int] = {}  # the lowest layer that defines a class of that name
    for path, code in codes.items():
        for match in DEFINED_CLASS.finditer(code):
            defined[match.group(1)] = min(layer_of(path) or 0, defined.get(match.group(1), 99))
    problems = []
    for path, code in codes.items():
        layer = layer_of(path) or 0
        for match in DECLARED_CLASS.finditer(code):
            name = match.group(1) or match.group(2)
            where = f"rmm/{path}:{code.count(chr(10), 0, match.end()) + 1}"
            if name not in defined:
                problems.append(f"{where}: declares {name}, which no header defines")
            elif defined[name] > layer and (path, name) not in DECLARED_ONLY:
                problems.append(f"{where}: layer {layer} declares {name} of layer {defined[name]}")
    return problems


def unused_headers(graph: dict[str, list[str]]) -> list[str]:
    """Returns the problems of headers of detail that no other header includes. `graph`: the headers that each header includes."""
    used = {included for includes in graph.values() for included in includes}
    return [
        f"rmm/{path}:1: no header includes it; what only a tool needs belongs to that tool"
        for path in graph
        if "detail/" in path and path not in used and path not in ENTRY_POINTS and not path.endswith("_validation.hpp")
    ]


def benchmarks_included(repository: Path) -> list[str]:
    """Returns the problems of shipped files that include a file of benchmarks/, which is not shipped."""
    problems = []
    for folder in SHIPPED:
        for file in sorted((repository / folder).rglob("*")):
            if file.suffix not in (".cpp", ".hpp", ".h", ".pyx", ".pxd") or not file.is_file() or "build" in file.parts:
                continue
            text = file.read_text(encoding="utf-8")
            for match in re.finditer(r'include[ \t]*[<"](?:[^>"\n]*/)?benchmarks/', text):
                line = text.count("\n", 0, match.start()) + 1
                problems.append(f"{file.relative_to(repository)}:{line}: includes a file of benchmarks/, which is not shipped")
    return problems


def unargued_orders(repository: Path) -> list[str]:
    """Returns the problems of shipped C++ files that have atomic variables, but no comment on their memory orders."""
    problems = []
    for folder in SHIPPED:
        for file in sorted((repository / folder).rglob("*")):
            if file.suffix not in (".cpp", ".hpp", ".h", ".ipp", ".inc") or not file.is_file() or "build" in file.parts:
                continue
            text = file.read_text(encoding="utf-8")
            code = blanked(text)
            found = ATOMIC.search(code)
            if found and not ARGUMENT.search(text):
                line = code.count("\n", 0, found.start()) + 1
                problems.append(f"{file.relative_to(repository)}:{line}: no comment `Order: ...` argues for the memory orders")
    return problems


def find_cycle(graph: dict[str, list[str]]) -> list[str] | None:
    """Returns a cycle of includes, or None."""
    finished: set[str] = set()
    path: list[str] = []

    def search(node: str) -> list[str] | None:
        if node in path:
            return path[path.index(node):] + [node]
        if node in finished or node not in graph:
            return None
        path.append(node)
        for successor in graph[node]:
            cycle = search(successor)
            if cycle:
                return cycle
        path.pop()
        finished.add(node)
        return None

    return next(filter(None, map(search, sorted(graph))), None)


def check(root: Path, is_whole: bool = False) -> list[str]:
    """Returns all problems of the headers in root/rmm, as lines `file:line: what is wrong`.

    `is_whole`: these are all headers of the library, so another one should include each header of detail.
    """
    problems: list[str] = []
    graph: dict[str, list[str]] = {}
    codes: dict[str, str] = {}
    base = root / "rmm"
    table_of_headers = base / "mr/detail/resource_table.inc"
    for file in sorted(base.rglob("*")):
        if not file.is_file():
            continue
        path = file.relative_to(base).as_posix()
        layer = layer_of(path)
        if layer is None:
            problems.append(f"rmm/{path}:1: in no layer; add it to the table in tools/check_layers.py")
            continue
        text = file.read_text(encoding="utf-8")
        if file == table_of_headers:
            text = without_headers(text)
        elif "#define RMM_RESOURCE_HEADERS" in text:
            text += "".join(match.group() + "\n" for match in INCLUDE.finditer(table_of_headers.read_text(encoding="utf-8")))
        graph[path] = []
        for match in INCLUDE.finditer(text):
            include = match.group(1)
            where = f"rmm/{path}:{text.count(chr(10), 0, match.start()) + 1}"
            if not include.startswith("rmm/"):
                problem = foreign_problem(path, layer, include)
                if problem:
                    problems.append(f"{where}: {problem}")
                continue
            included = include.removeprefix("rmm/")
            if included != path.replace(".hpp", "_validation.hpp"):  # the second part of a header, which has its checks
                graph[path].append(included)
            if not (base / included).is_file():
                problems.append(f"{where}: <{include}> does not exist")
                continue
            included_layer = layer_of(included)
            if included_layer is not None and included_layer > layer:
                problems.append(f"{where}: layer {layer} includes <{include}> of layer {included_layer}")
        code = codes[path] = blanked(text)
        if not path.startswith("detail/cuda/"):
            for match in CUDA_CALL.finditer(code):
                line = code.count("\n", 0, match.start()) + 1
                problems.append(f"rmm/{path}:{line}: calls {match.group().rstrip('( ')}; only detail/cuda calls CUDA")
    problems += declaration_problems(codes)
    if is_whole:
        problems += unused_headers(graph)
    cycle = find_cycle(graph)
    if cycle:
        problems.append(f"rmm/{cycle[0]}:1: headers include each other: {' -> '.join(cycle)}")
    if not graph and not problems:
        problems.append(f"{base}: no headers")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks the layers of include/rmm.")
    parser.add_argument("folder", nargs="?", type=Path)
    folder = parser.parse_args().folder
    repository = Path(__file__).resolve().parent.parent
    problems = check(folder or repository / "include", is_whole=folder is None)
    if folder is None:
        problems += benchmarks_included(repository)
        problems += unargued_orders(repository)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
