#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how many lines and branches of each folder the tests reached, and the files that have most lines left.

    coverage_table.py SUMMARY [--least PERCENT]

SUMMARY is what `gcovr --json-summary` wrote. The exit status is 1 if fewer than PERCENT (95) of the lines of include/rmm were
reached, or none of it was counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

FOLDERS = ["include/rmm", "include/rmm/detail", "include/rmm/mr", "include/rmm/mr/detail", "include/rapids_logger", "simulator"]
JUDGED = "include/rmm"


def share(covered: int, total: int) -> str:
    return f"{100 * covered / total:.1f} %" if total else "-"


def sums(files: list[dict], folder: str) -> tuple[int, int, int, int]:
    """Lines reached and all, branches taken and all, of a folder with all that is in it."""
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


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("summary", type=Path)
    arguments.add_argument("--least", type=float, default=95)
    given = arguments.parse_args()
    files = json.loads(given.summary.read_text(encoding="utf-8"))["files"]
    print(table(files))
    print(most_left(files, 10))
    lines, all_lines, _, _ = sums(files, JUDGED)
    if 100 * lines < given.least * all_lines or all_lines == 0:
        print(f"coverage: {share(lines, all_lines)} of the lines of {JUDGED} are fewer than {given.least:g} %")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
