# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/test_summary.py on reports in the form of CTest's and GoogleTest's."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import test_summary  # noqa: E402

RUN = '<testcase name="A_TEST" status="run"/>'
FAIL = '<testcase name="A_TEST" status="fail"><failure message=""/></testcase>'
NOT_RUN = '<testcase name="A_TEST" status="notrun"/>'
GOOD = '<testcase classname="A" name="good" status="run" result="completed"/>'
BAD = '<testcase classname="A" name="bad" status="run" result="completed"><failure message="no"/></testcase>'
SKIPPED = '<testcase classname="A" name="left_out" status="run" result="skipped"><skipped/></testcase>'
DISABLED = '<testcase classname="A" name="DISABLED_x" status="notrun" result="suppressed"/>'


class TestSummary(unittest.TestCase):
    def summarize(self, ctest: str, status: str = "passed", **reports: str) -> tuple[int, str]:
        """Returns exit status and output for one suite, given the test cases of CTest's report."""
        with tempfile.TemporaryDirectory() as folder:
            if ctest:
                Path(folder, "ctest.junit").write_text(f"<testsuite>{ctest}</testsuite>", encoding="utf-8")
            for name, cases in reports.items():
                Path(folder, f"{name}.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()) as output:
                result = test_summary.main([f"sim|{status}|12|{folder}"])
            return result, output.getvalue()

    def expect_last_line(self, expected: str, outcome: tuple[int, str]) -> None:
        self.assertEqual(expected, outcome[1].splitlines()[-1])
        self.assertEqual(0 if " 0 failed" in expected else 1, outcome[0])

    def test_cases_are_counted_one_by_one(self) -> None:
        self.expect_last_line("2 passed, 0 failed, 2 skipped", self.summarize(RUN, A_TEST=GOOD + GOOD + SKIPPED + DISABLED))

    def test_a_failed_case_is_counted_and_named(self) -> None:
        outcome = self.summarize(FAIL, "failed", A_TEST=GOOD + BAD)
        self.expect_last_line("1 passed, 1 failed, 0 skipped", outcome)
        self.assertIn("failed: A_TEST: A.bad", outcome[1])

    def test_a_program_without_cases_counts_as_one(self) -> None:
        self.expect_last_line("1 passed, 0 failed, 0 skipped", self.summarize(RUN))
        self.expect_last_line("0 passed, 1 failed, 0 skipped", self.summarize(FAIL, "failed"))
        self.expect_last_line("0 passed, 0 failed, 1 skipped", self.summarize(NOT_RUN))

    def test_a_program_that_fails_after_its_last_case_has_failed(self) -> None:
        self.expect_last_line("1 passed, 1 failed, 0 skipped", self.summarize(FAIL, "failed", A_TEST=GOOD))

    def summarize_pytest(self, cases: str, status: str) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "pytest.junit").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()) as output:
                result = test_summary.main([f"python|{status}|12|{folder}"])
            return result, output.getvalue()

    def test_tests_of_pytest_are_counted(self) -> None:
        good, skipped = '<testcase classname="t" name="a"/>', '<testcase classname="t" name="b"><skipped/></testcase>'
        self.expect_last_line("1 passed, 0 failed, 1 skipped", self.summarize_pytest(good + skipped, "passed"))
        failed = '<testcase classname="t" name="c"><failure/></testcase>'
        outcome = self.summarize_pytest(good + failed, "failed")
        self.expect_last_line("1 passed, 1 failed, 0 skipped", outcome)
        self.assertIn("failed: t.c", outcome[1])

    def test_a_test_of_pytest_whose_fixture_fails_afterwards_counts_once(self) -> None:
        cases = '<testcase classname="t" name="a"/><testcase classname="t" name="a"><error/></testcase>'
        self.expect_last_line("0 passed, 1 failed, 0 skipped", self.summarize_pytest(cases, "failed"))

    def test_a_run_of_pytest_that_ends_early_has_failed(self) -> None:
        self.expect_last_line("1 passed, 1 failed, 0 skipped", self.summarize_pytest('<testcase name="a"/>', "failed"))

    def test_a_suite_without_results_has_failed(self) -> None:
        outcome = self.summarize("", "not built")
        self.expect_last_line("0 passed, 1 failed, 0 skipped", outcome)
        self.assertIn("failed: not built", outcome[1])

    def test_reports_of_a_program_with_a_longer_name_are_not_its_own(self) -> None:
        self.expect_last_line("1 passed, 0 failed, 0 skipped", self.summarize(RUN, A_TEST=GOOD, A_TEST_B=GOOD))

    def test_no_suite_is_no_success(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(1, test_summary.main([]))


if __name__ == "__main__":
    unittest.main()
