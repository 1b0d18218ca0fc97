# SPDX-License-Identifier: Apache-2.0
"""Tests of mutants.py: the changes that it makes, and that a seed always draws the same ones."""

from __future__ import annotations

import itertools
import re
import signal
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import mutants

REPOSITORY = Path(__file__).resolve().parent.parent.parent

CODE = """\
/// a == b
  if (free != nullptr && bytes < limit_) { return false; }
  used_ += bytes;
  ++count_;
  RMM_ASSERT(used_ == 3);
  std::vector<int> list;
"""


class MutantsTest(unittest.TestCase):
    def changes(self, text: str) -> set[tuple[int, str, str]]:
        return {(m.line, m.kind, "|".join(line.strip() for line in m.lines[m.line - 1 : m.line + 1])) for m in mutants.mutants_of("x.hpp", text)}

    def test_it_changes_operators_conditions_and_statements(self) -> None:
        found = self.changes(CODE)
        self.assertIn((2, "operator", "if (free == nullptr && bytes < limit_) { return false; }|used_ += bytes;"), found)
        self.assertIn((2, "operator", "if (free != nullptr || bytes < limit_) { return false; }|used_ += bytes;"), found)
        self.assertIn((2, "operator", "if (free != nullptr && bytes <= limit_) { return false; }|used_ += bytes;"), found)
        self.assertIn((2, "condition", "if (!(free != nullptr && bytes < limit_)) { return false; }|used_ += bytes;"), found)
        self.assertIn((3, "dropped", ";|++count_;"), found)
        self.assertIn((3, "swapped", "++count_;|used_ += bytes;"), found)

    def test_it_leaves_comments_assertions_and_types_alone(self) -> None:
        self.assertEqual({line for line, _, _ in self.changes(CODE)} & {1, 5, 6}, set())

    def test_it_changes_bounds_by_one(self) -> None:
        found = self.changes("  return count_ / 4;")
        self.assertIn((1, "bound", "return count_ / 5;"), found)
        self.assertIn((1, "bound", "return count_ / 3;"), found)

    def test_it_leaves_checks_alone(self) -> None:
        check = "  [[nodiscard]] bool check_invariants() const noexcept\n  {\n    used_ += 1;\n  }\n  used_ += 1;\n"
        self.assertEqual({line for line, _, _ in self.changes(check)}, {5})
        check = "template <class T>\nbool heap<T>::check_invariants() const\n{\n  used_ += 1;\n}\nvoid f() {\n  used_ += 1;\n}\n"
        self.assertEqual({line for line, _, _ in self.changes(check)}, {7})

    def test_it_tells_how_a_mutant_died(self) -> None:
        assertion = "include/rmm/detail/heap/range_set.hpp:12: Assertion `count_ != 0' failed.\n"
        failure = "tests/a_tests.cpp:3: Failure\nValue of: x\n"
        self.assertIsNone(mutants.death_of("A_TEST", 0, "", assertion))
        self.assertEqual(mutants.death_of("A_TEST", -signal.SIGABRT, "", assertion),
                         mutants.Death("assertion", "rmm/detail/heap/range_set.hpp:12 count_ != 0"))
        self.assertEqual(mutants.death_of("A_TEST", 1, failure + "[  FAILED  ] A.B (0 ms)\n", ""), mutants.Death("expectation", "A.B"))
        self.assertEqual(mutants.death_of("A_TEST", -signal.SIGSEGV, "", ""), mutants.Death("crash", "A_TEST ends with -11"))
        self.assertEqual(mutants.death_of("A_TEST", 1, "", "/a/interface_test.c:7: not true: x == 1\n  last failure: none\n"),
                         mutants.Death("expectation", "A_TEST: x == 1"))
        self.assertEqual(mutants.death_of("A_TEST", -signal.SIGXCPU, "", ""), mutants.Death("timeout", "does not end"))

    def test_an_assertion_counts_only_if_it_comes_first_and_is_the_librarys(self) -> None:
        assertion = "include/rmm/detail/heap/range_set.hpp:12: Assertion `count_ != 0' failed.\n"
        failure = "tests/a_tests.cpp:3: Failure\nValue of: x\n"
        self.assertEqual(mutants.death_of("A_TEST", -signal.SIGABRT, failure, assertion).way, "expectation")
        self.assertEqual(mutants.death_of("A_TEST", -signal.SIGABRT, "unknown file: Failure\n", assertion).way, "expectation")
        self.assertEqual(mutants.death_of("A_TEST", -signal.SIGABRT, "", "tests/a.cpp:1: Assertion `x' failed.\n").way, "crash")
        self.assertEqual(mutants.death_of("A_TEST", -signal.SIGSEGV, "", assertion).way, "crash")

    def test_a_seed_draws_the_same_mutants_each_once(self) -> None:
        first = [m.key for m in itertools.islice(mutants.draw(["adaptors"], 5), 60)]
        self.assertEqual(first, [m.key for m in itertools.islice(mutants.draw(["adaptors"], 5), 60)])
        self.assertEqual(len(set(first)), 60)
        self.assertNotEqual(first, [m.key for m in itertools.islice(mutants.draw(["adaptors"], 6), 60)])

    def test_all_files_and_tests_of_the_groups_exist(self) -> None:
        lists = (REPOSITORY / "tests/CMakeLists.txt").read_text()
        for name, words in re.findall(r"^set\((\w+) ([^()]*)\)$", lists, re.MULTILINE):
            lists = lists.replace(f"${{{name}}}", words)
        # Those that other folders list.
        others = {"BENCHMARKS_TEST": "tests/benchmarks/*_tests.cpp", "C_INTERFACE_SIM_TEST": "c/tests/*_tests.cpp",
                  "C_INTERFACE_TEST": "c/tests/*_test.c"}
        programs = dict(re.findall(r"^ *rmm_add(?:_sim)?_test\(NAME (\w+)([^()]*)\)", lists, re.MULTILINE))
        for rows in mutants.GROUPS.values():
            for files, tests, users in rows:
                for file in files:
                    self.assertTrue((REPOSITORY / mutants.place_of(file)).exists(), file)
                    self.assertTrue(any(mutants.mutants_of(file, (REPOSITORY / mutants.place_of(file)).read_text())), file)
                self.assertTrue(tests, files)
                for cover in [*tests, *users]:
                    program, source = cover.split()
                    if program == "PYTEST":
                        self.assertTrue((REPOSITORY / "python/rmm/tests" / source).exists(), cover)
                        continue
                    if program in others:
                        self.assertTrue(any(str(path).endswith(f"/{source}") for path in REPOSITORY.glob(others[program])), cover)
                        continue
                    in_a_list = source.startswith("rmm/detail/") and "${detail_" in programs[program]
                    self.assertTrue(in_a_list or source in programs[program].split(), cover)
                    self.assertTrue((REPOSITORY / "tests" / source).exists(), cover)


if __name__ == "__main__":
    unittest.main()
