# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check_compatibility.py on small repositories."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOOLS))

import check_compatibility  # noqa: E402

HEAD = "| name | tests |\n|---|---|\n"


class CheckCompatibility(unittest.TestCase):
    def check(self, document: str, page: str = "`a`", **files: str) -> list[str]:
        """Returns the problems of `document` in a repository with these files and this page for users; `a__b` names tests/a/b.cpp."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for folder_of, text in (("tests", document), ("docs", page)):
                (root / folder_of).mkdir()
                (root / folder_of / "compatibility.md").write_text(text, encoding="utf-8")
            for name, text in files.items():
                file = root / "tests" / (name.replace("__", "/") + ".cpp")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            check_compatibility.tests_of.cache_clear()
            return check_compatibility.check(root)

    def test_tests_that_exist_are_fine(self) -> None:
        self.assertEqual([], self.check(
            HEAD + "| `a` | `tests/a.cpp`: `A.One`, `A.Two`; `tests/b/c.cpp` |\n",
            a="TEST(A, One)\nTYPED_TEST_P(A, Two)\n", b__c=""))

    def test_a_test_that_is_gone_is_reported_with_its_line(self) -> None:
        self.assertEqual(
            ["tests/compatibility.md:3: tests/a.cpp has no test A.Two"],
            self.check(HEAD + "| `a` | `tests/a.cpp`: `A.One`, `A.Two` |\n", a="TEST_F(A, One)\n"))

    def test_a_test_in_a_comment_does_not_count(self) -> None:
        self.assertEqual(1, len(self.check(HEAD + "| `a` | `tests/a.cpp`: `A.One` |\n", a="// TEST(A, One)\n")))

    def test_a_file_that_is_gone_is_reported(self) -> None:
        self.assertIn("does not exist", self.check(HEAD + "| `a` | `tests/a.cpp` |\n")[0])

    def test_a_row_without_tests_is_reported(self) -> None:
        self.assertIn("not one text for each of: name, tests", self.check(HEAD + "| `a` |  |\n")[0])

    def test_a_cell_in_another_form_is_reported(self) -> None:
        self.assertIn("not `FILE`", self.check(HEAD + "| `a` | somewhere |\n")[0])

    def test_a_table_without_tests_needs_its_texts_only(self) -> None:
        self.assertEqual([], self.check("| what | why |\n|---|---|\n| this | that |\n"))

    def test_a_name_that_the_page_for_users_lacks_is_reported(self) -> None:
        self.assertEqual(
            ["tests/compatibility.md:3: docs/compatibility.md does not name `b`"],
            self.check(HEAD + "| `a`, `b` | `tests/a.cpp` |\n", a=""))

    def test_a_document_without_rows_is_reported(self) -> None:
        self.assertIn("no rows", self.check("text\n")[0])

    def test_an_older_header_without_a_row_is_reported(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for path in ("docs/compatibility.md", "tests/compatibility.md", "include/rmm/mr/device/x_resource.hpp", "include/rmm/mr/y.hpp"):
                (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / path).touch()
            (Path(folder) / "tests/compatibility.md").write_text("| what | why |\n|---|---|\n| this | that |\n", encoding="utf-8")
            self.assertEqual(["tests/compatibility.md:1: no row names x_resource"], check_compatibility.check(Path(folder)))


if __name__ == "__main__":
    unittest.main()
