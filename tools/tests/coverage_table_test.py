# SPDX-License-Identifier: Apache-2.0
"""Tests of coverage_table.py: what belongs to a folder, and what is too little."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parent.parent / "coverage_table.py"


def counted(filename: str, lines: int, all_lines: int, branches: int = 0, all_branches: int = 0) -> dict[str, str | int]:
    return {"filename": filename, "line_covered": lines, "line_total": all_lines, "branch_covered": branches, "branch_total": all_branches}


class CoverageTableTest(unittest.TestCase):
    def run_tool(self, *files: dict[str, str | int], least: str = "95") -> tuple[int, list[str]]:
        """Exit status and lines."""
        with tempfile.TemporaryDirectory() as folder:
            summary = Path(folder) / "summary.json"
            summary.write_text(json.dumps({"files": files}), encoding="utf-8")
            done = subprocess.run([sys.executable, "-B", str(TOOL), str(summary), "--least", least], capture_output=True, text=True, check=False)
        self.assertEqual("", done.stderr)
        return done.returncode, [" ".join(line.split()) for line in done.stdout.splitlines()]

    def test_a_folder_has_all_that_is_in_it_and_nothing_else(self) -> None:
        _, lines = self.run_tool(
            counted("include/rmm/a.hpp", 10, 10, 1, 2), counted("include/rmm/mr/b.hpp", 20, 20), counted("include/rmm/mr/detail/c.hpp", 29, 30, 3, 4),
            counted("include/rmm_other/d.hpp", 0, 1000), counted("simulator/src/e.cpp", 1, 4))
        self.assertIn("include/rmm 59 of 60 98.3 % 4 of 6 66.7 %", lines)
        self.assertIn("include/rmm/mr 49 of 50 98.0 % 3 of 4 75.0 %", lines)
        self.assertIn("include/rmm/mr/detail 29 of 30 96.7 % 3 of 4 75.0 %", lines)
        self.assertIn("simulator 1 of 4 25.0 % 0 of 0 -", lines)

    def test_exactly_enough_is_enough_and_a_line_less_is_not(self) -> None:
        self.assertEqual(0, self.run_tool(counted("include/rmm/a.hpp", 95, 100))[0])
        status, lines = self.run_tool(counted("include/rmm/a.hpp", 94, 100), counted("simulator/src/e.cpp", 1000, 1000))
        self.assertEqual(1, status)
        self.assertEqual("coverage: 94.0 % of the lines of include/rmm are fewer than 95 %", lines[-1])
        self.assertEqual(0, self.run_tool(counted("include/rmm/a.hpp", 94, 100), least="94")[0])

    def test_nothing_counted_is_too_little(self) -> None:
        self.assertEqual(1, self.run_tool()[0])

    def test_the_files_with_most_lines_left_come_first_and_whole_ones_not_at_all(self) -> None:
        _, lines = self.run_tool(counted("include/rmm/a.hpp", 99, 100), counted("include/rmm/b.hpp", 7, 10), counted("include/rmm/c.hpp", 5, 5))
        self.assertEqual(["3 lines of include/rmm/b.hpp were not reached", "1 lines of include/rmm/a.hpp were not reached"], lines[-2:])


if __name__ == "__main__":
    unittest.main()
