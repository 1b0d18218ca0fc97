# SPDX-License-Identifier: Apache-2.0
"""Tests of coverage_table.py, with a program in place of gcov that prints prepared notes: which lines and branches count once, which
folders they belong to, and which shares are too low."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parent.parent / "coverage_table.py"

Branch = tuple[int, str]  # how often it was taken, and "throws" or ""


def line(number: int, count: int, function: str = "f", branches: tuple[Branch, ...] = ()) -> dict:
    return {"line_number": number, "count": count, "function_name": function, "unexecuted_block": count == 0,
            "branches": [{"count": taken, "fallthrough": not kind, "throw": kind == "throws"} for taken, kind in branches]}


def function(name: str, start: int, column: int = 1) -> dict:
    return {"name": name, "demangled_name": name, "start_line": start, "start_column": column, "end_line": start + 9, "end_column": 1}


class CoverageTableTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.programs = self.root / "programs"
        self.programs.mkdir()
        for name in ("cat", "cp"):
            (self.programs / name).symlink_to(str(shutil.which(name)))
        self.make_program("gcov", 'for last; do :; done\ncat "$last"')
        self.build = self.root / "build"
        self.build.mkdir()

    def make_program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (self.programs / name).chmod(0o755)

    def add_object(self, name: str, *lines: dict, file: str = "include/rmm/a.hpp", functions: tuple[dict, ...] = ()) -> None:
        """Returns notes of an object with these lines of one file, named as gcov does in a build below the sources."""
        notes = {"format_version": "1", "current_working_directory": str(self.build),
                 "files": [{"file": f"../{file}", "functions": functions or [function("f", 1)], "lines": list(lines)}]}
        (self.build / f"{name}.gcno").write_text(json.dumps(notes) + "\n", encoding="utf-8")

    def add_file(self, file: str, reached: int, of: int) -> None:
        self.add_object(file.replace("/", "-"), *[line(number, number <= reached) for number in range(1, of + 1)], file=file)

    def write_source(self, file: str, *text: str) -> None:
        (self.root / file).parent.mkdir(parents=True, exist_ok=True)
        (self.root / file).write_text("\n".join(text) + "\n", encoding="utf-8")

    def run_tool(self, *arguments: str) -> tuple[int, list[str], str]:
        """Returns exit status, output lines and errors. The only gcovr is one that a test made."""
        done = subprocess.run([sys.executable, "-B", str(TOOL), str(self.build), "--root", str(self.root), "--jobs", "2", *arguments],
                              capture_output=True, text=True, check=False, env={**os.environ, "PATH": str(self.programs)}, cwd="/")
        return done.returncode, [" ".join(text.split()) for text in done.stdout.splitlines()], done.stderr

    def sums(self, file: str = "include/rmm/a.hpp") -> list[int]:
        """Returns lines reached, all lines, branches taken and all branches."""
        _, _, wrong = self.run_tool()
        self.assertEqual("", wrong)
        files = json.loads((self.build / "report/summary.json").read_text(encoding="utf-8"))["files"]
        return next([each[key] for key in ("line_covered", "line_total", "branch_covered", "branch_total")]
                    for each in files if each["filename"] == file)

    def unreached(self) -> list[str]:
        self.run_tool()
        return (self.build / "report/unreached.txt").read_text(encoding="utf-8").splitlines()

    # --- lines

    def test_instances_of_a_template_are_one_source(self) -> None:
        self.add_object("a", line(3, 5, "f<int>"), line(4, 0, "f<int>"),
                        line(3, 0, "f<char>"), line(4, 2, "f<char>"), line(5, 0, "f<char>"),
                        functions=(function("f<int>", 3), function("f<char>", 3)))
        self.assertEqual([2, 3, 0, 0], self.sums())
        self.assertEqual(["include/rmm/a.hpp:5"], self.unreached())

    def test_counts_that_gcov_takes_for_negative_are_none(self) -> None:
        self.add_object("a", line(3, -5, branches=((-1, ""), (1, ""))))
        self.add_object("b", line(3, 2, branches=((0, ""), (0, ""))))
        self.assertEqual([1, 1, 1, 2], self.sums())

    def test_a_line_is_reached_that_one_program_reached(self) -> None:
        self.add_object("a", line(3, 1), line(4, 0), line(5, 0))
        self.add_object("b", line(3, 0), line(4, 1), line(5, 0), line(6, 1))
        self.assertEqual([3, 4, 0, 0], self.sums())
        self.assertEqual(["include/rmm/a.hpp:5"], self.unreached())

    def test_lines_that_were_not_reached_are_listed_with_the_text_of_the_first(self) -> None:
        self.write_source("include/rmm/a.hpp", "one", "two", "  three", "// no code", "five", "six", "seven")
        self.add_object("a", line(1, 1), line(2, 1), line(3, 0), line(5, 0), line(6, 1), line(7, 0))
        self.assertEqual(["include/rmm/a.hpp:3-5 three", "include/rmm/a.hpp:7 seven"],
                         [" ".join(text.split()) for text in self.unreached()])

    def test_other_sources_are_not_counted(self) -> None:
        self.add_file("include/rmm/a.hpp", 1, 1)
        self.add_file("tests/rmm/a_tests.cpp", 0, 9)
        self.add_file("../elsewhere/include/rmm/b.hpp", 0, 9)
        self.run_tool()
        files = json.loads((self.build / "report/summary.json").read_text(encoding="utf-8"))["files"]
        self.assertEqual(["include/rmm/a.hpp"], [each["filename"] for each in files])

    # --- branches

    def test_branches_of_instances_and_of_programs_are_one_wherever_they_are_inlined(self) -> None:
        functions = (function("f<int>", 3), function("f<char>", 3))
        self.add_object("a", line(3, 1, "f<int>", ((1, ""), (0, ""), (0, ""), (0, ""))), line(3, 0, "f<char>", ((0, ""),) * 4),
                        functions=functions)
        self.assertEqual([1, 1, 1, 4], self.sums())
        self.add_object("b", line(3, 1, "caller", ((0, ""), (1, ""), (0, ""), (0, ""))), functions=(function("caller", 90),))
        self.assertEqual([1, 1, 2, 4], self.sums())

    def test_branches_of_what_is_inlined_several_times_are_those_of_one_copy(self) -> None:
        self.add_object("a", line(3, 1, branches=((0, ""), (1, ""), (0, ""), (0, ""))))
        self.add_object("b", line(3, 1, branches=((0, ""), (0, ""), (0, ""), (0, ""), (0, ""), (1, ""))))
        self.assertEqual([1, 1, 1, 2], self.sums())

    def test_calls_that_may_throw_are_no_choice(self) -> None:
        self.add_object("a", line(3, 1, branches=((1, ""), (0, "throws"), (1, ""), (0, ""))), line(4, 1, branches=((1, ""), (0, "throws"))))
        self.assertEqual([2, 2, 1, 2], self.sums())

    def test_lines_without_code_have_no_branches(self) -> None:
        self.write_source("include/rmm/a.hpp", "if (x) {", "});  // ends it", "} else if (y) {")
        self.add_object("a", *[line(number, 1, branches=((1, ""), (0, ""))) for number in (1, 2, 3)])
        self.assertEqual([3, 3, 2, 4], self.sums())

    # --- the table and the verdict

    def test_a_folder_has_all_that_is_in_it_and_nothing_else(self) -> None:
        for file, reached, of in (("include/rmm/a.hpp", 10, 10), ("include/rmm/mr/b.hpp", 20, 20), ("include/rmm/mr/detail/c.hpp", 29, 30),
                                  ("include/rmm_other/d.hpp", 0, 100), ("simulator/src/e.cpp", 1, 4)):
            self.add_file(file, reached, of)
        _, lines, _ = self.run_tool()
        self.assertIn("include/rmm 59 of 60 98.3 % 0 of 0 -", lines)
        self.assertIn("include/rmm/mr 49 of 50 98.0 % 0 of 0 -", lines)
        self.assertIn("include/rmm/mr/detail 29 of 30 96.7 % 0 of 0 -", lines)
        self.assertIn("simulator 1 of 4 25.0 % 0 of 0 -", lines)

    def test_exactly_enough_is_enough_and_a_line_less_is_not(self) -> None:
        self.add_file("include/rmm/a.hpp", 95, 100)
        self.assertEqual(0, self.run_tool()[0])
        self.add_file("include/rmm/a.hpp", 94, 100)
        self.add_file("simulator/src/e.cpp", 1000, 1000)
        status, lines, _ = self.run_tool()
        self.assertEqual(1, status)
        self.assertEqual("coverage: 94.0 % of the lines of include/rmm are fewer than 95 %", lines[-1])
        self.assertEqual(0, self.run_tool("--least", "94")[0])

    def test_nothing_counted_is_too_little(self) -> None:
        self.assertEqual(1, self.run_tool()[0])

    def test_the_files_with_most_lines_left_come_first_and_whole_ones_not_at_all(self) -> None:
        for file, reached, of in (("include/rmm/a.hpp", 99, 100), ("include/rmm/b.hpp", 7, 10), ("include/rmm/c.hpp", 5, 5)):
            self.add_file(file, reached, of)
        _, lines, _ = self.run_tool()
        self.assertEqual(["3 lines of include/rmm/b.hpp were not reached", "1 lines of include/rmm/a.hpp were not reached"],
                         [text for text in lines if text.endswith(" were not reached")])

    # --- gcov and gcovr

    def test_what_gcov_cannot_read_is_an_error(self) -> None:
        self.add_file("include/rmm/a.hpp", 1, 1)
        for text, why in (("echo 'a.gcda:stamp mismatch with notes file' >&2", "stamp mismatch"), ("exit 3", "status 3")):
            self.make_program("gcov", text)
            status, _, wrong = self.run_tool()
            self.assertEqual(1, status)
            self.assertRegex(wrong, f"coverage: gcov cannot read .*a.hpp.gcno: .*{why}")

    def test_a_program_that_did_not_run_counts_with_nothing_reached(self) -> None:
        self.add_file("include/rmm/a.hpp", 0, 2)
        self.make_program("gcov", 'for last; do :; done\ncat "$last"\necho "a.gcda:cannot open data file, assuming not executed" >&2')
        self.assertEqual([0, 2, 0, 0], self.sums())

    def test_gcovr_gets_what_was_merged_in_its_own_version_of_the_format(self) -> None:
        self.add_object("a", line(3, 1, "f<int>", ((1, ""), (0, ""))), line(3, 1, "f<char>", ((0, ""), (2, ""))),
                        functions=(function("f<int>", 3), function("f<char>", 3)))
        self.make_program("gcovr", f"""if [ "$1" = --json ]; then echo '{{"gcovr/format_version": "7", "files": []}}'
else while [ "$1" != --add-tracefile ]; do shift; done; cp "$2" {self.root}/merged.json; fi""")
        _, lines, _ = self.run_tool()
        self.assertIn(str(self.build / "report/index.html"), lines)
        merged = json.loads((self.root / "merged.json").read_text(encoding="utf-8"))
        self.assertEqual("7", merged["gcovr/format_version"])
        (file,) = merged["files"]
        self.assertEqual([(3, 2, [1, 2])], [(each["line_number"], each["count"], [branch["count"] for branch in each["branches"]])
                                            for each in file["lines"]])

    def test_without_a_gcovr_that_works_there_are_no_pages_and_nothing_else_is_lost(self) -> None:
        self.add_file("include/rmm/a.hpp", 1, 1)
        for _ in range(2):
            status, lines, wrong = self.run_tool()
            self.assertEqual((0, ""), (status, wrong))
            self.assertRegex(lines[-1], "^no pages, ")
            self.make_program("gcovr", "exit 1")


if __name__ == "__main__":
    unittest.main()
