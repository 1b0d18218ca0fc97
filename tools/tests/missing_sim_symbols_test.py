# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/missing_sim_symbols.py, on small libraries and programs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parent.parent / "missing_sim_symbols.py"


class MissingSimSymbols(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.compile("libsim.so", "void cudaMalloc() {} void cudaFree() {}", "-shared", "-fPIC")
        cls.compile("libreal.so", "void cudaMalloc() {} void cudaFree() {} void cudaExtra() {} void helper() {}", "-shared", "-fPIC")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    @classmethod
    def compile(cls, name: str, code: str, *options: str) -> str:
        """Compiles C code to a file and returns its path."""
        output = str(Path(cls.folder.name, name))
        subprocess.run(["cc", "-w", "-x", "c", "-", "-o", output, *options], input=code, text=True, check=True)
        return output

    def run_tool(self, *arguments: str) -> tuple[int, str]:
        simulator = str(Path(self.folder.name, "libsim.so"))
        result = subprocess.run([sys.executable, str(TOOL), "--simulator", simulator, *arguments], capture_output=True, text=True)
        return result.returncode, result.stdout

    def test_an_object_that_needs_only_what_there_is(self) -> None:
        file = self.compile("good.o", "void cudaMalloc(); void own(); void f() { cudaMalloc(); own(); }", "-c")
        self.assertEqual((0, "1 files, 1 symbols of the runtime, 0 missing\n"), self.run_tool(file))

    def test_an_object_that_needs_more(self) -> None:
        file = self.compile("bad.o", "void cudaExtra(); void __cudaHidden(); void f() { cudaExtra(); __cudaHidden(); }", "-c")
        status, output = self.run_tool(file)
        self.assertEqual(1, status)
        self.assertIn(f"{file}: __cudaHidden\n{file}: cudaExtra\n", output)

    def test_what_an_object_defines_itself_is_not_needed(self) -> None:
        file = self.compile("own.o", "void cudaExtra() {} void f() { cudaExtra(); }", "-c")
        self.assertEqual(0, self.run_tool(file)[0])

    def test_a_program_linked_to_another_runtime(self) -> None:
        file = self.compile("program", "void cudaExtra(); int main() { cudaExtra(); }", "-x", "none", f"-L{self.folder.name}", "-lreal")
        status, output = self.run_tool(file)
        self.assertEqual(1, status)
        self.assertIn(f"{file}: cudaExtra\n", output)

    def test_a_runtime_with_more_symbols(self) -> None:
        status, output = self.run_tool("--runtime", str(Path(self.folder.name, "libreal.so")))
        self.assertEqual(1, status)
        self.assertIn("libreal.so: cudaExtra\n1 files, 3 symbols of the runtime, 1 missing\n", output)

    def test_an_unreadable_file(self) -> None:
        self.assertEqual(2, self.run_tool(str(TOOL))[0])
        self.assertEqual(2, self.run_tool(str(TOOL.with_suffix(".gone")))[0])


if __name__ == "__main__":
    unittest.main()
