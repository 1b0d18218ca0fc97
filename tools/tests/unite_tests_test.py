# SPDX-License-Identifier: Apache-2.0
"""Tests of cmake/rmm_unite_tests.cmake, which combines several files of tests into a large one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "cmake/rmm_unite_tests.cmake"
PROGRAM = """\
#include "{header}"

#include <string>

namespace {{
int const number = {number};
int use() {{ return number + from_header; }}
}}  // namespace
"""


@unittest.skipUnless(shutil.which("cmake"), "needs CMake")
class UniteTestsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        (self.folder / "deep").mkdir()
        (self.folder / "header.hpp").write_text("#pragma once\ninline int const from_header = 1;\n", encoding="utf-8")
        self.sources = [self.folder / "a_tests.cpp", self.folder / "deep/b_tests.cpp"]
        for number, (source, header) in enumerate(zip(self.sources, ("header.hpp", "../header.hpp"), strict=True)):
            source.write_text(PROGRAM.format(header=header, number=number), encoding="utf-8")
        self.unit = self.folder / "unit.cpp"

    def write_unit(self) -> str:
        sources = ";".join(map(str, self.sources))
        subprocess.run(["cmake", f"-Dunit={self.unit}", f"-Dsources={sources}", "-P", str(SCRIPT)], check=True)
        return self.unit.read_text(encoding="utf-8")

    def can_be_united(self, text: str) -> bool:
        (self.folder / "c_tests.cpp").write_text(text, encoding="utf-8")
        script = self.folder / "script.cmake"
        script.write_text(
            f'set(CMAKE_SCRIPT_MODE_FILE "")\ninclude("{SCRIPT}")\nrmm_can_be_united("{self.folder}/c_tests.cpp" answer)\nmessage("${{answer}}")\n',
            encoding="utf-8")
        done = subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True, check=True)
        return done.stderr.strip() == "TRUE"

    def test_each_file_keeps_its_names_to_itself(self) -> None:
        unit = self.write_unit()
        self.assertEqual(1, unit.count(f'#include "{self.folder}/header.hpp"'), unit)
        self.assertEqual(1, unit.count("#include <string>"), unit)

    def test_headers_of_the_library_come_first(self) -> None:
        self.sources[1].write_text("#include <tests/one.hpp>\n\n#include <rmm/two.hpp>\n", encoding="utf-8")
        unit = self.write_unit()
        self.assertTrue(unit.startswith("#include <rmm/two.hpp>\n"), unit)
        self.assertEqual(1, unit.count("rmm/two.hpp"))
        for number, source in enumerate(self.sources, 1):
            self.assertIn(f'namespace unit_{number} {{\n#include "{source}"\n}}', unit)

    @unittest.skipUnless(shutil.which("c++"), "needs a compiler")
    def test_files_with_the_same_names_compile_together(self) -> None:
        self.write_unit()
        subprocess.run(["c++", "-std=c++17", "-fsyntax-only", str(self.unit)], check=True)

    @unittest.skipUnless(shutil.which("c++"), "needs a compiler")
    def test_a_file_may_declare_names_in_the_namespace_of_fixtures(self) -> None:
        (self.folder / "header.hpp").write_text(
            "#pragma once\nnamespace rmm {\nstruct pool {};\nnamespace test {\nstruct fixture {};\n}\n}\n", encoding="utf-8")
        for source, header in zip(self.sources, ("header.hpp", "../header.hpp"), strict=True):
            source.write_text(f'#include "{header}"\n\nnamespace rmm::test {{\nstruct own {{ pool p; fixture f; }};\n}}  // namespace rmm::test\n\n'
                              "namespace {\nusing rmm::pool;\nrmm::test::own a;\nrmm::test::fixture b;\n}  // namespace\n", encoding="utf-8")
        self.write_unit()
        subprocess.run(["c++", "-std=c++17", "-fsyntax-only", str(self.unit)], check=True)

    def test_a_unit_that_does_not_change_is_not_written_again(self) -> None:
        self.write_unit()
        os.utime(self.unit, (1, 1))
        self.write_unit()
        self.assertEqual(1, self.unit.stat().st_mtime)
        self.sources[0].write_text("#include <vector>\n", encoding="utf-8")
        self.assertIn("#include <vector>", self.write_unit())

    def test_files_that_need_to_be_alone_are_left_alone(self) -> None:
        for text in ('// a; b\n#include "a.hpp"\n\n#define AFTERWARDS 1\nnamespace {\n}\n', "#include <a.hpp>\nnamespace rmm::test {\n}\n",
                     "#include <a.hpp>\nvoid* make() { return ::operator new(1); }\n"):
            self.assertTrue(self.can_be_united(text), text)
        for text in ("#define FIRST\n#include <a.hpp>\n", "// a\n#undef FIRST\n#include <a.hpp>\n",
                     "#include <a.hpp>\n#ifdef A\n#include <b.hpp>\n#endif\n", "#include <a.hpp>\nnamespace rmm {\n}\n", "#include <a.hpp>\nvoid* operator new(std::size_t);\n",
                     "#include <a.hpp>\ntemplate class rmm::pool<int>;\n", "#include <a.hpp>\nbool rmm::test::fails() { return true; }\n"):
            self.assertFalse(self.can_be_united(text), text)


if __name__ == "__main__":
    unittest.main()
