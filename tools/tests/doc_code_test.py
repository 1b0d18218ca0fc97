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

PAGE = """# Page

```cpp
int a;
```

```text
not code
```

<!-- not compiled: a fragment -->
```cpp
a + b
```

- a list

  ```cmake
  project(app)
  add_executable(app main.cpp)
  ```

```cpp
int main() {}
// the end
```
"""

EXAMPLES = """namespace rmm {
/// A thing.
///
/// @code{.cpp}
/// #include <vector>
/// std::vector<int> v;
/// @endcode
class thing {
  /// Runs.
  /// @code{.cpp}
  /// if (true) {
  ///   run();
  /// }
  /// @endcode
  void run();
};
}
"""


class DocCode(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def page(self, text: str, name: str = "guide.md") -> Path:
        page = self.folder / name
        page.write_text(text, encoding="utf-8")
        return page

    def wrong(self, text: str) -> str:
        return "\n".join(line.partition(".md:")[2] for line in doc_code.wrong_in(self.page(text)))

    def test_blocks_know_their_lines_and_languages(self) -> None:
        found = doc_code.blocks(self.page(PAGE))
        self.assertEqual([4, 8, 13, 19, 24], [block.line for block in found])
        self.assertEqual(["cpp", "text", "cpp", "cmake", "cpp"], [block.language for block in found])

    def test_a_block_in_a_list_loses_its_indentation(self) -> None:
        self.assertEqual("project(app)\nadd_executable(app main.cpp)\n", doc_code.blocks(self.page(PAGE))[3].code)

    def test_a_comment_before_a_block_excuses_that_block_alone(self) -> None:
        self.assertEqual(["", "", "a fragment", "", ""], [block.excuse for block in doc_code.blocks(self.page(PAGE))])

    def test_blocks_of_cpp_become_files_and_programs_say_so(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(0, doc_code.main(["cpp", f"{self.folder}/out", str(self.page(PAGE))]))
        written = [Path(line) for line in printed.getvalue().splitlines()]
        self.assertEqual(["guide_1.cpp", "guide_5_program.cpp"], [path.name for path in written])
        self.assertEqual('#line 24 "guide.md"\nint main() {}\n// the end\n', written[1].read_text(encoding="utf-8"))

    def test_a_block_of_cmake_becomes_a_project_with_the_next_program(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(0, doc_code.main(["cmake", f"{self.folder}/out", str(self.page(PAGE))]))
        project = Path(printed.getvalue().strip())
        self.assertEqual("guide_4", project.name)
        self.assertIn("project(app)", (project / "CMakeLists.txt").read_text(encoding="utf-8"))
        self.assertEqual("int main() {}\n// the end\n", (project / "main.cpp").read_text(encoding="utf-8"))

    def test_what_is_as_it_should_be_is_left_alone(self) -> None:
        path = self.folder / "a.cpp"
        doc_code.write_if_changed(path, "int a;\n")
        before = path.stat().st_mtime_ns
        doc_code.write_if_changed(path, "int a;\n")
        self.assertEqual(before, path.stat().st_mtime_ns)

    def test_a_block_without_a_language_is_wrong(self) -> None:
        self.assertIn("2: a block of ''", self.wrong("```\nls\n```\n"))

    def test_a_shell_block_with_bad_syntax_is_wrong(self) -> None:
        self.assertIn("syntax error", self.wrong("```sh\nif true\n```\n"))

    def test_commands_of_the_build_are_known(self) -> None:
        self.assertEqual("", self.wrong("```sh\n./build.sh clean test --all  # all\n```\n"))
        self.assertIn("3: build.sh has no tset", self.wrong("```sh\n./build.sh demo\n./build.sh tset\n```\n"))
        self.assertEqual("", self.wrong("```sh\n./build.sh test include/rmm/error.hpp\n```\n"))
        self.assertIn("there is no include/rmm/eror.hpp", self.wrong("```sh\n./build.sh test include/rmm/eror.hpp\n```\n"))

    def test_presets_are_known(self) -> None:
        self.assertEqual("", self.wrong("```sh\nctest --preset sim -L long\n```\n"))
        self.assertIn("no preset simm", self.wrong("```sh\ncmake --preset simm\n```\n"))

    def test_files_of_the_repository_are_there(self) -> None:
        self.assertEqual("", self.wrong("```sh\npip install ./python/rmm\n```\n"))
        self.assertIn("there is no ./python/rmn", self.wrong("```sh\npip install ./python/rmn\n```\n"))

    def test_only_commands_of_a_console_are_looked_at(self) -> None:
        self.assertEqual("", self.wrong("```console\n$ ls\nif this ( were code\n```\n"))
        self.assertIn("syntax error", self.wrong("```console\n$ ls |\n```\n"))

    def test_python_is_parsed(self) -> None:
        self.assertEqual("", self.wrong("```python\nimport rmm\n```\n\n```python\n>>> 1 +\n```\n"))
        self.assertIn("3: not Python", self.wrong("```python\nimport rmm\nrmm.(\n```\n"))

    def test_a_block_of_c_is_a_part_of_the_file_that_it_names(self) -> None:
        named = "<!-- not compiled: a part of examples/c_interface/main.c -->\n```c\n{code}\n```\n"
        self.assertEqual("", self.wrong(named.format(code="  void* block;")))
        self.assertIn("examples/c_interface/main.c has no such lines", self.wrong(named.format(code="  void* blokc;")))
        self.assertIn("is a part", self.wrong("```rust\nfn main() {}\n```\n"))
        self.assertIn("is a part", self.wrong("<!-- not compiled: a part of examples/none.c -->\n```c\nint a;\n```\n"))

    def header(self, text: str) -> Path:
        folder = self.folder / "include" / "rmm"
        folder.mkdir(parents=True)
        header = folder / "thing.hpp"
        header.write_text(text, encoding="utf-8")
        return header

    def test_examples_of_a_header_become_functions_of_one_program(self) -> None:
        header = self.header(EXAMPLES)
        self.assertEqual([5, 11], [block.line for block in doc_code.examples(header)])
        program = doc_code.program_of_examples([header])
        self.assertTrue(program.startswith("#include <cstdio>\n#include <rmm/thing.hpp>\n#include <vector>\n"), program)
        self.assertIn('void rmm_thing_1()\n{\n#line 5 "rmm/thing.hpp"\n\nstd::vector<int> v;\n}\n', program)
        self.assertIn('void rmm_thing_2()\n{\n#line 11 "rmm/thing.hpp"\nif (true) {\n  run();\n}\n}\n', program)
        self.assertIn('  std::puts("rmm/thing.hpp:11");\n  rmm_thing_2();\n', program)

    def test_a_public_header_without_an_example_is_wrong(self) -> None:
        self.header("namespace rmm {}\n")
        self.assertIn("rmm/thing.hpp: there is no example", "\n".join(doc_code.without_example(self.folder)))

    def test_a_header_that_only_forwards_needs_no_example(self) -> None:
        header = self.header("#include <rmm/other.hpp>\n")
        self.assertNotIn(header, doc_code.public_headers(self.folder))

    def test_the_headers_of_this_repository_have_examples(self) -> None:
        self.assertEqual([], doc_code.without_example())

    def test_blocks_of_this_repository_are_all_in_order(self) -> None:
        self.assertEqual([], [line for page in doc_code.all_pages() for line in doc_code.wrong_in(page)])

    def test_no_two_blocks_of_this_repository_have_the_same_name(self) -> None:
        names = [block.name for page in doc_code.all_pages() for block in doc_code.blocks(page)]
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
