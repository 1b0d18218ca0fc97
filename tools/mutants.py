#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the library on purpose, one small change at a time, and says how many of the changes the tests notice.

    mutants.py --build build/sim [--seed 1] [--count 200] [--group heap ...] [--minutes 60] [--results FILE]

A mutant is one file with one change: another operator, another bound, a statement dropped, two statements swapped, or a
condition negated. Which ones is drawn by the seed; none is picked by hand. For each, the sources of a few test programs are
compiled with the changed file in place of the real one, in a folder of its own, and run. It is killed if a test fails, crashes
or does not end; one that does not compile says nothing and is not counted.

--build names a build folder in which the programs of the groups have been built once. Results are added to a file, one a
line; a run with the same seed goes on where the last one stopped. --report prints what the file has; --show prints mutants.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

# Files, and which sources of which test programs cover them.
GROUPS: dict[str, list[tuple[list[str], str, list[str]]]] = {
    "heap": [
        (["detail/heap/range_set.hpp"], "DETAIL_TEST",
         ["detail/heap/range_set_tests.cpp", "detail/heap/range_set_random_tests.cpp"]),
        (["detail/heap/placement.hpp"], "DETAIL_TEST", ["detail/heap/placement_tests.cpp"]),
    ],
    "stream": [
        (["detail/stream/stream_cache.hpp", "detail/stream/free_store.hpp", "detail/stream/thread_caches.hpp"],
         "DETAIL_CUDA_TEST", ["detail/stream/stream_cache_tests.cpp", "detail/stream/free_store_tests.cpp",
                              "detail/stream/thread_caches_tests.cpp"]),
        (["detail/stream/stream_ordered_heap.hpp", "detail/stream/stream_ordered_heap.ipp", "detail/stream/growth.ipp"],
         "SUBALLOCATOR_SIM_TEST", ["sim/stream_ordered_heap_sim_tests.cpp", "sim/pool_ordering_sim_tests.cpp"]),
    ],
    "resources": [
        (["mr/detail/growing_pool.hpp", "mr/pool_memory_resource.hpp"], "POOL_MR_TEST",
         ["mr/pool_memory_resource_tests.cpp"]),
        (["mr/arena_memory_resource.hpp"], "ARENA_MR_TEST", ["mr/arena_memory_resource_tests.cpp"]),
        (["mr/fixed_size_memory_resource.hpp", "mr/binning_memory_resource.hpp"], "BINNING_MR_TEST",
         ["mr/binning_memory_resource_tests.cpp", "mr/fixed_size_memory_resource_tests.cpp"]),
    ],
    "adaptors": [
        (["mr/limiting_resource_adaptor.hpp", "detail/base/byte_budget.hpp"], "LIMITING_TEST",
         ["mr/limiting_resource_adaptor_tests.cpp"]),
        (["mr/statistics_resource_adaptor.hpp", "detail/base/usage_statistics.hpp"], "STATISTICS_TEST",
         ["mr/statistics_resource_adaptor_tests.cpp"]),
        (["mr/tracking_resource_adaptor.hpp"], "TRACKING_TEST", ["mr/tracking_resource_adaptor_tests.cpp"]),
        (["mr/aligned_resource_adaptor.hpp"], "ALIGNED_TEST", ["mr/aligned_resource_adaptor_tests.cpp"]),
        (["mr/guard_resource_adaptor.hpp", "mr/detail/allocation_guard.hpp"], "GUARD_TEST",
         ["mr/guard_resource_adaptor_tests.cpp"]),
        (["mr/failure_callback_resource_adaptor.hpp"], "FAILURE_CALLBACK_TEST",
         ["mr/failure_callback_resource_adaptor_tests.cpp"]),
    ],
    "registry": [
        (["mr/detail/registry.hpp", "mr/per_device_resource.hpp"], "DEVICE_MR_REF_TEST",
         ["mr/per_device_resource_tests.cpp", "mr/device_mr_ref_tests.cpp"]),
    ],
}

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


@dataclass(frozen=True)
class Mutant:
    file: str  # below include/rmm
    line: int  # from 1
    kind: str
    lines: tuple[str, ...]  # of the changed file

    @property
    def key(self) -> str:
        return hashlib.sha256((self.file + "\n".join(self.lines)).encode()).hexdigest()[:16]


def code_of(line: str) -> str:
    """The line without its comment."""
    return line.split("//", 1)[0]


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """All mutants of a file."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if NOT_CODE.search(line):
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
    """All mutants of the groups in the order of the seed: a group, a file of it and a kind by chance, so that none has most."""
    chance = random.Random(seed)
    pools: dict[str, dict[tuple[str, str], list[Mutant]]] = {}
    for group in groups:
        pools[group] = {}
        for files, _, _ in GROUPS[group]:
            for file in files:
                for mutant in mutants_of(file, (REPOSITORY / "include/rmm" / file).read_text()):
                    pools[group].setdefault((file, mutant.kind), []).append(mutant)
    while any(pools.values()):
        pool = pools[chance.choice([group for group in groups if pools[group]])]
        key = chance.choice(sorted(pool))
        yield pool[key].pop(chance.randrange(len(pool[key])))
        if not pool[key]:
            del pool[key]


def cover_of(file: str) -> tuple[str, list[str]]:
    for rows in GROUPS.values():
        for files, program, sources in rows:
            if file in files:
                return program, sources
    raise KeyError(file)


class Builder:
    """Compiles and runs tests with a file replaced, as the build folder would."""

    def __init__(self, build: Path, work: Path, factor: float):
        self.build = build
        self.work = work
        self.factor = factor  # how much longer than without a change a test may take
        self.headers = work / "include"  # a copy: who edits them meanwhile changes nothing
        shutil.copytree(REPOSITORY / "include", self.headers)
        self.seconds: dict[str, float] = {}
        self.commands: dict[str, list[str]] = {}

    def run(self, program: str, sources: list[str]) -> tuple[str, str]:
        """killed, survived or "not compiled", and what shows it."""
        if program not in self.commands:
            listed = subprocess.run(["ninja", "-C", str(self.build), "-t", "commands", program], capture_output=True, text=True, check=True)
            self.commands[program] = listed.stdout.splitlines()
        objects = []
        for source in sources:
            command = next(each for each in self.commands[program] if each.endswith(f"tests/rmm/{source}") and f"/{program}.dir/" in each)
            words = shlex.split(command)
            made = self.work / (source.replace("/", "_") + ".o")
            words[words.index("-o") + 1] = str(made)
            for option in ("-MT", "-MF"):
                del words[words.index(option) : words.index(option) + 2]
            words.remove("-MD")
            words.append("-w")  # the other options are those of the precompiled header
            words[1:1] = [f"-I{self.headers}"]
            done = subprocess.run(words, cwd=self.build, capture_output=True, text=True)
            if done.returncode != 0:
                return "not compiled", next((line for line in done.stderr.splitlines() if "error" in line), "")
            objects.append(str(made))
        link = shlex.split(self.commands[program][-1])
        link = [word for word in link if word not in (":", "&&") and f"/{program}.dir/" not in word]
        link[link.index("-o") + 1] = str(self.work / program)
        link[1:1] = objects
        done = subprocess.run(link, cwd=self.build, capture_output=True, text=True)
        if done.returncode != 0:
            return "not compiled", done.stderr[-200:]
        begin = time.monotonic()
        limit = 20 + self.factor * self.seconds.get(program, 60)
        try:
            with tempfile.TemporaryDirectory(dir=self.work) as folder:
                done = subprocess.run([str(self.work / program), "--gtest_fail_fast", "--gtest_brief=1"], cwd=folder,
                                      capture_output=True, text=True, errors="replace", timeout=limit)
        except subprocess.TimeoutExpired:
            return "killed", "does not end"
        self.seconds.setdefault(program, time.monotonic() - begin)
        if done.returncode == 0:
            return "survived", ""
        failed = re.search(r"\[  FAILED  \] ([\w./]+)", done.stdout)
        return "killed", failed.group(1) if failed else f"status {done.returncode}"

    def try_mutant(self, mutant: Mutant) -> tuple[str, str]:
        path = self.headers / "rmm" / mutant.file
        real = path.read_text()
        path.write_text("\n".join(mutant.lines))
        try:
            return self.run(*cover_of(mutant.file))
        finally:
            path.write_text(real)

    def check_unchanged(self, file: str) -> None:
        program, sources = cover_of(file)
        if program not in self.seconds:
            result, why = self.run(program, sources)
            if result != "survived":
                raise SystemExit(f"{program} fails without a change: {result} {why}")


def difference(mutant: Mutant) -> str:
    before = (REPOSITORY / "include/rmm" / mutant.file).read_text().split("\n")
    return "\n".join(line for line in difflib.unified_diff(before, list(mutant.lines), lineterm="", n=0)
                     if not line.startswith(("---", "+++", "@@")))


def report(results: list[dict[str, str]]) -> None:
    groups = {file: group for group, rows in GROUPS.items() for files, _, _ in rows for file in files}
    print(f"{'group':<12}{'mutants':>8}{'killed':>8}{'survived':>10}")
    for group in [*GROUPS, "all"]:
        counted = [each for each in results if each["result"] != "not compiled" and group in ("all", groups.get(each["file"]))]
        killed = sum(each["result"] == "killed" for each in counted)
        share = f"  {100 * killed / len(counted):.0f} %" if counted else ""
        print(f"{group:<12}{len(counted):>8}{killed:>8}{len(counted) - killed:>10}{share}")
    print(f"{sum(each['result'] == 'not compiled' for each in results)} did not compile")
    for each in results:
        if each["result"] == "survived":
            print(f"\nsurvived: {each['file']}:{each['line']} ({each['kind']})\n{each['change']}")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--build", type=Path, help="folder in which the test programs are built")
    arguments.add_argument("--results", type=Path, default=Path("mutants.jsonl"))
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=200, help="mutants that compile")
    arguments.add_argument("--minutes", type=float, default=float("inf"), help="begin none after so long")
    arguments.add_argument("--group", action="append", choices=list(GROUPS))
    arguments.add_argument("--timeout-factor", type=float, default=10)
    arguments.add_argument("--report", action="store_true", help="only print what the results have")
    arguments.add_argument("--show", action="store_true", help="only print the mutants")
    given = arguments.parse_args()

    mutants = draw(given.group or list(GROUPS), given.seed)
    if given.show:
        for _, mutant in zip(range(given.count), mutants):
            print(f"{mutant.file}:{mutant.line} ({mutant.kind})\n{difference(mutant)}")
        return 0
    results = [json.loads(line) for line in given.results.read_text().splitlines()] if given.results.exists() else []
    if given.report:
        report(results)
        return 0
    if given.build is None:
        arguments.error("--build is missing")
    known = {each["key"]: each["result"] for each in results}
    end = time.monotonic() + 60 * given.minutes
    tried = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as work:
        builder = Builder(given.build.resolve(), Path(work), given.timeout_factor)
        for mutant in mutants:
            if tried >= given.count or time.monotonic() > end:
                break
            if mutant.key not in known:
                builder.check_unchanged(mutant.file)
                result, why = builder.try_mutant(mutant)
                entry = {"key": mutant.key, "file": mutant.file, "line": str(mutant.line), "kind": mutant.kind,
                         "result": result, "by": why, "change": difference(mutant)}
                with given.results.open("a") as out:
                    out.write(json.dumps(entry) + "\n")
                results.append(entry)
                known[mutant.key] = result
                print(f"{result:<13}{mutant.file}:{mutant.line} ({mutant.kind}) {why}", flush=True)
            tried += known[mutant.key] != "not compiled"
    report(results)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("GTEST_COLOR", "no")
    sys.exit(main())
