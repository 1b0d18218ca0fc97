# SPDX-License-Identifier: Apache-2.0
"""A new resource needs six places, and a check names each missing one. Tested with a resource in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
ROOT = TOOLS.parent
sys.path[:0] = [str(TOOLS), str(TOOLS / "tests")]

import add_example_resource as example  # noqa: E402
import check_headers  # noqa: E402
import check_layers  # noqa: E402
import header_cost  # noqa: E402
import resource_table  # noqa: E402

# Makes the resource by its name. A shared library, because it may lack functions of the runtime that it does not call.
PROGRAM = """
#include <rmm/mr/configured_resource.hpp>

#include <new>

extern "C" cudaError_t cudaGetDevice(int* device)
{
  *device = 0;
  return cudaSuccess;
}

extern "C" cudaError_t cudaGetDeviceCount(int* count)
{
  *count = 1;
  return cudaSuccess;
}

extern "C" int run()
{
  rmm::mr::configured_resource const made{"example,most=1KiB,statistics"};
  made->deallocate(made->allocate(1024), 1024);
  try {
    static_cast<void>(made->allocate(1025));
  } catch (std::bad_alloc const&) {
    return made.find<rmm::mr::example_memory_resource>() != nullptr ? 0 : 2;
  }
  return 1;
}
"""


class NewResource(unittest.TestCase):
    def make_copy(self) -> Path:
        """Copies the files in which a resource needs places, and those that the table is compared with."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for part in ("include", "tests/rmm", "docs", resource_table.BINDINGS):
            shutil.copytree(ROOT / part, Path(folder.name, part), ignore=shutil.ignore_patterns("plots", "figures", "measurements"))
        return Path(folder.name)

    def test_the_repository_lacks_nothing(self) -> None:
        self.assertEqual([], resource_table.problems())

    def test_six_places_make_a_resource_that_a_configuration_names(self) -> None:
        copy = self.make_copy()
        example.add(copy)
        self.assertEqual([], resource_table.problems(copy))
        self.assertEqual([], check_layers.check(copy / "include", is_whole=True))
        library = copy / "library.so"
        folders = [word for folder in check_headers.toolkit_folders() for word in ("-isystem", str(folder))]
        command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O0", "-fPIC", "-shared", "-x", "c++", "-", *check_headers.DEFINITIONS,
                   "-DRMM_WITHOUT_SPDLOG", f"-I{copy / 'include'}", *folders, "-o", str(library), "-ldl", "-pthread",
                   "-Wl,-z,lazy"]
        built = subprocess.run(command, input=PROGRAM, capture_output=True, text=True, check=False)
        self.assertEqual(0, built.returncode, built.stderr)
        run = f"import ctypes, sys; sys.exit(ctypes.CDLL({str(library)!r}, mode=1).run())"  # RTLD_LAZY
        self.assertEqual(0, subprocess.run([sys.executable, "-c", run], check=False).returncode)

    def test_the_place_that_is_left_out_is_named(self) -> None:
        copy = self.make_copy()
        before = {place: (copy / place).read_text(encoding="utf-8") for place in example.PLACES if (copy / place).exists()}
        example.add(copy)
        after = {place: (copy / place).read_text(encoding="utf-8") for place in example.PLACES}
        for place in example.PLACES:
            with self.subTest(place):
                if place in before:
                    (copy / place).write_text(before[place], encoding="utf-8")
                else:
                    (copy / place).unlink()
                problems = resource_table.problems(copy)
                (copy / place).write_text(after[place], encoding="utf-8")
                self.assertEqual(1, len(problems), problems)
                named = place if "/_host." not in place else re.sub(r"_host(\.\w+)$", r"*\1", place)
                self.assertIn(named, problems[0])
                self.assertRegex(problems[0], r"^example(_memory_resource)?: missing in ")

    def test_the_places_are_those_of_the_guide(self) -> None:
        guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        section = guide.partition("### A resource\n")[2].partition("\n### ")[0]
        self.assertEqual(6, len(example.PLACES))
        self.assertEqual(6, len(re.findall(r"^\d\. ", section, re.MULTILINE)))
        for place in example.PLACES:
            self.assertIn(re.sub(r"example_memory", "x_memory", re.sub(r"_host(\.\w+)$", r"_family\1", place)), section)

    def test_the_cost_of_a_new_header_is_that_of_its_kind(self) -> None:
        recorded = {"rmm/mr/cuda_memory_resource.hpp": header_cost.Cost(100), "rmm/mr/pool_memory_resource.hpp": header_cost.Cost(900)}
        new = "rmm/mr/managed_memory_resource.hpp"  # on the page of cuda_memory_resource
        self.assertEqual([], header_cost.problems(recorded, recorded | {new: header_cost.Cost(100)}))
        self.assertIn("at most 100", header_cost.problems(recorded, recorded | {new: header_cost.Cost(101)})[0])


if __name__ == "__main__":
    unittest.main()
