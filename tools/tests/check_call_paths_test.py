# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import check_call_paths

HEADER = """
int outer(int a) noexcept { return helper.inner(a + 1); }  // calls nothing()
template <class T> void shape<T>::inner(int (*f)(int)) const
{
  if (f(1)) { text("last("); }
}
int last(int);
"""


class CallPathsTest(unittest.TestCase):
    def run_on(self, drawing: str) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "rmm").mkdir()
            (root / "rmm" / "a.hpp").write_text(HEADER)
            page = root / "page.md"
            page.write_text(drawing)
            with contextlib.redirect_stdout(io.StringIO()) as output:
                status = check_call_paths.main([str(page), str(root)])
        return status, output.getvalue()

    def draw(self, *lines: str) -> tuple[int, str]:
        return self.run_on("```\ncalls:\n" + "\n".join(lines) + "\n```\n")

    def test_what_is_called_is_found(self) -> None:
        self.assertEqual(self.draw("outer  a.hpp", "  shape::inner  a.hpp  | of the helper")[0], 0)

    def test_what_is_not_called_is_an_error(self) -> None:
        status, output = self.draw("shape::inner  a.hpp", "  outer  a.hpp")
        self.assertEqual(status, 1)
        self.assertIn("shape::inner in a.hpp does not call outer", output)

    def test_siblings_are_called_by_the_same_function(self) -> None:
        status, output = self.draw("outer  a.hpp", "  inner  a.hpp", "  outer  a.hpp")
        self.assertEqual(status, 1)
        self.assertIn("outer in a.hpp does not call outer", output)

    def test_a_declaration_or_a_comment_is_no_function(self) -> None:
        self.assertIn("last is not defined in a.hpp", self.draw("last  a.hpp")[1])
        self.assertIn("nothing is not defined in a.hpp", self.draw("nothing  a.hpp")[1])

    def test_a_file_that_is_missing_is_an_error(self) -> None:
        self.assertEqual(self.draw("outer  b.hpp")[0], 1)

    def test_a_page_without_a_drawing_is_an_error(self) -> None:
        self.assertEqual(self.run_on("nothing")[0], 1)

    def test_the_page_of_this_repository_is_true(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            status = check_call_paths.main([])
        self.assertEqual(status, 0, output.getvalue())


if __name__ == "__main__":
    unittest.main()
