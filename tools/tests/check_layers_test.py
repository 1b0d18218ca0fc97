# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check_layers.py on small trees of headers."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOOLS))

import check_layers  # noqa: E402


class CheckLayers(unittest.TestCase):
    def check(self, is_whole: bool = False, **headers: str) -> list[str]:
        """Returns the problems of a tree with these headers; `a__b` names the header rmm/a/b.hpp."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in headers.items():
                file = Path(folder, "rmm", name.replace("__", "/") + ".hpp")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return check_layers.check(Path(folder), is_whole)

    def test_downward_and_sideways_includes_are_fine(self) -> None:
        self.assertEqual([], self.check(
            error="#include <rmm/detail/export.hpp>\n#include <stdexcept>\n",
            detail__export="#pragma once\n",
            detail__cuda__device="#include <cuda_runtime_api.h>\n#include <rmm/error.hpp>\n"))

    def test_an_upward_include_is_reported_with_its_line(self) -> None:
        self.assertEqual(
            ["rmm/error.hpp:2: layer 4 includes <rmm/cuda_stream.hpp> of layer 5"],
            self.check(error="#pragma once\n#include <rmm/cuda_stream.hpp>\n", cuda_stream=""))

    def test_an_unknown_header_is_reported(self) -> None:
        self.assertIn("in no layer", self.check(detail__nowhere__x="")[0])

    def test_a_missing_header_is_reported(self) -> None:
        self.assertIn("does not exist", self.check(error="#include <rmm/gone.hpp>\n")[0])

    def test_foreign_headers_have_a_lowest_layer(self) -> None:
        self.assertIn("the CUDA runtime may be used from layer 4 on",
                      self.check(detail__heap__x="#include <cuda_runtime_api.h>\n")[0])
        self.assertIn("Thrust and CUB may be used from layer 9 on",
                      self.check(device_buffer="#  include <thrust/copy.h>\n")[0])
        self.assertIn("the logging library may be used from layer 9 on",
                      self.check(mr__pool_memory_resource="#include <spdlog/spdlog.h>\n")[0])
        self.assertEqual([], self.check(mr__logging_resource_adaptor="#include <spdlog/spdlog.h>\n"))

    def test_an_unknown_foreign_header_is_reported(self) -> None:
        self.assertIn("not in the table of foreign headers", self.check(error="#include <boost/any.hpp>\n")[0])

    def test_memory_resource_of_libcudacxx_has_one_door(self) -> None:
        self.assertEqual([], self.check(detail__cuda_mr="#include <cuda/memory_resource>\n"))
        self.assertIn("detail/cuda_mr.hpp only", self.check(resource_ref="#include <cuda/memory_resource>\n")[0])

    def test_a_friend_of_elsewhere_is_reported(self) -> None:
        self.assertEqual(
            ["rmm/error.hpp:3: declares parts, which no header defines"],
            self.check(error="// struct parts {};\nclass error {\n  friend struct detail::parts;\n};\n"))
        self.assertEqual([], self.check(error="class error {\n  friend struct detail::parts;\n};\n",
                                        detail__error="struct parts final : base {\n};\n"))

    def test_a_declaration_of_elsewhere_is_reported(self) -> None:
        self.assertEqual(["rmm/error.hpp:2: declares parts, which no header defines"],
                         self.check(error="template <class T>\nstruct parts;\n"))

    def test_a_friend_or_declaration_of_a_higher_layer_is_reported(self) -> None:
        for declaration in ("struct buffer;\n", "class error {\n  friend class buffer;\n};\n",
                            "class error {\n  friend mr::buffer<error>;\n};\n"):
            with self.subTest(declaration):
                problems = self.check(error=declaration, device_buffer="template <class T>\nclass buffer {\n};\n")
                self.assertEqual(1, len(problems), problems)
                self.assertIn("layer 4 declares buffer of layer 8", problems[0])
        self.assertEqual([], self.check(device_buffer="struct error;\n", error="struct error {\n};\n"))
        self.assertEqual([], self.check(error="class memory_report;\n", memory_report="class memory_report {\n};\n"))

    def test_a_header_of_detail_that_no_header_includes_is_reported(self) -> None:
        unused = self.check(is_whole=True, detail__heap__x="", error="", detail__nvtx__ranges="")
        self.assertEqual(["rmm/detail/heap/x.hpp:1: no header includes it; what only a tool needs belongs to that tool"], unused)
        self.assertEqual([], self.check(is_whole=True, detail__heap__x="", error="#include <rmm/detail/heap/x.hpp>\n"))

    def test_what_is_shipped_includes_nothing_of_the_benchmarks(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            tool = Path(folder, "tools", "trace", "main.cpp")
            tool.parent.mkdir(parents=True)
            tool.write_text("#include <tools/recorded/pickle.hpp>\n", encoding="utf-8")
            self.assertEqual([], check_layers.benchmarks_included(Path(folder)))
            for include in ("<benchmarks/utilities/options.hpp>", '"../../benchmarks/replay.cpp"'):
                tool.write_text(f"\n#include {include}\n", encoding="utf-8")
                self.assertEqual(["tools/trace/main.cpp:2: includes a file of benchmarks/, which is not shipped"],
                                 check_layers.benchmarks_included(Path(folder)))

    def test_only_the_cuda_folder_calls_cuda(self) -> None:
        self.assertEqual([], self.check(detail__cuda__memory="void f() { cudaFree(nullptr); }\n"))
        self.assertEqual(["rmm/device_buffer.hpp:2: calls cudaFree; only detail/cuda calls CUDA"],
                         self.check(device_buffer="\nvoid f() { cudaFree(nullptr); }\n"))
        self.assertIn("calls cuMemMap", self.check(device_buffer="int i = cuMemMap (0);\n")[0])

    def test_names_comments_and_types_are_no_calls(self) -> None:
        self.assertEqual([], self.check(device_buffer='// cudaFree(p)\n/* cudaFree(p)\n */ char const* s = "cudaFree(p)";\n'
                                                      "cudaStream_t f(cudaStream_t(0));\n"))

    def test_a_header_may_include_its_own_checks(self) -> None:
        self.assertEqual([], self.check(detail__base__a="#include <rmm/detail/base/a_validation.hpp>\n",
                                        detail__base__a_validation="#include <rmm/detail/base/a.hpp>\n"))

    def test_a_cycle_is_reported(self) -> None:
        problems = self.check(detail__base__a="#include <rmm/detail/base/b.hpp>\n",
                              detail__base__b="#include <rmm/detail/base/a.hpp>\n")
        self.assertEqual(1, len(problems))
        self.assertIn("include each other", problems[0])

    def test_an_empty_tree_is_no_success(self) -> None:
        self.assertIn("no headers", self.check()[0])

    def test_atomic_variables_need_an_argument(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "c/src/a.cpp")
            file.parent.mkdir(parents=True)
            for text, problems in (("// std::atomic\nint a;\n", 0),
                                   ("// The order of b:\n\nstd::atomic<int> b{0};\n", 1),
                                   ("// Order: relaxed, because b guards no data\nstd::atomic<int> b{0};\n", 0)):
                file.write_text(text, encoding="utf-8")
                found = check_layers.unargued_orders(Path(folder))
                self.assertEqual(problems, len(found), text)
                self.assertTrue(all(line.startswith("c/src/a.cpp:3: ") for line in found), found)

    def test_our_own_headers_are_found(self) -> None:
        problems = check_layers.check(TOOLS.parent / "include", is_whole=True)
        self.assertEqual([], [line for line in problems if "in no layer" in line or "no header includes" in line])
        self.assertEqual([], check_layers.benchmarks_included(TOOLS.parent))
        self.assertEqual([], check_layers.unargued_orders(TOOLS.parent))


if __name__ == "__main__":
    unittest.main()
