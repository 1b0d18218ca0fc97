# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/doc_code.py."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOOLS))

import doc_code  # noqa: E402

PAGE = "# Page\n\n```cpp\nint a;\n```\n\n```sh\nnot code\n```\n\n```cpp\nint b;\nint c;\n```\n"


class DocCode(unittest.TestCase):
    def test_only_blocks_of_cpp_count_and_know_their_lines(self) -> None:
        self.assertEqual([(4, "int a;\n"), (12, "int b;\nint c;\n")], doc_code.blocks(PAGE))

    def test_each_block_becomes_a_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "guide.md"
            page.write_text(PAGE, encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                self.assertEqual(0, doc_code.main([str(page), f"{folder}/out"]))
            written = [Path(line) for line in printed.getvalue().splitlines()]
            self.assertEqual(["guide_1.cpp", "guide_2.cpp"], [path.name for path in written])
            self.assertEqual('#line 12 "guide.md"\nint b;\nint c;\n', written[1].read_text(encoding="utf-8"))

    def test_what_is_as_it_should_be_is_left_alone(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.cpp"
            doc_code.write_if_changed(path, "int a;\n")
            before = path.stat().st_mtime_ns
            doc_code.write_if_changed(path, "int a;\n")
            self.assertEqual(before, path.stat().st_mtime_ns)

    def test_a_page_without_code_is_an_error(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "guide.md"
            page.write_text("# Page\n", encoding="utf-8")
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(1, doc_code.main([str(page), f"{folder}/out"]))
            self.assertIn("no block of C++", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
