# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check_links.py."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOOLS))

import check_links  # noqa: E402


class CheckLinks(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        (self.folder / "other.md").write_text(
            "# Other page\n\n## The `code`, twice\n\n## The `code`, twice\n", encoding="utf-8"
        )

    def wrong(self, text: str) -> list[str]:
        page = self.folder / "page.md"
        page.write_text(text, encoding="utf-8")
        return [line.partition("page.md:")[2] for line in check_links.check_page(page)]

    def test_files_folders_and_headings_that_are_there_pass(self) -> None:
        text = "# Here\n[a](other.md) [b](.) [`c`](other.md#the-code-twice) [d](#here) ![e](other.md) [f](other.md#the-code-twice-1)\n"
        self.assertEqual([], self.wrong(text))

    def test_a_file_that_is_not_there_is_named_with_its_line(self) -> None:
        self.assertEqual(["2: there is no 'gone.md'"], self.wrong("\n[a](gone.md)\n"))

    def test_a_heading_that_is_not_there_is_named(self) -> None:
        self.assertEqual(["1: there is no heading 'gone' in other.md"], self.wrong("[a](other.md#gone)\n"))
        self.assertEqual(["1: there is no heading 'gone' in page.md"], self.wrong("[a](#gone)\n"))

    def test_a_heading_in_a_block_of_code_is_none(self) -> None:
        self.assertEqual(1, len(self.wrong("[a](#code)\n\n```sh\n# code\n```\n")))

    def test_code_has_no_links(self) -> None:
        self.assertEqual([], self.wrong("`[a](gone.md)`\n\n```cpp\n[a](gone)\n```\n"))

    def test_links_elsewhere_have_a_kind_and_a_host(self) -> None:
        self.assertEqual([], self.wrong("[a](https://example.org/x?y#z) [b](mailto:a@example.org)\n"))
        self.assertEqual(1, len(self.wrong("[a](htps://example.org)\n")))
        self.assertEqual(1, len(self.wrong("[a](https:///x)\n")))

    def test_links_of_a_site_name_files_and_elements_of_it(self) -> None:
        site = self.folder / "site"
        (site / "sub").mkdir(parents=True)
        (site / "a.html").write_text('<p id="x"><a href="sub/b.html#y">b</a><img src="c.png"></p>', encoding="utf-8")
        (site / "sub" / "b.html").write_text(
            '<p id="y"><a href="../a.html?q=1#x">a</a></p>\n<a href="#z">z</a>', encoding="utf-8"
        )
        found = check_links.check_site(site)
        self.assertEqual(["a.html:1: there is no 'c.png'", "sub/b.html:2: there is no 'z' in b.html"], found)

    def test_pages_of_other_projects_are_left_alone(self) -> None:
        for place in ("build", "venv/lib/site-packages/other"):
            (self.folder / place).mkdir(parents=True)
            (self.folder / place / "README.md").touch()
        (self.folder / "venv/pyvenv.cfg").touch()
        self.assertEqual([self.folder / "other.md"], check_links.pages_of_repository(self.folder))

    def test_links_of_this_repository_lead_somewhere(self) -> None:
        self.assertEqual([], [line for page in check_links.pages_of_repository() for line in check_links.check_page(page)])


if __name__ == "__main__":
    unittest.main()
