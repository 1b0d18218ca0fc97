# SPDX-License-Identifier: Apache-2.0
"""Tests of the parts of tools/site that need neither Doxygen nor Sphinx."""

from __future__ import annotations

import ast
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOOLS / "site"), str(TOOLS)]

import build_site  # noqa: E402
import cpp_reference  # noqa: E402
import python_reference  # noqa: E402

ROOT = TOOLS.parent
KNOWN = {"README.md", "docs/a.md", "docs/b.md", "examples/README.md"}


class LayingOut(unittest.TestCase):
    def laid_out(self, text: str, page: str = "docs/a.md", url: str = "") -> str:
        return build_site.laid_out(text, page, KNOWN, url)

    def test_links_between_pages_stay(self) -> None:
        self.assertEqual("[b](b.md#x) [top](#top)", self.laid_out("[b](b.md#x) [top](#top)"))

    def test_the_start_page_is_the_index(self) -> None:
        self.assertEqual("[start](../index.md)", self.laid_out("[start](../README.md)"))

    def test_a_folder_with_a_page_is_that_page(self) -> None:
        self.assertEqual("[x](../examples/README.md)", self.laid_out("[x](../examples)"))

    def test_links_to_other_files_become_text_or_links_to_the_sources(self) -> None:
        self.assertEqual("`include/rmm` and text", self.laid_out("[include/rmm](../include/rmm) and [text](../LICENSE)"))
        self.assertEqual(
            "[x](https://example.org/r/include/rmm)", self.laid_out("[x](../include/rmm)", url="https://example.org/r/")
        )

    def test_the_page_that_becomes_the_index_has_its_links_from_there(self) -> None:
        text = self.laid_out("[a](a.md) [examples](../examples) ![plot](plots/x.svg) <!-- site: [C++](reference/cpp/index.rst) -->", "docs/index.md")
        self.assertEqual("[a](docs/a.md) [examples](examples/README.md) ![plot](docs/plots/x.svg) [C++](reference/cpp/index.rst)", text)

    def test_code_is_left_alone(self) -> None:
        code = "```cpp\n[x](../include/rmm)\n```\n"
        self.assertEqual(code, self.laid_out(code))

    def test_every_page_is_in_the_navigation(self) -> None:
        listed = [name + ".md" for _, names in build_site.parts(ROOT) for name in names]
        for page in build_site.pages(ROOT):
            if page not in build_site.START:
                self.assertEqual(1, listed.count(page), page)


class CppReference(unittest.TestCase):
    def test_every_public_header_is_on_one_page(self) -> None:
        cpp_reference.check_topics(cpp_reference.public_headers(ROOT))
        listed = [header for _, headers in cpp_reference.TOPICS.values() for header in headers]
        self.assertEqual(len(listed), len(set(listed)))

    def test_a_header_that_is_on_none_is_named(self) -> None:
        with self.assertRaisesRegex(cpp_reference.BadReference, "rmm/mr/new.hpp: on no page"):
            cpp_reference.check_topics([*cpp_reference.public_headers(ROOT), "rmm/mr/new.hpp"])

    def test_text_keeps_its_code_and_links_pages_of_the_guide(self) -> None:
        para = ElementTree.fromstring("<para>Takes <computeroutput>n*</computeroutput> bytes_t; see docs/pools.md.</para>")
        self.assertEqual("Takes ``n*`` bytes\\_t; see :doc:`/docs/pools`\\ .", cpp_reference.inline(para))

    def test_signatures_are_what_a_caller_needs(self) -> None:
        member = ElementTree.fromstring(
            '<memberdef kind="function" static="yes" explicit="no"><templateparamlist><param><type>class</type><declname>T</declname>'
            "<defval>int</defval></param></templateparamlist><type>std::vector&lt; T &gt;</type>"
            "<definition>x</definition><argsstring>(int n=3) const noexcept</argsstring><name>f</name></memberdef>"
        )
        self.assertEqual(
            "template <class T = int> static std::vector<T> f(int n=3) const noexcept", cpp_reference.function_signature(member)
        )

    def test_overloads_without_a_text_stand_with_the_one_before(self) -> None:
        entries = [
            ("f", [".. cpp:function:: void f(int)", "", "   Text.", ""]),
            ("f", [".. cpp:function:: void f(char)", "", ""]),
            ("g", [".. cpp:function:: void g()", "", ""]),
            ("f", [".. cpp:function:: void f(long)", "", "   Other text.", ""]),
        ]
        first = [".. cpp:function:: void f(int)", "                  void f(char)", "", "   Text.", ""]
        self.assertEqual([first, entries[2][1], entries[3][1]], cpp_reference.joined(entries))

    def test_twins_without_a_text_stand_with_the_one_before(self) -> None:
        entries = [(name, [f".. cpp:function:: {name}", "", *text, ""]) for name, text in (
            ("end", ["   Text."]), ("cend", [""]), ("operator==", ["   Text."]), ("operator!=", [""]), ("cend", [""]))]
        self.assertEqual([entries[0][1][0], entries[2][1][0], entries[4][1][0]], [lines[0] for lines in cpp_reference.joined(entries)])

    def lines(self, xml: str, header: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "x.xml").write_text(f"<doxygen>{xml}</doxygen>", encoding="utf-8")
            return "\n".join(cpp_reference.Reference(Path(folder)).header_lines(header))

    def test_a_class_shows_its_public_bases_also_those_behind_detail(self) -> None:
        def compound(name: str, bases: str) -> str:
            return (
                f'<compounddef kind="class" id="{name}" prot="public"><compoundname>{name}</compoundname>{bases}'
                '<location file="rmm/x.hpp" line="1"/></compounddef>')

        base = '<basecompoundref refid="{0}" prot="{1}" virt="non-virtual">{0}</basecompoundref>'
        detail = compound("rmm::detail::d", base.format("rmm::b", "public") + base.format("rmm::p", "private"))
        lines = self.lines(
            compound("rmm::x", base.format("rmm::detail::d", "public") + base.format("rmm::c", "public")) + detail, "rmm/x.hpp")
        self.assertIn(".. cpp:class:: x : public rmm::b, public rmm::c\n", lines)

    def test_functions_to_override_are_shown_though_they_are_private(self) -> None:
        def function(name: str, arguments: str) -> str:
            return (
                f'<memberdef kind="function" id="{name}" prot="private" static="no" virt="virtual"><type>void</type><name>{name}</name>'
                f"<argsstring>{arguments}</argsstring><briefdescription><para>Text.</para></briefdescription>"
                '<location file="rmm/x.hpp" line="2"/></memberdef>')

        lines = self.lines(
            '<compounddef kind="class" id="x" prot="public"><compoundname>rmm::x</compoundname><sectiondef>' + function("do_it", "()=0")
            + function("do_that", "() override") + '</sectiondef><location file="rmm/x.hpp" line="1"/></compounddef>', "rmm/x.hpp")
        self.assertIn("virtual void do_it() = 0", lines)
        self.assertNotIn("do_that", lines)

    def test_macros_of_another_file_are_shown_with_the_header_that_brings_them(self) -> None:
        def macro(name: str) -> str:
            return (
                f'<memberdef kind="define" id="{name}" prot="public" static="no"><name>{name}</name><briefdescription><para>Text.</para>'
                '</briefdescription><location file="rmm/detail/logger_frontend.hpp" line="2"/></memberdef>')

        lines = self.lines(
            '<compounddef kind="file" id="f"><compoundname>logger_frontend.hpp</compoundname><sectiondef>' + macro("RMM_LOG_INFO")
            + macro("RMM_DETAIL_LOG") + "</sectiondef></compounddef>", "rmm/logger_macros.hpp")
        self.assertIn(".. c:macro:: RMM_LOG_INFO", lines)
        self.assertNotIn("RMM_DETAIL_LOG", lines)

    def test_public_functions_without_a_text_are_noted(self) -> None:
        def function(line: int, name: str, text: str = "", protection: str = "public", arguments: str = "()") -> str:
            return (
                f'<memberdef kind="function" id="m{line}" prot="{protection}" static="no" virt="non-virtual"><type>void</type>'
                f"<name>{name}</name><argsstring>{arguments}</argsstring><briefdescription>{text}</briefdescription>"
                f'<location file="rmm/x.hpp" line="{line}"/></memberdef>')

        members = "".join([
            function(1, "commented", "<para>Text.</para>"), function(2, "commented", arguments="(int)"), function(3, "bare"),
            function(4, "hidden", protection="private"), function(5, "given", arguments="() override"), function(6, "~x"),
            function(7, "commented", arguments="(char)")])
        xml = (
            '<doxygen><compounddef kind="class" id="x" prot="public"><compoundname>rmm::x</compoundname><sectiondef>' + members +
            '</sectiondef><location file="rmm/x.hpp" line="1"/></compounddef><compounddef kind="namespace" id="n">'
            "<compoundname>rmm</compoundname><sectiondef>" + function(20, "free") + "</sectiondef></compounddef></doxygen>")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "x.xml").write_text(xml, encoding="utf-8")
            reference = cpp_reference.Reference(Path(folder))
        reference.header_lines("rmm/x.hpp")
        self.assertEqual(
            [f"rmm/x.hpp:{place}: a public function without a comment"
             for place in ("3: rmm::x::bare", "7: rmm::x::commented", "20: rmm::free")], reference.uncommented)


class PythonReference(unittest.TestCase):
    def package(self, stub: str, source: str) -> python_reference.Package:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        (Path(folder.name) / "m.pyi").write_text(stub, encoding="utf-8")
        (Path(folder.name) / "m.pyx").write_text(source, encoding="utf-8")
        return python_reference.Package(Path(folder.name))

    def test_signatures_come_from_the_stub_and_texts_from_the_source(self) -> None:
        package = self.package(
            "class C(_B):\n    def __new__(cls, n: int = 1) -> Self: ...\n    def f(self, x: int) -> str: ...\n"
            "class _B:\n    @property\n    def p(self) -> int: ...\n",
            'cdef class C(_B):\n    """A C."""\n    def f(self, x):\n        """Does `x`.\n\n        More.\n        """\n'
            'cdef class _B:\n    @property\n    def p(self):\n        """The p."""\n',
        )
        lines = "\n".join(python_reference.page_lines(package, "rmm.m", "Things", []))
        self.assertIn(".. py:class:: C(n: int=1)\n\n   A C.", lines)
        self.assertIn("   .. py:method:: f(x: int) -> str\n\n      Does ``x``.\n\n      More.", lines)
        self.assertIn("   .. py:property:: p\n      :type: int\n\n      The p.", lines)

    def test_every_public_class_of_the_package_has_a_text(self) -> None:
        package = python_reference.Package(ROOT / "python" / "rmm" / "rmm")
        without = []
        for name, _, only in python_reference.PAGES.values():
            module = package.module(name)
            for own in only or module.exported:
                place = package.find(name, own) if not own.startswith("_") else None
                if place and not place[0].text(place[0].definitions[place[1]][0], place[1]):
                    without.append(f"{name}.{own}")
        self.assertEqual([], without)

    @staticmethod
    def wrong_types(package: python_reference.Package, module_name: str) -> list[str]:
        """Returns the parameters whose types in docstring and stub differ in the built-in classes that they name."""
        module = package.module(module_name)
        wrong = []
        for owner in [module.tree, *(node for node in module.tree.body if isinstance(node, ast.ClassDef))]:
            inside = owner.name if isinstance(owner, ast.ClassDef) else ""
            for node in owner.body:
                if not isinstance(node, ast.FunctionDef):
                    continue
                name = inside if node.name in python_reference.CONSTRUCTORS else f"{inside}.{node.name}".lstrip(".")
                described = dict(re.findall(r"^(\w+) : (.+)$", module.texts.get(name, ""), re.MULTILINE))
                for argument in [*node.args.args, *node.args.kwonlyargs]:
                    if argument.annotation is None or argument.arg not in described:
                        continue
                    builtin = re.compile(r"\b(int|float|str|bool)\b")
                    types = set(builtin.findall(re.sub(r"\[.*\]", "", ast.unparse(argument.annotation))))
                    if types and types != set(builtin.findall(described[argument.arg])):
                        wrong.append(f"{name}: {argument.arg} is {ast.unparse(argument.annotation)}, not {described[argument.arg]}")
        return wrong

    def test_types_in_docstrings_are_those_of_the_stubs(self) -> None:
        stub = "class C:\n    def __new__(cls, n: int | str = 1) -> Self: ...\n    def f(self, x: int) -> str: ...\n"
        source = (
            'cdef class C:\n    """A C.\n\n    n : int, optional\n    """\n'
            '    def f(self, x):\n        """Does `x`.\n\n        x : int\n        """\n'
        )
        self.assertEqual(["C: n is int | str, not int, optional"], self.wrong_types(self.package(stub, source), "rmm.m"))
        package = python_reference.Package(ROOT / "python" / "rmm" / "rmm")
        stubs = [file.relative_to(package.folder.parent).with_suffix("") for file in package.folder.rglob("*.pyi")]
        self.assertGreater(len(stubs), 10)
        wrong = [line for stub in stubs for line in self.wrong_types(package, ".".join(stub.parts))]
        self.assertEqual([], wrong)

    def test_every_public_class_and_module_of_the_package_is_there(self) -> None:
        package = python_reference.Package(ROOT / "python" / "rmm" / "rmm")
        shown = {name for name, _, _ in python_reference.PAGES.values()}
        missing = []
        for name in shown:
            for own in package.module(name).exported:
                below = package.folder.joinpath(*f"{name}.{own}".split(".")[1:])
                is_module = below.is_dir() or below.with_suffix(".py").exists()
                is_class = own[0].isupper() and not own.isupper()
                if f"{name}.{own}" not in shown if is_module else is_class and package.find(name, own) is None:
                    missing.append(f"{name}.{own}")
        self.assertEqual([], missing)


if __name__ == "__main__":
    unittest.main()
