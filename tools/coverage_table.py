#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Merges gcov's counts of all programs of a build folder, and prints how many lines and branches of each folder were reached.

    coverage_table.py FOLDER [--report FOLDER] [--jobs N] [--least PERCENT]

FOLDER contains the notes of the compiler (*.gcno) and the counts of the programs that ran (*.gcda). A line of the source counts
once, however many template instances, inlined copies and programs contain it, and is reached if any copy of it ran. The same holds
for branches: an object lists the branches of a line once for each inlined copy, one copy after the other. So the line itself has the
greatest common divisor of the numbers in all objects, and one branch is taken if any copy of it was. The two ways out of a call that may
throw do not count, and neither do branches of lines without code, at the ends of blocks.

The report is summary.json with the sums of each file, unreached.txt with a line for each run of unreached lines, and,
if gcovr is installed, its pages in index.html. The exit status is 1 if fewer than PERCENT (95) of the lines of include/rmm were
reached, or none of them was counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDERS = ["include/rmm", "include/rmm/detail", "include/rmm/mr", "include/rmm/mr/detail", "simulator"]
COUNTED = ("include/", "simulator/include/", "simulator/src/")
JUDGED = "include/rmm"
HARMLESS = (":cannot open data file, assuming not executed", ":no functions found")  # the object did not run, or is a precompiled header
NO_CODE = re.compile(r"[\s{}();,]*(//.*)?")


@dataclass
class File:
    lines: dict[int, int] = field(default_factory=dict)  # runs of each line that has code
    branches: dict[int, dict[int, list[int]]] = field(default_factory=dict)  # by line and number of branches there: times taken

    def add_line(self, number: int, count: int) -> None:
        self.lines[number] = self.lines.get(number, 0) + count

    def add_branches(self, number: int, taken: list[int]) -> None:
        sums = self.branches.setdefault(number, {}).setdefault(len(taken), [0] * len(taken))
        sums[:] = [so_far + more for so_far, more in zip(sums, taken, strict=True)]

    def count(self, counted: dict) -> None:
        """Adds gcov's counts of this file in one object."""
        for line in counted["lines"]:
            self.add_line(line["line_number"], max(line["count"], 0))  # counts of a killed process can be negative
            if taken := choices(line["branches"]):
                self.add_branches(line["line_number"], taken)

    def add(self, other: File) -> None:
        for number, count in other.lines.items():
            self.add_line(number, count)
        for number, instances in other.branches.items():
            for taken in instances.values():
                self.add_branches(number, taken)

    def all_branches(self, number: int) -> list[int]:
        """Returns how often each branch of the line was taken, merged over the copies that were inlined into one object."""
        instances = self.branches.get(number, {})
        once = math.gcd(*instances)
        return [sum(count for counts in instances.values() for count in counts[place::once]) for place in range(once)]

    def sums(self) -> dict[str, int]:
        branches = [count for number in self.branches for count in self.all_branches(number)]
        return {"line_covered": sum(count > 0 for count in self.lines.values()), "line_total": len(self.lines),
                "branch_covered": sum(count > 0 for count in branches), "branch_total": len(branches)}

    def unreached(self) -> list[tuple[int, int]]:
        """Returns first and last line of each unreached run. Lines without code do not end a run."""
        runs: list[tuple[int, int]] = []
        goes_on = False
        for number in sorted(self.lines):
            if self.lines[number]:
                goes_on = False
            elif goes_on:
                runs[-1] = (runs[-1][0], number)
            else:
                runs.append((number, number))
                goes_on = True
        return runs


def choices(branches: list[dict]) -> list[int]:
    """Returns how often each branch of the source was taken. A call that may throw has two, the throwing one second."""
    kept: list[int] = []
    for branch in branches:
        if branch["throw"]:
            kept.pop()
        else:
            kept.append(max(branch["count"], 0))
    return kept


def count_object(root: Path, gcov: str, notes: Path) -> dict[str, File]:
    """Returns gcov's counts of one object, by file name. Without counts, none of its functions ran."""
    done = subprocess.run([gcov, "--json-format", "--stdout", "--branch-probabilities", notes.name],
                          cwd=notes.parent, capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if not line.endswith(HARMLESS)]
    if done.returncode or complaints:
        raise SystemExit(f"coverage: {gcov} cannot read {notes}: {' '.join(complaints) or f'status {done.returncode}'}")
    files: dict[str, File] = {}
    for each in (json.loads(line) for line in done.stdout.splitlines()):
        for counted in each["files"]:
            path = os.path.join(each["current_working_directory"], counted["file"])
            name = os.path.relpath(os.path.realpath(path), root)
            if name.startswith(COUNTED):
                files.setdefault(name, File()).count(counted)
    return files


def lines_of(root: Path, name: str) -> list[str]:
    return (root / name).read_text(encoding="utf-8").splitlines() if (root / name).exists() else []


def merge(root: Path, gcov: str, folder: Path, jobs: int) -> dict[str, File]:
    """Returns the counts of all files of the repository, by their names in it."""
    files: dict[str, File] = {}
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(partial(count_object, root, gcov), sorted(folder.rglob("*.gcno"))):
            for name, file in found.items():
                files.setdefault(name, File()).add(file)
    for name, file in files.items():
        text = lines_of(root, name)
        for number in [each for each in file.branches if each <= len(text) and NO_CODE.fullmatch(text[each - 1])]:
            del file.branches[number]
    return dict(sorted(files.items()))


def share(covered: int, total: int) -> str:
    return f"{100 * covered / total:.1f} %" if total else "-"


def sums(files: list[dict], folder: str) -> tuple[int, int, int, int]:
    """Returns lines reached, all lines, branches taken and all branches, of a folder and its subfolders."""
    inside = [each for each in files if each["filename"].startswith(folder + "/")]
    keys = ("line_covered", "line_total", "branch_covered", "branch_total")
    lines, all_lines, branches, all_branches = (sum(each[key] for each in inside) for key in keys)
    return lines, all_lines, branches, all_branches


def table(files: list[dict]) -> str:
    rows = [f"{'folder, with all in it':<28}{'lines':>16}{'':>9}{'branches':>16}"]
    for folder in FOLDERS:
        lines, all_lines, branches, all_branches = sums(files, folder)
        rows.append(f"{folder:<28}{f'{lines} of {all_lines}':>16}{share(lines, all_lines):>9}"
                    f"{f'{branches} of {all_branches}':>16}{share(branches, all_branches):>9}")
    return "\n".join(rows)


def most_left(files: list[dict], count: int) -> str:
    left = sorted(files, key=lambda each: (each["line_covered"] - each["line_total"], each["filename"]))
    return "\n".join(f"{each['line_total'] - each['line_covered']:>6} lines of {each['filename']} were not reached"
                     for each in left[:count] if each["line_covered"] < each["line_total"])


def listing(root: Path, files: dict[str, File]) -> str:
    """Returns the unreached runs, each with the text of its first line."""
    rows = []
    for name, file in files.items():
        text = lines_of(root, name)
        for first, last in file.unreached():
            where = f"{name}:{first}" + (f"-{last}" if last > first else "")
            rows.append(f"{where}  {text[first - 1].strip() if first <= len(text) else ''}".rstrip() + "\n")
    return "".join(rows)


def write_pages(root: Path, files: dict[str, File], page: Path) -> str:
    """Makes gcovr render the merged counts. Returns where the pages are, or why there are none. Each release of gcovr accepts only its own
    version of the format, so it is asked for the number of that version; the parts that are used here are the same in all."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            empty = subprocess.run(["gcovr", "--json", "--root", "."], cwd=folder, capture_output=True, text=True, check=True)
            version = json.loads(empty.stdout)["gcovr/format_version"]
            merged = [{"file": name, "functions": [], "lines": [
                {"line_number": number, "count": count, "gcovr/noncode": False, "gcovr/excluded": False,
                 "branches": [{"count": taken, "fallthrough": False, "throw": False} for taken in file.all_branches(number)]}
                for number, count in sorted(file.lines.items())]} for name, file in files.items()]
            merged_file = Path(folder) / "merged.json"
            merged_file.write_text(json.dumps({"gcovr/format_version": version, "files": merged}), encoding="utf-8")
            subprocess.run(["gcovr", "--root", str(root), "--add-tracefile", str(merged_file), "--html-details", str(page)],
                           capture_output=True, text=True, check=True)
        except (OSError, KeyError, ValueError, subprocess.CalledProcessError) as error:
            return f"no pages, because gcovr is not installed or cannot read the merged counts: {error}"
    return str(page)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--report", type=Path, help="folder to write the report to (FOLDER/report)")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments.add_argument("--least", type=float, default=95)
    arguments.add_argument("--gcov", default="gcov", help="gcov of the compiler that made the programs")
    arguments.add_argument("--root", type=Path, default=REPOSITORY, help="root folder of the sources")
    given = arguments.parse_args()
    root = given.root.resolve()
    report = (given.report or given.folder / "report").resolve()
    report.mkdir(parents=True, exist_ok=True)
    merged = merge(root, given.gcov, given.folder.resolve(), given.jobs)
    files = [{"filename": name, **file.sums()} for name, file in merged.items()]
    (report / "summary.json").write_text(json.dumps({"files": files}, indent=1) + "\n", encoding="utf-8")
    (report / "unreached.txt").write_text(listing(root, merged), encoding="utf-8")
    print(table(files))
    print(most_left(files, 10))
    print(f"{report / 'unreached.txt'}\n{write_pages(root, merged, report / 'index.html')}")
    lines, all_lines, _, _ = sums(files, JUDGED)
    if 100 * lines < given.least * all_lines or all_lines == 0:
        print(f"coverage: {share(lines, all_lines)} of the lines of {JUDGED} are fewer than {given.least:g} %")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
