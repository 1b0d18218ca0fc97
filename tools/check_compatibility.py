#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks tests/compatibility.md: every row has tests, every test exists, and every header of 24.08 is named.

    check_compatibility.py [ROOT]     default: this repository

A cell of tests has entries `FILE` or `FILE`: `TEST`, `TEST`, separated by semicolons. A file alone has to compile or to run as a whole.
A test is Suite.Name, or refuses_NAME for a file that must not compile. Names in `code` in the column `name` must also be on the page
for users.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import lru_cache
from pathlib import Path

DOCUMENT = "tests/compatibility.md"
PAGE = "docs/compatibility.md"
ENTRY = re.compile(r"`(?P<file>[^`]+)`(?:: (?P<tests>`[^`]+`(?:, `[^`]+`)*))?")
TEST = re.compile(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
REFUSAL = re.compile(r"^\s*rmm_add_refusal\((\w+)\.cpp", re.MULTILINE)


@lru_cache(maxsize=None)
def tests_of(file: Path) -> frozenset[str]:
    """Returns the names of the tests that `file` defines."""
    text = file.read_text(encoding="utf-8")
    if file.name == "CMakeLists.txt":
        return frozenset(f"refuses_{name}" for name in REFUSAL.findall(text))
    return frozenset(f"{suite}.{name}" for suite, name in TEST.findall(text))


def problems_of_tests(root: Path, cell: str) -> list[str]:
    """Returns what is wrong with a cell of tests."""
    if not cell:
        return ["no tests"]
    problems: list[str] = []
    for entry in cell.split("; "):
        match = ENTRY.fullmatch(entry)
        if not match:
            problems.append(f"not `FILE`: `TEST`, `TEST`: {entry}")
            continue
        file = root / match["file"]
        if not file.is_file():
            problems.append(f"{match['file']} does not exist")
            continue
        named = re.findall(r"`([^`]+)`", match["tests"] or "")
        problems += [f"{match['file']} has no test {test}" for test in named if test not in tests_of(file)]
    return problems


def older_headers(root: Path) -> list[str]:
    """Returns the names, without suffix, of the headers at the paths of 24.08."""
    mr = root / "include" / "rmm" / "mr"
    return sorted(file.stem for folder in (mr / "device", mr / "host") for file in folder.glob("*.hpp"))


def check(root: Path) -> list[str]:
    """Returns all problems of the document, as lines `file:line: what is wrong`."""
    problems: list[str] = []
    text = (root / DOCUMENT).read_text(encoding="utf-8")
    page = (root / PAGE).read_text(encoding="utf-8")
    columns: list[str] = []
    rows = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        if not columns:
            columns = cells
            continue
        if set(line) <= set("|-"):
            continue
        rows += 1
        where = f"{DOCUMENT}:{number}"
        if len(cells) != len(columns) or not all(cells):
            problems.append(f"{where}: not one text for each of: {', '.join(columns)}")
        elif columns[-1] == "tests":
            problems += [f"{where}: {problem}" for problem in problems_of_tests(root, cells[-1])]
            if columns[0] == "name":
                problems += [f"{where}: {PAGE} does not name {name}" for name in re.findall(r"`[^`]+`", cells[0]) if name not in page]
    if rows == 0:
        problems.append(f"{DOCUMENT}:1: no rows")
    problems += [f"{DOCUMENT}:1: no row names {name}" for name in older_headers(root) if not re.search(rf"\b{name}\b", text)]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=f"Checks {DOCUMENT}.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    problems = check(parser.parse_args().root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
