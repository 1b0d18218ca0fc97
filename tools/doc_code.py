#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the code in the pages of the documentation and in the comments of headers, and writes it to files to be compiled and run.

    doc_code.py check [PAGE]...         every block is of a known kind and well formed; without PAGE: of all pages
    doc_code.py cpp FOLDER [PAGE]...    writes the C++ blocks to FOLDER/PAGE_N.cpp, programs to PAGE_N_program.cpp
    doc_code.py cmake FOLDER [PAGE]...  writes each CMake block as the CMakeLists.txt of a project FOLDER/PAGE_N
    doc_code.py pages                   prints all pages; `cpp` and `cmake` print what they wrote
    doc_code.py examples FILE           writes the examples of all public headers to FILE, as one program

The language of a block decides how it is checked:

    cpp      a file by itself: compiled; with a main(), run on the simulator
    cmake    a project by itself: configured against the installed package, built and run. Its sources are the program that
             the page shows next
    python   run on the simulator, all blocks of a page in one interpreter; doctests are compared with what they print
    sh       checked: its syntax, and that the files, commands of build.sh and presets that it names exist
    console  lines that begin with `$ ` are checked like sh; the rest is output
    text     output, or a grammar
    c, rust  a part of a file that other tests compile: the comment in the line before the block names the file, which contains these
             lines in a row

A block that cannot be checked that way has a comment in the line before it that says why:

    <!-- not run: needs PyTorch -->
    <!-- not compiled: a fragment of another project's file -->
    <!-- not compiled: a part of examples/c_interface/main.c -->

An example in a comment of a header is the text between `@code{.cpp}` and `@endcode`: #include lines, then statements, which become
a function of the program. Each public header has an example, unless WITHOUT_EXAMPLE says why not; `check` looks for it.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LANGUAGES = ("cpp", "cmake", "python", "sh", "console", "text", "c", "rust")
PARTS_OF_FILES = ("c", "rust")
FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```[ \t]*$", re.MULTILINE | re.DOTALL)
EXCUSE = re.compile(r"<!-- not (run|compiled): (.*?) -->\s*\Z")
PART = re.compile(r"a part of (\S+)")
MAIN = re.compile(r"^int main\(", re.MULTILINE)
EXAMPLE = re.compile(r"^ *///[^\n]*@code\{\.cpp\}\n(.*?)^ */// @endcode", re.MULTILINE | re.DOTALL)

WITHOUT_EXAMPLE = {
    "rmm/device_vector.hpp": "elements are initialised by kernels, which nvcc compiles: tests/compile/thrust.cu",
    "rmm/exec_policy.hpp": "algorithms are kernels, which nvcc compiles: tests/compile/thrust.cu",
    "rmm/logger.hpp": "needs spdlog, which is not installed everywhere",
}


@dataclass(frozen=True)
class Block:
    page: Path
    number: int  # among all blocks of the page, from 1
    line: int  # of the first line of code
    language: str
    code: str
    excuse: str  # why it is not run, or not compiled; empty if it is

    @property
    def name(self) -> str:
        """Returns a file name: the page's, with its folder if several pages share a name."""
        stem = self.page.stem.lower()
        if stem == "readme" and self.page.resolve().parent != ROOT:
            stem = f"{self.page.resolve().parent.name}_{stem}"
        return f"{stem}_{self.number}"

    @property
    def is_program(self) -> bool:
        return self.language == "cpp" and MAIN.search(self.code) is not None

    def complaint(self, text: str, line: int = 0) -> str:
        return f"{self.page}:{self.line + line}: {text}"


def all_pages(root: Path = ROOT) -> list[Path]:
    named = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "benchmarks/README.md",
        "c/README.md",
        "examples/README.md",
        "packaging/README.md",
        "python/rmm/README.md",
        "python/rmm_rapids/README.md",
    ]
    return [root / name for name in named if (root / name).exists()] + sorted((root / "docs").glob("*.md"))


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for number, match in enumerate(FENCE.finditer(text), 1):
        indent, language, code = match.groups()
        code = "".join(line.removeprefix(indent) for line in code.splitlines(keepends=True))
        excuse = EXCUSE.search(text[: match.start()])
        line = text.count("\n", 0, match.start(3)) + 1
        found.append(Block(page, number, line, language.strip(), code, excuse.group(2) if excuse else ""))
    return found


# --- examples of headers ------------------------------------------------------------------------------------------------


def public_headers(root: Path = ROOT) -> list[Path]:
    """Returns the headers that programs include, without those that only forward to another header."""
    include = root / "include" / "rmm"
    found = [header for folder in ("", "mr", "mr/host") for header in sorted((include / folder).glob("*.hpp"))]
    found += (include / "detail").glob("cuda_stream.hpp")  # the class of rmm/cuda_stream.hpp
    return [header for header in found if "namespace" in header.read_text(encoding="utf-8")]


def name_of_header(header: Path) -> str:
    return header.as_posix().rpartition("include/")[2]


def examples(header: Path) -> list[Block]:
    text = header.read_text(encoding="utf-8")
    found = []
    for number, match in enumerate(EXAMPLE.finditer(text), 1):
        code = re.sub(r"^ */// ?", "", match.group(1), flags=re.MULTILINE)
        found.append(Block(header, number, text.count("\n", 0, match.start(1)) + 1, "cpp", code, ""))
    return found


def program_of_examples(headers: list[Path]) -> str:
    """Returns one program that runs all examples, and prints the place of each before it runs, so that a failure shows its place."""
    includes = ["#include <cstdio>\n"]
    functions = []
    calls = []
    for header in headers:
        name = name_of_header(header)
        for block in examples(header):
            lines = block.code.splitlines(keepends=True)
            own = [line for line in lines if line.startswith("#include ")]
            includes += [f"#include <{name}>\n", *own]
            body = "".join("\n" if line in own else line for line in lines)
            function = re.sub(r"\W", "_", name.removesuffix(".hpp")) + f"_{block.number}"
            functions.append(f'\nvoid {function}()\n{{\n#line {block.line} "{name}"\n{body}}}\n')
            calls.append(f'  std::puts("{name}:{block.line}");\n  {function}();\n')
    return f"{''.join(dict.fromkeys(includes))}\nnamespace {{\n{''.join(functions)}\n}}\n\nint main()\n{{\n{''.join(calls)}}}\n"


def without_example(root: Path = ROOT) -> list[str]:
    headers = {name_of_header(header): header for header in public_headers(root)}
    bare = {name for name, header in headers.items() if not examples(header)}
    wrong = [f"{headers[name]}: there is no example (@code{{.cpp}}) in a comment" for name in sorted(bare - set(WITHOUT_EXAMPLE))]
    return wrong + [f"tools/doc_code.py: {name} needs no excuse" for name in sorted(set(WITHOUT_EXAMPLE) - bare)]


# --- checking -----------------------------------------------------------------------------------------------------------


def commands_of_build(root: Path) -> set[str]:
    """Returns the words that build.sh accepts."""
    text = (root / "build.sh").read_text(encoding="utf-8")
    return {
        word.strip()
        for words in re.findall(r"^ +((?:[\w-]+ \| )+[\w-]+)\) WANTED", text, re.MULTILINE)
        for word in words.split("|")
    }


def wrong_shell(block: Block, root: Path) -> list[str]:
    code = block.code
    if block.language == "console":
        code = "".join(line[2:] + "\n" if line.startswith("$ ") else "\n" for line in code.splitlines())
    checked = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
    if checked.returncode != 0:
        return [block.complaint(checked.stderr.strip())]
    wrong = []
    presets = {
        preset["name"] for preset in json.loads((root / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
    }
    for number, line in enumerate(code.splitlines()):
        words = line.partition("#")[0].split()
        for index, word in enumerate(words):
            following = words[index + 1 :]
            if word == "./build.sh":
                for argument in following:
                    if argument in ("&&", ";", "|"):
                        break
                    if re.fullmatch(r"include/.*\.hpp", argument):
                        if not (root / argument).exists():
                            wrong.append(block.complaint(f"there is no {argument}", number))
                    elif argument.partition("=")[0] not in commands_of_build(root) | {"--help", "--cmake-args"}:
                        wrong.append(block.complaint(f"build.sh has no {argument}", number))
            elif word == "--preset" and following and following[0] not in presets:
                wrong.append(block.complaint(f"there is no preset {following[0]}", number))
            elif re.match(r"(\./)?(tools|python|tests|examples|packaging|docs)/", word) and not (root / word).exists():
                wrong.append(block.complaint(f"there is no {word}", number))
    return wrong


def wrong_python(block: Block) -> list[str]:
    if re.search(r"^>>> ", block.code, re.MULTILINE):
        return []  # a doctest: running it checks it
    try:
        ast.parse(block.code)
    except SyntaxError as error:
        return [block.complaint(f"not Python: {error.msg}", (error.lineno or 1) - 1)]
    return []


def wrong_part(block: Block, root: Path) -> list[str]:
    named = PART.fullmatch(block.excuse)
    if not named or not (root / named[1]).is_file():
        return [block.complaint(f"a block of '{block.language}' says of which file of the repository it is a part")]
    if block.code not in (root / named[1]).read_text(encoding="utf-8"):
        return [block.complaint(f"{named[1]} has no such lines")]
    return []


def wrong_in(page: Path, root: Path = ROOT) -> list[str]:
    """Returns what is wrong with the blocks of a page, a line for each error."""
    wrong = []
    for block in blocks(page):
        if block.language not in LANGUAGES:
            wrong.append(block.complaint(f"a block of '{block.language}'; there are {', '.join(LANGUAGES)}"))
        elif block.language in ("sh", "console") and not block.excuse:
            wrong += wrong_shell(block, root)
        elif block.language == "python":
            wrong += wrong_python(block)
        elif block.language in PARTS_OF_FILES:
            wrong += wrong_part(block, root)
    return wrong


# --- writing ------------------------------------------------------------------------------------------------------------


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_cpp(folder: Path, pages: list[Path]) -> list[Path]:
    """Writes the blocks with #line directives, so that the compiler names lines of the page."""
    written = []
    for block in (block for page in pages for block in blocks(page)):
        if block.language == "cpp" and not block.excuse:
            path = folder / f"{block.name}{'_program' if block.is_program else ''}.cpp"
            write_if_changed(path, f'#line {block.line} "{block.page.name}"\n{block.code}')
            written.append(path)
    return written


def write_cmake(folder: Path, pages: list[Path]) -> list[Path]:
    written = []
    for page in pages:
        found = blocks(page)
        for block in found:
            if block.language != "cmake" or block.excuse:
                continue
            project = folder / block.name
            program = next(
                (later.code for later in found if later.number > block.number and later.is_program), "int main() {}\n"
            )
            write_if_changed(project / "CMakeLists.txt", block.code)
            for source in re.findall(r"[\w/]+\.cpp\b", block.code):
                write_if_changed(project / source, program)
            written.append(project)
    return written


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    command, rest = (words[0], words[1:]) if words else ("", [])
    if command == "pages":
        print(*all_pages(), sep="\n")
        return 0
    if command == "check":
        wrong = [line for page in [Path(name) for name in rest] or all_pages() for line in wrong_in(page)]
        wrong += [] if rest else without_example()
        for line in wrong:
            print(line, file=sys.stderr)
        return 1 if wrong else 0
    if command == "examples" and len(rest) == 1:
        Path(rest[0]).write_text(program_of_examples(public_headers()), encoding="utf-8")
        return 0
    if command in ("cpp", "cmake") and rest:
        pages = [Path(name) for name in rest[1:]] or all_pages()
        written = (write_cpp if command == "cpp" else write_cmake)(Path(rest[0]), pages)
        print(*written, sep="\n")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
