# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/site/plain_copies.py."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOOLS / "site"))

import plain_copies  # noqa: E402

REFERENCE = """Pools
=====

rmm/x.hpp
---------

.. cpp:namespace:: rmm

.. cpp:class:: pool

   Keeps ``bytes``\\ , see :doc:`/docs/pools`\\ .

   .. cpp:function:: void f(int)
                     void f(char)

      Takes logic\\_error.
"""


class PlainCopies(unittest.TestCase):
    def test_references_become_markdown(self) -> None:
        self.assertEqual(
            "# Pools\n\n## rmm/x.hpp\n\n### `pool`\n\nKeeps `bytes`, see [pools](../../docs/pools.md).\n\n"
            "#### `void f(int)`\n#### `void f(char)`\n\nTakes logic_error.\n",
            plain_copies.from_reference(REFERENCE, "reference/cpp"))

    def test_lists_of_pages_become_links(self) -> None:
        self.assertEqual(
            "# T\n\n- [pools](pools.md)\n\nEnd.\n",
            plain_copies.from_reference("T\n=\n\n.. toctree::\n   :maxdepth: 2\n\n   pools\n\nEnd.\n", "reference/cpp"))

    def test_title_and_summary_are_those_of_the_page(self) -> None:
        page = "# Title\n\n```sh\nx\n```\n\n| a |\n|---|\n\nFirst [one](x.md), v1.2\nhere. Second.\n"
        self.assertEqual(("Title", "First one, v1.2 here."), plain_copies.title_and_summary(page))

    def test_every_page_has_a_copy_and_a_line(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source, html = Path(folder) / "source", Path(folder) / "html"
            for name, text in {
                "index.md": "# Start\n\nBegin here.\n\n```{toctree}\ndocs/a\n```\n",
                "docs/a.md": "# A\n\nAbout a. More.\n",
                "reference/cpp/index.rst": "C++\n===\n\nAll.\n",
                "reference/cpp/pools.rst": REFERENCE,
            }.items():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                (source / name).write_text(text, encoding="utf-8")
            html.mkdir()
            plain_copies.write(source, html, [("Guide", ["docs/a"]), ("Reference", ["reference/cpp/index"])])
            self.assertEqual("# Start\n\nBegin here.\n", (html / "index.md").read_text(encoding="utf-8"))
            self.assertEqual("# A\n\nAbout a. More.\n", (html / "docs/a.md").read_text(encoding="utf-8"))
            self.assertTrue((html / "reference/cpp/pools.md").exists())
            self.assertEqual(
                "# Start\n\n> Begin here.\n\nEach page below is plain Markdown.\n\n## Guide\n\n- [A](docs/a.md): About a.\n\n"
                "## Reference\n\n- [C++](reference/cpp/index.md): All.\n- [Pools](reference/cpp/pools.md): Keeps `bytes`, see pools.\n",
                (html / "llms.txt").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
