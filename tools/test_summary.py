#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up the results of test suites, test case by test case.

    test_summary.py 'NAME|STATUS|SECONDS|FOLDER'...

FOLDER contains ctest.junit, written by CTest, and an XML file of GoogleTest for each program with test cases; or pytest.junit,
written by pytest. STATUS is how the suite ended: passed, failed, or why it has no results. Prints a table, each failed test, and at last
`N passed, N failed, N skipped`; the exit status is 1 if a test failed or a suite did not pass.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures

    def note_failure(self, name: str) -> None:
        self.failed += 1
        self.failures.append(name)


def count_cases(program: str, report: Path) -> Counts:
    """Returns the test cases that a program of GoogleTest ran."""
    counts = Counts()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None:
            counts.note_failure(f"{program}: {case.get('classname')}.{case.get('name')}")
        elif case.get("status") != "run" or case.find("skipped") is not None:
            counts.skipped += 1
        else:
            counts.passed += 1
    return counts


def count_pytest_cases(report: Path) -> Counts:
    """Returns the tests of a run of pytest. A test that passes, but whose fixtures fail afterwards, counts as failed."""
    results: dict[str, str] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            results[name] = "failed"
        elif case.find("skipped") is not None:
            results.setdefault(name, "skipped")
        else:
            results.setdefault(name, "passed")
    outcomes = list(results.values())
    failures = [name for name, result in results.items() if result == "failed"]
    return Counts(outcomes.count("passed"), len(failures), outcomes.count("skipped"), failures)


def count_suite(folder: Path) -> Counts:
    """Returns the test cases of a suite. A test of CTest that does not use GoogleTest counts as one."""
    if (folder / "pytest.junit").is_file():
        return count_pytest_cases(folder / "pytest.junit")
    counts = Counts()
    for test in ElementTree.parse(folder / "ctest.junit").getroot().iter("testcase"):
        name = test.get("name", "")
        status = test.get("status")
        # A program that ran twice, or called itself, also has numbered reports.
        reports = [file for file in sorted(folder.glob("*.xml")) if re.fullmatch(re.escape(name) + r"(_\d+)?", file.stem)]
        program = Counts()
        for report in reports:
            program.add(count_cases(name, report))
        if not reports and status == "run":
            program.passed = 1
        elif status == "fail" and program.failed == 0:
            program.note_failure(name)  # it crashed, timed out, or failed after its last test case
        elif not reports and status != "fail":
            program.skipped = 1
        counts.add(program)
    return counts


def main(suites: list[str]) -> int:
    total = Counts()
    good = bool(suites)
    print(f"\n{'suite':<22} {'passed':>8} {'failed':>8} {'skipped':>8} {'seconds':>8}")
    for suite in suites:
        name, status, seconds, folder = suite.split("|", 3)
        counts = Counts()
        if any((Path(folder) / report).is_file() for report in ("ctest.junit", "pytest.junit")):
            counts = count_suite(Path(folder))
        if status != "passed" and counts.failed == 0:
            counts.note_failure(status)
        good = good and counts.failed == 0
        print(f"{name:<22} {counts.passed:>8} {counts.failed:>8} {counts.skipped:>8} {seconds:>8}")
        for failure in counts.failures:
            print(f"  failed: {failure}")
        total.add(counts)
    print(f"\n{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
