# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/instruction_budget.py, with a stand-in for valgrind."""

from __future__ import annotations

import contextlib
import io
import stat
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import instruction_budget  # noqa: E402

# Prints output like callgrind's: a thousand instructions, and a number for each call that depends on what is called.
STAND_IN = """#!/usr/bin/env python3
import os, sys
what, times = sys.argv[-2], int(sys.argv[-1])
if os.environ.get("CUDASIM_MODE") != "stepped":
    sys.exit("not stepped")
each = {"pair": 140, "foreign": 550, "arena": 270, "middle": 800, "uvector": 220, "getter": 7, "pinned-1": 400, "pinned-65536": 420}[what]
print(f"==1== Collected : {1000 + each * times}", file=sys.stderr)
"""


class InstructionBudget(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def make_tool(self, text: str) -> str:
        tool = self.folder / "valgrind"
        tool.write_text(text, encoding="utf-8")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        return str(tool)

    def run_main(self, *arguments: str) -> tuple[int, str]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = instruction_budget.main([str(self.folder / "program"), *arguments])
        return status, out.getvalue()

    def test_prints_the_cost_of_one_call(self) -> None:
        status, text = self.run_main("--valgrind", self.make_tool(STAND_IN))
        self.assertEqual(status, 0)
        self.assertIn("140.0 instructions", text)
        self.assertIn("220.0 instructions", text)
        self.assertIn("7.0 instructions", text)

    def test_fails_above_the_budget(self) -> None:
        status, text = self.run_main("--valgrind", self.make_tool(STAND_IN), "--budget", "139.5")
        self.assertEqual(status, 1)
        self.assertIn("139.5", text)

    def test_fails_above_the_other_budgets(self) -> None:
        for what, too_little in (("foreign", "549"), ("arena", "269"), ("middle", "799")):
            status, text = self.run_main("--valgrind", self.make_tool(STAND_IN), f"--{what}-budget", too_little)
            self.assertEqual(status, 1)
            self.assertIn(f"`{what}`", text)
            self.assertEqual(self.run_main("--valgrind", self.make_tool(STAND_IN), f"--{what}-budget", "inf")[0], 0)

    def test_accepts_exactly_the_budget(self) -> None:
        self.assertEqual(self.run_main("--valgrind", self.make_tool(STAND_IN), "--budget", "140")[0], 0)

    def test_fails_if_many_holes_cost_more_than_one(self) -> None:
        status, text = self.run_main("--valgrind", self.make_tool(STAND_IN), "--holes-factor", "1.04")
        self.assertEqual(status, 1)
        self.assertIn("`pinned-65536` is above its budget of 416", text)

    def test_reports_a_run_that_fails(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "broken"):
            self.run_main("--valgrind", self.make_tool("#!/bin/sh\necho broken >&2\nexit 3\n"))

    def test_reports_a_run_without_a_figure(self) -> None:
        with self.assertRaises(RuntimeError):
            self.run_main("--valgrind", self.make_tool("#!/bin/sh\nexit 0\n"))


if __name__ == "__main__":
    unittest.main()
