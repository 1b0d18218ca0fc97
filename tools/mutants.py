#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the library on purpose, one small change at a time, and counts the changes that the tests notice.

    mutants.py --build build/sim [--seed 1] [--count 200] [--group heap ...] [--minutes 60] [--results FILE]

A mutant is one file with one change: another operator, another bound, a statement dropped, two statements swapped, or a
condition negated. The seed draws them; none is picked by hand. For each mutant, the tests that cover the file are compiled
with the changed file in place of the real one, in a separate folder, and run, one source after the other until one fails. A mutant is
killed if a test fails, crashes or does not end. A mutant that does not compile proves nothing and is not counted. Bodies of
check_invariants() are not changed, because they test the library.

Each killed mutant is recorded with the way it died: by an "assertion" of the library before any expectation of a test failed, by an
"expectation" of a test, by a "crash", or by a "timeout". Assertions need a build with -DRMM_EXPENSIVE_ASSERTIONS=ON.

A file is a header below include/rmm, or a header or source elsewhere in the repository. In the latter case, the source, or a source that
includes the header, is compiled and linked in place of the real one; for librmm_c.so, the whole library is.

--build names a build folder that compiles each file of tests by itself (-DRMM_UNITE_TESTS=OFF), and in which rmm_death_test_style and the
simulator have been built; also BENCHMARKS_TEST for mutants of the readers, and C_INTERFACE_SIM_TEST and C_INTERFACE_TEST for the C interface. Most of the time
goes into compiling: `-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0`, clang++ and lld cut it to a third. --own runs only the tests of
the file itself; --again then runs all tests on the mutants that survived. Results are added to a file, one per line; a run with the
same seed continues where the last one stopped. --report prints the results in the file; --show prints mutants.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import hashlib
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

# Tests of users of the heap. They run, in this order, if the tests of the file itself let a mutant pass.
HEAP_USERS = [
    "SUBALLOCATOR_SIM_TEST rmm/detail/stream/stream_ordered_heap_sim_tests.cpp",
    "POOL_MR_TEST rmm/mr/pool_memory_resource_tests.cpp",
    "SUBALLOCATOR_SIM_TEST rmm/mr/detail/immediate_resource_sim_tests.cpp",
    "SUBALLOCATOR_SIM_TEST rmm/mr/pool_memory_resource_ordering_sim_tests.cpp",
    "SUBALLOCATOR_HOST_MEMORY_SIM_TEST rmm/mr/detail/suballocator_host_memory_sim_tests.cpp",
    "SUBALLOCATOR_ORDERING_SIM_TEST rmm/mr/detail/suballocator_ordering_sim_tests.cpp",
    "RECOVERY_SIM_TEST rmm/recovery_sim_tests.cpp",
    "RECOVERY_SIM_TEST rmm/memory_report_sim_tests.cpp",
    "RECOVERY_SIM_TEST rmm/memory_snapshot_sim_tests.cpp",
    "CAPTURE_SIM_TEST rmm/capture_scope_sim_tests.cpp",
    "ELASTIC_POOL_SIM_TEST rmm/mr/elastic_pool_memory_resource_sim_tests.cpp",
    "SUBALLOCATOR_SIM_TEST rmm/mr/detail/suballocator_threads_sim_tests.cpp",
    "HEAP_GROWTH_SIM_TEST rmm/detail/stream/stream_ordered_heap_growth_sim_tests.cpp",
]
RESOURCE_USERS = [
    "BAD_INPUT_TEST rmm/mr/bad_input_tests.cpp",
    "BAD_INPUT_TEST rmm/mr/worked_examples_tests.cpp",
    "RECOVERY_SIM_TEST rmm/memory_report_sim_tests.cpp",
    "RECOVERY_SIM_TEST rmm/memory_snapshot_sim_tests.cpp",
    "SUBALLOCATOR_ORDERING_SIM_TEST rmm/mr/detail/suballocator_ordering_sim_tests.cpp",
    "SUBALLOCATOR_HOST_MEMORY_SIM_TEST rmm/mr/detail/suballocator_host_memory_sim_tests.cpp",
    "MEMORY_MARKS_SIM_TEST rmm/detail/nvtx/memory_marks_sim_tests.cpp",
    "SUBALLOCATOR_SIM_TEST rmm/mr/detail/suballocator_threads_sim_tests.cpp",
]
ADAPTOR_USERS = [
    "ADAPTOR_TEST rmm/mr/adaptor_tests.cpp",
    "BAD_INPUT_TEST rmm/mr/bad_input_tests.cpp",
    "STRONG_GUARANTEE_SIM_TEST rmm/mr/strong_guarantee_sim_tests.cpp",
    "RECOVERY_SIM_TEST rmm/memory_report_sim_tests.cpp",
    "RECOVERY_SIM_TEST rmm/memory_snapshot_sim_tests.cpp",
    "CONFIGURATION_TEST rmm/mr/configured_resource_tests.cpp",
]
CAPTURE_TESTS = [
    "CAPTURE_SIM_TEST rmm/capture_scope_sim_tests.cpp",
    "CAPTURE_SIM_TEST rmm/capture_scope_replay_sim_tests.cpp",
    "CAPTURE_SIM_TEST rmm/capture_scope_random_sim_tests.cpp",
]
ELASTIC_TESTS = [
    "ELASTIC_POOL_SIM_TEST rmm/mr/elastic_pool_memory_resource_sim_tests.cpp",
    "ELASTIC_POOL_ORDERING_SIM_TEST rmm/mr/elastic_pool_memory_resource_ordering_sim_tests.cpp",
    "ELASTIC_POOL_ORDERING_SIM_TEST rmm/mr/elastic_pool_memory_resource_fault_sim_tests.cpp",
    "ELASTIC_POOL_ORDERING_SIM_TEST rmm/mr/elastic_pool_memory_resource_process_sim_tests.cpp",
]
CACHED_TESTS = ["POOL_MR_TEST rmm/mr/cached_memory_resource_tests.cpp", "RECOVERY_SIM_TEST rmm/mr/cached_memory_resource_sim_tests.cpp"]
CONFIGURED_TESTS = [
    "CONFIGURATION_TEST rmm/mr/configured_resource_tests.cpp",
    "CONFIGURATION_SIM_TEST rmm/mr/configured_resource_sim_tests.cpp",
]
POOL_USERS = [*CAPTURE_TESTS, *RESOURCE_USERS, *CONFIGURED_TESTS]
THIN_USERS = ["BAD_INPUT_TEST rmm/mr/bad_input_tests.cpp", "STRONG_GUARANTEE_SIM_TEST rmm/mr/bad_input_sim_tests.cpp",
              "STRONG_GUARANTEE_SIM_TEST rmm/mr/strong_guarantee_sim_tests.cpp", *CONFIGURED_TESTS]

CONTAINER_USERS = ["CONTAINER_SIM_TEST rmm/device_buffer_sim_tests.cpp", "CONTAINER_SIM_TEST rmm/device_uvector_sim_tests.cpp",
                   "BAD_INPUT_TEST rmm/mr/bad_input_tests.cpp"]
BUFFER_TESTS = ["CONTAINER_TEST rmm/device_buffer_tests.cpp", "CONTAINER_SIM_TEST rmm/device_buffer_sim_tests.cpp"]
CONFIGURATION_TESTS = ["CONFIGURATION_TEST rmm/mr/resource_configuration_tests.cpp", "CONFIGURATION_TEST rmm/mr/detail/configuration_syntax_tests.cpp"]
READER_TESTS = ["BENCHMARKS_TEST benchmarks/trace_tool_tests.cpp", "BENCHMARKS_TEST benchmarks/torch_snapshot_tests.cpp",
                "BENCHMARKS_TEST benchmarks/trace_events_tests.cpp", "BENCHMARKS_TEST benchmarks/log_parser_tests.cpp",
                "BENCHMARKS_TEST benchmarks/log_replay_tests.cpp"]
C_TESTS = ["C_INTERFACE_TEST interface_test.c", "C_INTERFACE_SIM_TEST resource_sim_tests.cpp", "C_INTERFACE_SIM_TEST fault_sim_tests.cpp",
           "C_INTERFACE_SIM_TEST process_sim_tests.cpp"]

TORCH_TESTS = ["TORCH_MEMORY_SIM_TEST python/torch_memory_sim_tests.cpp", "PYTEST test_torch.py", "PYTEST test_sleep_torch.py"]
BUFFER_TESTS_OF_PYTHON = ["PYTEST test_dlpack.py", "PYTEST test_shared_memory.py", "PYTEST test_device_buffer.py"]

# Files, their own tests (programs with one source each), and the tests of their users. The first failing test ends a mutant.
GROUPS: dict[str, list[tuple[list[str], list[str], list[str]]]] = {
    "heap": [
        (["detail/heap/block_map.hpp"], ["DETAIL_TEST rmm/detail/heap/block_map_tests.cpp"], HEAP_USERS),
        (["detail/heap/deallocation_reserve.hpp"], ["DETAIL_TEST rmm/detail/heap/deallocation_reserve_tests.cpp"], HEAP_USERS),
        (["detail/heap/range_set.hpp"],
         ["DETAIL_TEST rmm/detail/heap/range_set_tests.cpp", "DETAIL_TEST rmm/detail/heap/range_set_random_tests.cpp"], HEAP_USERS),
        (["detail/heap/run_filter.hpp"], ["DETAIL_TEST rmm/detail/heap/run_filter_tests.cpp"], HEAP_USERS),
        (["detail/heap/placement.hpp"], ["DETAIL_TEST rmm/detail/heap/placement_tests.cpp"], HEAP_USERS),
    ],
    "stream": [
        (["detail/stream/stream_cache.hpp"], ["DETAIL_CUDA_TEST rmm/detail/stream/stream_cache_tests.cpp"], HEAP_USERS),
        (["detail/stream/free_store.hpp"], ["DETAIL_CUDA_TEST rmm/detail/stream/free_store_tests.cpp"], HEAP_USERS),
        (["detail/stream/shared_free_lists.hpp"], HEAP_USERS[:1], HEAP_USERS),
        (["detail/stream/thread_caches.hpp"], ["DETAIL_CUDA_TEST rmm/detail/stream/thread_caches_tests.cpp"], HEAP_USERS),
        (["detail/stream/piece_list.hpp", "detail/stream/free_sets.hpp"], ["DETAIL_CUDA_TEST rmm/detail/stream/piece_list_tests.cpp"], HEAP_USERS),
        (["detail/stream/slow_path.hpp"], ["DETAIL_CUDA_TEST rmm/detail/stream/slow_path_tests.cpp"], HEAP_USERS),
        (["detail/base/thread_slots.hpp"], ["DETAIL_TEST rmm/detail/base/thread_slots_tests.cpp"], HEAP_USERS),
        (["detail/stream/stream_ordered_heap.hpp", "detail/stream/memory_search.hpp", "detail/stream/cache_set.hpp",
          "detail/stream/device_waits.hpp"],
         HEAP_USERS[:1], HEAP_USERS),
    ],
    "captures": [
        (["detail/stream/graph_arena.hpp", "detail/stream/capture_memory.hpp"],
         ["DETAIL_CUDA_TEST rmm/detail/stream/capture_memory_tests.cpp", *CAPTURE_TESTS],
         ["SUBALLOCATOR_ORDERING_SIM_TEST rmm/mr/detail/suballocator_ordering_sim_tests.cpp", *ELASTIC_TESTS, *CACHED_TESTS, *RESOURCE_USERS]),
    ],
    "elastic": [
        (["mr/elastic_pool_memory_resource.hpp", "mr/detail/parts_by_tag.hpp", "mr/detail/chunk_source.hpp", "detail/cuda/chunked_space.hpp"],
         ELASTIC_TESTS, POOL_USERS),
        (["mr/detail/block_source.hpp"], ["POOL_MR_TEST rmm/mr/detail/block_source_tests.cpp"],
         ["POOL_MR_TEST rmm/mr/pool_memory_resource_tests.cpp", *CACHED_TESTS, *ELASTIC_TESTS, *POOL_USERS]),
        (["mr/cached_memory_resource.hpp"], CACHED_TESTS, POOL_USERS),
    ],
    "resources": [
        (["mr/detail/growing_pool.hpp", "mr/detail/suballocator.hpp", "mr/detail/recovery_ladder.hpp", "mr/pool_memory_resource.hpp"],
         ["POOL_MR_TEST rmm/mr/pool_memory_resource_tests.cpp"],
         ["RECOVERY_SIM_TEST rmm/recovery_sim_tests.cpp", *RESOURCE_USERS, "CAPTURE_SIM_TEST rmm/capture_scope_sim_tests.cpp",
          "ELASTIC_POOL_SIM_TEST rmm/mr/elastic_pool_memory_resource_sim_tests.cpp"]),
        (["mr/arena_memory_resource.hpp"], ["ARENA_MR_TEST rmm/mr/arena_memory_resource_tests.cpp"], RESOURCE_USERS),
        (["mr/fixed_size_memory_resource.hpp"],
         ["POOL_MR_TEST rmm/mr/fixed_size_memory_resource_tests.cpp", "POOL_MR_TEST rmm/mr/binning_memory_resource_tests.cpp"], RESOURCE_USERS),
        (["mr/binning_memory_resource.hpp"], ["POOL_MR_TEST rmm/mr/binning_memory_resource_tests.cpp"], RESOURCE_USERS),
    ],
    "adaptors": [
        (["mr/limiting_resource_adaptor.hpp"], ["ADAPTOR_TEST rmm/mr/limiting_resource_adaptor_tests.cpp"], ADAPTOR_USERS),
        (["detail/base/byte_budget.hpp"],
         ["DETAIL_TEST rmm/detail/base/byte_budget_tests.cpp", "ADAPTOR_TEST rmm/mr/limiting_resource_adaptor_tests.cpp"], ADAPTOR_USERS),
        (["mr/statistics_resource_adaptor.hpp"], ["ADAPTOR_TEST rmm/mr/statistics_resource_adaptor_tests.cpp"], ADAPTOR_USERS),
        (["detail/base/usage_statistics.hpp"],
         ["DETAIL_TEST rmm/detail/base/usage_statistics_tests.cpp", "ADAPTOR_TEST rmm/mr/statistics_resource_adaptor_tests.cpp"], ADAPTOR_USERS),
        (["mr/tracking_resource_adaptor.hpp"], ["ADAPTOR_TEST rmm/mr/tracking_resource_adaptor_tests.cpp"], ADAPTOR_USERS),
        (["mr/aligned_resource_adaptor.hpp"], ["ADAPTOR_TEST rmm/mr/aligned_resource_adaptor_tests.cpp"], ADAPTOR_USERS),
        (["mr/guard_resource_adaptor.hpp", "mr/detail/allocation_guard.hpp"],
         ["ADAPTOR_TEST rmm/mr/guard_resource_adaptor_tests.cpp", "CONTAINER_SIM_TEST rmm/mr/guard_resource_adaptor_sim_tests.cpp"],
         ADAPTOR_USERS),
        (["mr/failure_callback_resource_adaptor.hpp"],
         ["ADAPTOR_TEST rmm/mr/failure_callback_resource_adaptor_tests.cpp"], ADAPTOR_USERS),
        (["mr/spill_resource_adaptor.hpp"], ["ADAPTOR_TEST rmm/mr/spill_resource_adaptor_tests.cpp"], ADAPTOR_USERS),
        (["mr/logging_resource_adaptor.hpp", "mr/detail/logging_adaptor.hpp", "mr/detail/allocation_log.hpp"],
         ["LOGGER_TEST rmm/mr/logging_resource_adaptor_tests.cpp"], ADAPTOR_USERS),
        (["mr/trace_resource_adaptor.hpp", "detail/trace/trace_writer.hpp"],
         ["TRACE_TEST rmm/mr/trace_resource_adaptor_tests.cpp"], [*ADAPTOR_USERS, "ENVIRONMENT_TEST rmm/mr/detail/environment_trace_sim_tests.cpp"]),
        (["mr/prefetch_resource_adaptor.hpp"],
         ["ADAPTOR_TEST rmm/mr/prefetch_resource_adaptor_tests.cpp", "CONTAINER_SIM_TEST rmm/mr/prefetch_resource_adaptor_sim_tests.cpp"],
         ADAPTOR_USERS),
        (["mr/scrub_resource_adaptor.hpp"], ["ADAPTOR_TEST rmm/mr/scrub_resource_adaptor_tests.cpp"], ADAPTOR_USERS),
        (["mr/thread_safe_resource_adaptor.hpp"], ["ADAPTOR_TEST rmm/mr/thread_safe_resource_adaptor_tests.cpp"], ADAPTOR_USERS),
    ],
    "thin": [
        (["mr/cuda_memory_resource.hpp", "mr/managed_memory_resource.hpp"],
         ["DEVICE_MR_REF_TEST rmm/mr/cuda_memory_resource_tests.cpp", "CONTAINER_SIM_TEST rmm/mr/cuda_async_memory_resource_sim_tests.cpp"],
         ["DEVICE_MR_REF_TEST rmm/mr/device_mr_ref_tests.cpp", *THIN_USERS]),
        (["mr/cuda_async_memory_resource.hpp", "mr/cuda_async_view_memory_resource.hpp"],
         ["CUDA_ASYNC_MR_TEST rmm/mr/cuda_async_memory_resource_tests.cpp",
          "CONTAINER_SIM_TEST rmm/mr/cuda_async_memory_resource_sim_tests.cpp"], THIN_USERS),
        (["mr/cuda_async_managed_memory_resource.hpp"],
         ["CUDA_ASYNC_MR_TEST rmm/mr/cuda_async_managed_memory_resource_tests.cpp",
          "CONTAINER_SIM_TEST rmm/mr/cuda_async_memory_resource_sim_tests.cpp"], THIN_USERS),
        (["mr/callback_memory_resource.hpp"], ["DEVICE_MR_REF_TEST rmm/mr/callback_memory_resource_tests.cpp"], THIN_USERS),
        (["mr/system_memory_resource.hpp", "mr/sam_headroom_memory_resource.hpp"],
         ["SYSTEM_MR_SIM_TEST rmm/mr/system_memory_resource_sim_tests.cpp", "SYSTEM_MR_SIM_TEST rmm/mr/system_memory_resource_tests.cpp",
          "HOST_MR_REF_TEST rmm/mr/system_memory_resource_tests.cpp"], THIN_USERS),
        (["mr/pinned_host_memory_resource.hpp"],
         ["HOST_MR_REF_TEST rmm/mr/pinned_host_memory_resource_tests.cpp",
          "CONTAINER_SIM_TEST rmm/mr/cuda_async_memory_resource_sim_tests.cpp"], THIN_USERS),
        (["mr/registered_host_memory_resource.hpp", "mr/pinned_pool_memory_resource.hpp"],
         ["HOST_MR_REF_TEST rmm/mr/registered_host_memory_resource_tests.cpp",
          "CONTAINER_SIM_TEST rmm/mr/registered_host_memory_resource_sim_tests.cpp",
          "CONTAINER_SIM_TEST rmm/mr/pinned_pool_memory_resource_sim_tests.cpp"], THIN_USERS),
    ],
    "registry": [
        (["mr/detail/registry.hpp", "mr/per_device_resource.hpp"],
         ["DEVICE_MR_REF_TEST rmm/mr/per_device_resource_tests.cpp", "DEVICE_MR_REF_TEST rmm/mr/device_mr_ref_tests.cpp"],
         ["BAD_INPUT_TEST rmm/mr/bad_input_tests.cpp", "CONTAINER_SIM_TEST rmm/device_buffer_sim_tests.cpp"]),
    ],
    "containers": [
        (["device_buffer.hpp"], BUFFER_TESTS, CONTAINER_USERS),
        (["device_uvector.hpp"],
         ["CONTAINER_TEST rmm/device_uvector_tests.cpp", "CONTAINER_SIM_TEST rmm/device_uvector_sim_tests.cpp"], CONTAINER_USERS),
        (["device_scalar.hpp"], ["CONTAINER_TEST rmm/device_scalar_tests.cpp"], CONTAINER_USERS),
    ],
    "configuration": [
        (["mr/resource_configuration.hpp", "mr/detail/configuration_syntax.hpp", "mr/detail/configuration_rules.hpp"],
         CONFIGURATION_TESTS, CONFIGURED_TESTS),
        (["mr/configured_resource.hpp"], CONFIGURED_TESTS, RESOURCE_USERS),
        (["memory_amount.hpp"], ["DETAIL_TEST rmm/memory_amount_tests.cpp"], CONFIGURATION_TESTS),
    ],
    "readers": [
        (["tools/recorded/pickle.cpp", "tools/recorded/recorded_file.cpp", "tools/recorded/torch_snapshot.cpp",
          "tools/recorded/trace_reader.hpp", "tools/recorded/trace_events.hpp", "tools/recorded/log_parser.hpp"], READER_TESTS, []),
        (["tools/recorded/log_replay.cpp"], READER_TESTS[-1:], READER_TESTS),
    ],
    "c": [
        (["c/src/resource.cpp", "c/src/failure.cpp", "c/src/graphs.cpp", "c/src/default_resource.cpp", "c/src/process.cpp",
          "c/src/live_blocks.hpp", "c/src/sized_struct.hpp"], C_TESTS, []),
    ],
    "python": [
        (["python/rmm/rmm/librmm/_torch_memory.hpp", "python/rmm/rmm/librmm/_torch_usage.hpp", "python/rmm/rmm/librmm/_torch_graphs.hpp",
          "python/rmm/rmm/librmm/_torch_reserved.hpp"], TORCH_TESTS, []),
        (["python/rmm/rmm/pylibrmm/_dlpack.hpp", "python/rmm/rmm/pylibrmm/_imported_memory.hpp", "python/rmm/rmm/pylibrmm/_buffer_location.hpp"],
         BUFFER_TESTS_OF_PYTHON, []),
    ],
}

# Sources to compile for a header that no test includes.
SOURCES = {
    **{f"python/rmm/rmm/librmm/_torch_{name}.hpp": "librmm/_torch_allocator.cpp" for name in ("memory", "usage", "graphs", "reserved")},
    **{f"python/rmm/rmm/pylibrmm/{name}.hpp": "rmm/pylibrmm/device_buffer.cpp" for name in ("_dlpack", "_imported_memory", "_buffer_location")},
    "c/src/live_blocks.hpp": "c/src/resource.cpp",
    "c/src/sized_struct.hpp": "c/src/resource.cpp",
    "tools/recorded/trace_reader.hpp": "tools/recorded/recorded_file.cpp",
    "tools/recorded/log_parser.hpp": "tools/recorded/recorded_file.cpp",
}
NEEDS_THE_REAL_LIBRARY = "-*.SharesNothingBetweenCopies"
COPIED = ["include", "tools/recorded", "c/src", "python/rmm/rmm/librmm", "python/rmm/rmm/pylibrmm"]  # the folders of the groups' files

OPERATORS = [
    (r" == ", " != "), (r" != ", " == "), (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "),
    (r" && ", " || "), (r" \|\| ", " && "), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " / "), (r" / ", " * "),
    (r" \+= ", " -= "), (r" -= ", " += "), (r"\+\+(?=\w)", "--"), (r"(?<=[( ])!(?=\w)", ""), (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"), (r"std::min\b", "std::max"), (r"std::max\b", "std::min"),
]
BOUND = re.compile(r"(?<=[ (\[{])(\d+)(?=[ ;)\],}])")
CONDITION = re.compile(r"\b(if|while) \((?!constexpr)(.+)\) (\{|return)")
STATEMENT = re.compile(r"^ +(?!return|using|throw|break|continue|case|default|auto|static|struct|class|public|private|friend|"
                       r"template|typedef|delete|goto|if|for|while|do\b|else|constexpr|inline|explicit|virtual)"
                       r"(?:(?:\+\+|--)\w[\w.>()-]*|[\w:.>\[\]()*-]+ (?:[-+|&]?=) [^;{}]+|[\w:.>\[\]-]+\([^;{}]*\));\s*$")
NOT_CODE = re.compile(r"^\s*(//|///|\*|#|static_assert|RMM_ASSERT|\[\[noreturn|@)|RMM_ASSERT|operator|template <|= default|= delete")
CHECK = re.compile(r"^(?P<indent> *)(?:\[\[nodiscard\]\] )?(?:inline )?bool (?:\S+::)?check_(?:invariants|locked)\(\) const")
LIBRARY_ASSERTION = re.compile(r"include/(rmm/\S+):(\d+): Assertion `(.*)' failed")


@dataclass(frozen=True)
class Mutant:
    file: str  # below include/rmm, or below the repository
    line: int  # from 1
    kind: str
    lines: tuple[str, ...]  # of the changed file

    @property
    def key(self) -> str:
        return hashlib.sha256((self.file + "\n".join(self.lines)).encode()).hexdigest()[:16]


def place_of(file: str) -> str:
    """Returns the path of a group's file below the repository."""
    return file if file.startswith(("tools/", "c/", "python/")) else f"include/rmm/{file}"


def source_of(file: str) -> str | None:
    """Returns the source that is compiled and linked if the file changes; None if the tests include the file."""
    return file if file.endswith(".cpp") else SOURCES.get(file)


def code_of(line: str) -> str:
    """Returns the line without its comment."""
    return line.split("//", 1)[0]


def lines_of_checks(lines: list[str]) -> set[int]:
    """Returns the indices of the lines in definitions of check_invariants()."""
    found: set[int] = set()
    end = ""
    for index, line in enumerate(lines):
        if not end and (begin := CHECK.match(line)) and not line.endswith(";"):
            end = begin["indent"] + "}"
        if end:
            found.add(index)
            end = "" if line == end else end
    return found


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """Yields all mutants of a file."""
    lines = text.split("\n")
    checks = lines_of_checks(lines)
    for index, line in enumerate(lines):
        if index in checks or NOT_CODE.search(line):
            continue
        code = code_of(line)

        def changed(kind: str, *replacement: str, at: int = index) -> Mutant:
            return Mutant(file, at + 1, kind, (*lines[:at], *replacement, *lines[at + len(replacement):]))

        for pattern, other in OPERATORS:
            for match in re.finditer(pattern, code):
                yield changed("operator", line[: match.start()] + other + line[match.end():])
        for match in BOUND.finditer(code):
            for by in (1, -1):
                number = int(match.group(1)) + by
                if number >= 0:
                    yield changed("bound", line[: match.start()] + str(number) + line[match.end():])
        if found := CONDITION.search(code):
            yield changed("condition", f"{line[:found.start(2)]}!({found.group(2)}){line[found.end(2):]}")
        if STATEMENT.match(code):
            yield changed("dropped", ";")
            following = lines[index + 1] if index + 1 < len(lines) else ""
            if STATEMENT.match(code_of(following)) and not NOT_CODE.search(following):
                yield changed("swapped", following, line)


def draw(groups: list[str], seed: int) -> Iterator[Mutant]:
    """Yields all mutants of the groups in the order of the seed. Draws group, file and kind in turn, so that none dominates."""
    chance = random.Random(seed)
    pools: dict[str, dict[tuple[str, str], list[Mutant]]] = {}
    for group in groups:
        pools[group] = {}
        for files, _, _ in GROUPS[group]:
            for file in files:
                for mutant in mutants_of(file, (REPOSITORY / place_of(file)).read_text()):
                    pools[group].setdefault((file, mutant.kind), []).append(mutant)
    while any(pools.values()):
        pool = pools[chance.choice([group for group in groups if pools[group]])]
        key = chance.choice(sorted(pool))
        yield pool[key].pop(chance.randrange(len(pool[key])))
        if not pool[key]:
            del pool[key]


def cover_of(file: str, own: bool) -> list[str]:
    for rows in GROUPS.values():
        for files, tests, users in rows:
            if file in files:
                return tests if own else [*tests, *(each for each in users if each not in tests)]
    raise KeyError(file)


@dataclass(frozen=True)
class Unchanged:
    """The state of a test source without a change."""

    object: str  # a hash of the object file
    seconds: float  # running time


@dataclass(frozen=True)
class Death:
    """How a test program ended that did not pass."""

    way: str  # assertion, expectation, crash or timeout; "" if no program ran
    by: str  # the assertion, the test, or another reason


def death_of(program: str, status: int, output: str, errors: str) -> Death | None:
    """Returns how a program ended, by its exit status, standard output and standard error; None if it passed."""
    if status == 0:
        return None
    if status == -signal.SIGXCPU:
        return Death("timeout", "does not end")
    failed = re.search(r"\[  FAILED  \] ([\w./]+)", output)
    if failed or re.search(r"^(\S+:\d+|unknown file): Failure$", output, re.MULTILINE):  # what failed first counts
        return Death("expectation", failed.group(1) if failed else f"{program} ends with {status}")
    if missed := re.search(r"^\S+:\d+: not true: (.*)$", errors, re.MULTILINE):  # a program in C
        return Death("expectation", f"{program}: {missed.group(1)}")
    asserted = LIBRARY_ASSERTION.findall(errors)
    if status == -signal.SIGABRT and asserted:
        file, line, condition = asserted[-1]
        return Death("assertion", f"{file}:{line} {condition}")
    return Death("crash", f"{program} ends with {status}")


class Builder:
    """Compiles and runs tests with a file replaced, the way the build folder does. Used by one thread."""

    def __init__(self, build: Path, work: Path, factor: float, own: bool, unchanged: dict[str, Unchanged]):
        self.build = build
        self.work = work
        self.factor = factor  # a test may take so many times longer than without a change
        self.compiled = ""  # the test source that test.o was compiled from, without a change
        self.own = own  # run only the tests of the file itself
        for folder in COPIED:  # so that edits during the run have no effect
            shutil.copytree(REPOSITORY / folder, work / folder)
        self.commands: dict[str, list[str]] = {}
        self.unchanged = unchanged  # shared by all builders
        self.mutated = work  # the copied file that is changed

    def read_commands(self, program: str) -> None:
        if program not in self.commands:
            listed = subprocess.run(["ninja", "-C", str(self.build), "-t", "commands", program], capture_output=True, text=True, check=True)
            self.commands[program] = listed.stdout.splitlines()

    def compile_test(self, cover: str) -> str:
        """Compiles the cover of a source, unless it is test.o. The errors. Later mutants get test.o, too."""
        program, source = cover.split()
        self.read_commands(program)
        if self.compiled != cover:
            self.compiled = ""
            if why := self.compile_as(self.command_of(program, f"tests/{source}", f"/{program}.dir/"), "test.o"):
                return why
            self.compiled = cover
        return ""

    def compile(self, cover: str, changed: str | None) -> str:
        """Compiles the changed source, if there is one, and the test source unless that was compiled. Returns the errors."""
        program, source = cover.split()
        self.read_commands(program)
        if changed is None:
            self.compiled = ""
            return self.compile_as(self.command_of(program, f"tests/{source}", f"/{program}.dir/"), "test.o")
        if why := self.compile_test(cover):
            return why
        return self.compile_changed([*self.command_of(program, f"/{changed}", " -c ")[:-1], changed], changed)

    def compile_changed(self, words: list[str], changed: str) -> str:
        """Compiles the changed source once for all its test sources. Returns the errors."""
        read = f"{changed} {self.mutated}\n".encode() + self.mutated.read_bytes()
        kept = self.work / f"kept-{hashlib.sha256(read).hexdigest()[:16]}.o"
        if not kept.exists():
            if why := self.compile_as(words, "changed.o"):
                return why
            shutil.copy(self.work / "changed.o", kept)
        shutil.copy(kept, self.work / "changed.o")
        return ""

    def command_of(self, program: str, source: str, has: str) -> list[str]:
        command = next((each for each in self.commands[program] if each.endswith(source) and has in each), None)
        if command is None:
            raise SystemExit(f"{self.build} does not compile {source} by itself: configure it with -DRMM_UNITE_TESTS=OFF")
        return shlex.split(command)

    def compile_as(self, words: list[str], name: str) -> str:
        """Runs a command of the build with the copied files and another output. Returns the errors."""
        if Path(words[0]).name == "ccache":  # no mutant is compiled twice
            del words[0]
        words[words.index("-o") + 1] = str(self.work / name)
        for option in ("-MT", "-MF"):
            del words[words.index(option) : words.index(option) + 2]
        words.remove("-MD")
        words = [word for word in words if word != f"-I{REPOSITORY}/include"]  # else #include_next in a copied header would find the real one
        words = ["-Ipython/rmm/rmm" if word == f"-I{REPOSITORY}/python/rmm/rmm" else word for word in words]
        words.append("-w")  # the other options have to match the precompiled header
        words[1:1] = ["-Iinclude", "-I."]  # relative, so that all builders get equal objects: these contain __FILE__
        done = subprocess.run(words, cwd=self.work, capture_output=True, text=True)
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        return "" if done.returncode == 0 else (errors or done.stderr.splitlines() or ["unknown"])[0]

    def link(self, program: str, changed: str | None) -> bool:
        """Links the program with one of its tests, and with the changed source in place of the real one. Returns whether that worked."""
        link = [word for word in shlex.split(self.commands[program][-1]) if word not in (":", "&&")]
        own = [word for word in link if f"/{program}.dir/" in word]
        link = [word for word in link if word not in own]
        link[link.index("-o") + 1] = str(self.work / program)
        parts = [str(self.work / "test.o")]
        # What the program has besides tests, if it is built.
        others = [word for word in own if not word.endswith(("_tests.cpp.o", "_test.c.o")) and (self.build / word).exists()]
        if changed is None:
            parts += others
        else:
            is_c = changed.startswith("c/")
            # The linker takes the first of the copies of an inline function.
            parts = parts if is_c else [str(self.work / "changed.o"), *parts]
            parts += [word for word in others if not word.endswith(f"{Path(changed).name}.o")]
            if is_c and not self.link_library(program, changed):
                return False
        link[1:1] = parts
        return subprocess.run(link, cwd=self.build, capture_output=True, text=True).returncode == 0

    def link_library(self, program: str, changed: str) -> bool:
        """Links librmm_c.so with the changed source."""
        command = next(each for each in self.commands[program] if "-soname,librmm_c.so" in each)
        words = [word for word in shlex.split(command) if word not in (":", "&&")]
        words[words.index("-o") + 1] = str(self.work / "librmm_c.so.1")
        words = [str(self.work / "changed.o") if word.endswith(f"/rmm_c.dir/{changed.removeprefix('c/')}.o") else word for word in words]
        return subprocess.run(words, cwd=self.build, capture_output=True, text=True).returncode == 0

    def run(self, cover: str, limit: float, changed: str | None) -> Death | None:
        """Runs a program. Returns how it failed, or None if it passed."""
        program, _ = cover.split()
        if not self.link(program, changed):
            return Death("", "does not link")
        try:
            with tempfile.TemporaryDirectory(dir=self.work) as folder:
                libraries = {"LD_LIBRARY_PATH": f"{self.work}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
                chosen = [f"--gtest_filter={NEEDS_THE_REAL_LIBRARY}"] if program == "C_INTERFACE_SIM_TEST" else []
                done = subprocess.run([str(self.work / program), "--gtest_fail_fast", "--gtest_brief=1", *chosen], cwd=folder, env={**os.environ, **libraries},
                                      capture_output=True, text=True, errors="replace", timeout=60 + limit,
                                      preexec_fn=functools.partial(set_limits, int(20 + limit)))
        except subprocess.TimeoutExpired:
            return Death("timeout", "does not end")
        return death_of(program, done.returncode, done.stdout, done.stderr)

    def object_hash(self, changed: str | None) -> str:
        objects = [self.work / name for name in ("test.o", *(["changed.o"] if changed is not None else []))]
        return hashlib.sha256(b"".join(each.read_bytes() for each in objects if each.exists())).hexdigest()

    def measure(self, cover: str, changed: str | None) -> Unchanged:
        """Returns the state of a test source without a change. Measures it first if it is unknown."""
        key = f"{cover} {changed}"
        if key not in self.unchanged:
            why = self.compile(cover, changed)
            begin = time.monotonic()
            if not why and (death := self.run(cover, 600, changed)):
                why = death.by
            if why:
                raise SystemExit(f"{cover} fails without a change: {why}")
            self.unchanged[key] = Unchanged(self.object_hash(changed), time.monotonic() - begin)
        return self.unchanged[key]

    def try_mutant(self, mutant: Mutant) -> tuple[str, Death]:
        """Returns killed, survived or "not compiled", and the proof."""
        return self.try_covers(mutant, source_of(mutant.file), cover_of(mutant.file, self.own))

    def try_covers(self, mutant: Mutant, changed: str | None, covers: list[str]) -> tuple[str, Death]:
        """Tries a mutant with these test sources only."""
        path = self.mutated = self.work / place_of(mutant.file)
        real = path.read_text()
        for cover in covers:
            unchanged = self.measure(cover, changed)
            is_in_tests = changed is not None and mutant.file.startswith("tools/") and mutant.file.endswith(".hpp")
            if changed is not None and not is_in_tests:
                self.compile_test(cover)
            path.write_text("\n".join(mutant.lines))
            try:
                if is_in_tests:  # a source has only those inline functions that it calls
                    self.compiled = ""
                if why := self.compile(cover, changed):
                    return "not compiled", Death("", why)
                if self.object_hash(changed) != unchanged.object and (death := self.run(cover, self.factor * unchanged.seconds, changed)):
                    return "killed", death
            finally:
                path.write_text(real)
                if is_in_tests:
                    self.compiled = ""
        return "survived", Death("", "")


class PythonBuilder(Builder):
    """Compiles a part of the Python package with a header replaced, and runs tests of the package. `build` is the folder in which scikit-build made
    the package, on the simulator, and `site` the unpacked wheel. Tests in C++ that include the header run first, in the way of `of_tests`."""

    library = Path("librmm/lib/librmm_python.abi3.so")

    def __init__(self, of_tests: Builder, build: Path, site: Path, work: Path, factor: float, own: bool, unchanged: dict[str, Unchanged]):
        super().__init__(build, work, factor, own, unchanged)
        self.of_tests = of_tests
        shutil.copytree(site, work / "site")
        listed = subprocess.run(["ninja", "-C", str(build), "-t", "commands", str(self.library)], capture_output=True, text=True, check=True)
        self.commands["package"] = listed.stdout.splitlines()

    def compile(self, cover: str, changed: str | None) -> str:
        words = self.command_of("package", f"/{changed}", " -c ")
        assert changed is not None
        return self.compile_changed([*words, "-O1"], changed)

    def compile_test(self, cover: str) -> str:
        return ""  # Python

    def try_mutant(self, mutant: Mutant) -> tuple[str, Death]:
        covers = cover_of(mutant.file, self.own)
        tried = self.of_tests.try_covers(mutant, None, [each for each in covers if not each.startswith("PYTEST ")])
        if tried[0] != "survived":
            return tried
        return self.try_covers(mutant, source_of(mutant.file), [each for each in covers if each.startswith("PYTEST ")])

    def run(self, cover: str, limit: float, changed: str | None) -> Death | None:
        assert changed is not None
        words = [word for word in shlex.split(self.commands["package"][-1]) if word not in (":", "&&")]
        words[words.index("-o") + 1] = str(self.work / "site" / self.library)
        own = next(word for word in words if word.endswith(f"/{Path(changed).parent}/{Path(changed).name}.o"))
        words[words.index(own)] = str(self.work / "changed.o")
        if subprocess.run(words, cwd=self.build, capture_output=True, text=True).returncode != 0:
            return Death("", "does not link")
        tests = REPOSITORY / "python/rmm/tests" / cover.split()[1]
        command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(tests)]
        try:
            done = subprocess.run(command, cwd=self.work, env={**os.environ, "PYTHONPATH": str(self.work / "site")}, capture_output=True,
                                  text=True, errors="replace", timeout=60 + limit)
        except subprocess.TimeoutExpired:
            return Death("timeout", "does not end")
        if done.returncode == 0:
            return None
        failed = re.search(r"^(?:FAILED|ERROR) \S+::(\S+)", done.stdout, re.MULTILINE)
        return Death("expectation" if failed else "crash", failed.group(1) if failed else f"{cover} ends with {done.returncode}")


def set_limits(seconds: int) -> None:
    """Limits a mutant's processor time and memory, so that only the mutant fails."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))


def difference(mutant: Mutant) -> str:
    before = (REPOSITORY / place_of(mutant.file)).read_text().split("\n")
    return "\n".join(line for line in difflib.unified_diff(before, list(mutant.lines), lineterm="", n=0)
                     if not line.startswith(("---", "+++", "@@")))


def read_results(file: Path) -> list[dict[str, str]]:
    """Returns the last result of each mutant."""
    lines = file.read_text().splitlines() if file.exists() else []
    return list({each["key"]: each for each in map(json.loads, lines)}.values())


def report(results: list[dict[str, str]]) -> None:
    groups = {file: group for group, rows in GROUPS.items() for files, _, _ in rows for file in files}
    print(f"{'group':<12}{'mutants':>8}{'killed':>8}{'survived':>10}{'':8}{'by assertion':>14}{'expectation':>13}{'crash':>7}{'timeout':>9}")
    for group in [*GROUPS, "all"]:
        counted = [each for each in results if each["result"] != "not compiled" and group in ("all", groups.get(each["file"]))]
        killed = [each for each in counted if each["result"] == "killed"]
        share = f"{100 * len(killed) / len(counted):.0f} %" if counted else ""
        ways = {way: sum(each.get("way") == way for each in killed) for way in ("assertion", "expectation", "crash", "timeout")}
        print(f"{group:<12}{len(counted):>8}{len(killed):>8}{len(counted) - len(killed):>10}{share:>8}"
              f"{ways['assertion']:>14}{ways['expectation']:>13}{ways['crash']:>7}{ways['timeout']:>9}")
    print(f"{sum(each['result'] == 'not compiled' for each in results)} did not compile")
    for each in results:
        if each["result"] == "survived":
            print(f"\nsurvived: {each['file']}:{each['line']} ({each['kind']})\n{each['change']}")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--build", type=Path, help="folder in which the test programs are built")
    arguments.add_argument("--python-build", type=Path, help="for the group python: the folder in which the package was built, on the simulator")
    arguments.add_argument("--python-site", type=Path, help="for the group python: the unpacked wheel")
    arguments.add_argument("--results", type=Path, default=Path("mutants.jsonl"))
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=200, help="mutants that compile")
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--own", action="store_true", help="run only the tests of the file itself, as a first sieve")
    arguments.add_argument("--again", action="store_true", help="run the survivors once more")
    arguments.add_argument("--minutes", type=float, default=float("inf"), help="start no mutant after so many minutes")
    arguments.add_argument("--group", action="append", choices=list(GROUPS))
    arguments.add_argument("--timeout-factor", type=float, default=5)
    arguments.add_argument("--report", action="store_true", help="only print the results in the file")
    arguments.add_argument("--show", action="store_true", help="only print the mutants")
    given = arguments.parse_args()

    if given.group and "python" in given.group and given.group != ["python"]:
        arguments.error("the group python is run alone")
    mutants = draw(given.group or [group for group in GROUPS if group != "python"], given.seed)
    if given.show:
        for _, mutant in zip(range(given.count), mutants):
            print(f"{mutant.file}:{mutant.line} ({mutant.kind})\n{difference(mutant)}")
        return 0
    results = read_results(given.results)
    if given.report:
        report(results)
        return 0
    of_python = given.group == ["python"]
    if of_python and not (given.python_build and given.python_site):
        arguments.error("--python-build or --python-site is missing")
    if given.build is None:
        arguments.error("--build is missing")
    known = {each["key"]: each for each in results if not (given.again and each["result"] == "survived")}
    end = time.monotonic() + 60 * given.minutes
    lock = threading.Lock()
    begun: list[Mutant] = []
    unchanged: dict[str, Unchanged] = {}

    def next_mutant() -> Mutant | None:
        """Returns the next mutant without a result, while fewer than --count have compiled or may still compile."""
        while time.monotonic() < end:
            if sum(known.get(each.key, {}).get("result") != "not compiled" for each in begun) >= given.count:
                return None
            mutant = next(mutants, None)
            if mutant is None:
                return None
            begun.append(mutant)
            if mutant.key not in known:
                return mutant
        return None

    def work_on(folder: Path) -> None:
        builder = Builder(given.build.resolve(), folder, given.timeout_factor, given.own, unchanged)
        if of_python:
            builder = PythonBuilder(builder, given.python_build.resolve(), given.python_site.resolve(), folder / "package",
                                    given.timeout_factor, given.own, unchanged)
        while True:
            with lock:
                mutant = next_mutant()
            if mutant is None:
                return
            result, death = builder.try_mutant(mutant)
            with lock:
                known[mutant.key] = {"key": mutant.key, "file": mutant.file, "line": str(mutant.line), "kind": mutant.kind,
                                     "result": result, "way": death.way, "by": death.by, "change": difference(mutant)}
                with given.results.open("a") as out:
                    out.write(json.dumps(known[mutant.key]) + "\n")
                print(f"{time.strftime('%H:%M:%S')} {result:<13}{mutant.file}:{mutant.line} ({mutant.kind}) {death.way} {death.by}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as work, ThreadPoolExecutor(given.jobs) as pool:
        for worker in [pool.submit(work_on, Path(work) / str(number)) for number in range(given.jobs)]:
            worker.result()
    report(read_results(given.results))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("GTEST_COLOR", "no")
    sys.exit(main())
