# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check_prose.py."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOOLS))

import check_prose  # noqa: E402

FRAME = "# Title\n\nWhat it is for.\n\n{}\n\nNext: [a](a.md), [b](b.md).\n"


def words(count: int) -> str:
    return " ".join(["word"] * count) + "."


class Sentences(unittest.TestCase):
    def lengths(self, text: str) -> list[int]:
        return [sentence.words for sentence in check_prose.sentences(text)]

    def test_a_full_stop_ends_a_sentence_and_a_line_does_not(self) -> None:
        self.assertEqual([3, 2], self.lengths("One two\nthree. Four five!"))

    def test_a_full_stop_within_a_word_or_before_a_bracket_is_understood(self) -> None:
        self.assertEqual([4, 2], self.lengths("Release 24.08 takes *long*. (Really so.)"))

    def test_code_tables_comments_and_targets_do_not_count(self) -> None:
        text = f"```sh\n{words(40)}\n```\n\n    {words(40)}\n\n| {words(40)} |\n\n<!-- {words(40)} -->\nSee `{words(40)}` in [a page](x/y.md).\n"
        self.assertEqual([5], self.lengths(text))

    def test_items_and_headings_stand_alone(self) -> None:
        self.assertEqual([1, 2, 3], self.lengths("# One\n\n- two words\n- three more words\n"))

    def test_lines_are_those_of_the_page(self) -> None:
        found = check_prose.sentences("# A\n\n```text\nx\n```\n\nFirst. Second\nline. Third\nhere.\n")
        self.assertEqual([1, 7, 7, 8], [sentence.line for sentence in found])


class Pages(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "docs").mkdir()

    def check(self, text: str, name: str = "docs/a.md") -> list[str]:
        page = self.root / name
        page.write_text(text, encoding="utf-8")
        return [line.replace(str(self.root) + "/", "") for line in check_prose.check(self.root)]

    def test_35_words_are_fine_and_36_are_not(self) -> None:
        self.assertEqual([], self.check(FRAME.format(words(35))))
        self.assertEqual(["docs/a.md:5: a sentence of 36 words, at most 35: " + ("word " * 12) + "..."], self.check(FRAME.format(words(36))))

    def test_a_page_that_begins_with_a_table_is_reported(self) -> None:
        self.assertIn("docs/a.md:1: does not begin", self.check("# T\n\n| a |\n|---|\n\nNext: [a](a.md), [b](b.md).\n")[0])

    def test_a_page_without_two_links_at_its_end_is_reported(self) -> None:
        self.assertIn("does not end with", self.check("# T\n\nText.\n\nNext: [a](a.md).\n")[0])

    def test_pages_that_are_too_long_are_reported(self) -> None:
        self.assertEqual(["CONTRIBUTING.md: 151 lines, at most 150"], self.check("\n" * 151, "CONTRIBUTING.md"))
        self.assertIn("docs/*.md: 3005 lines together, at most 3000", self.check(FRAME.format("\n" * 2998)))


if __name__ == "__main__":
    unittest.main()
