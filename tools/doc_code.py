#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the C++ of a Markdown page into files that a compiler can check.

    doc_code.py PAGE.md FOLDER

Each block of the page that begins with ```cpp becomes FOLDER/PAGE_N.cpp, N its number in the page, with #line directives, so
that the compiler names lines of the page. A block is what a file could be: it has its includes, and its statements are in
functions. Files that are already as they should be are left alone; the names of all are printed.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"^```cpp[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[int, str]]:
    """(line of the first line of code, code) of each block."""
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in BLOCK.finditer(text)]


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Writes the C++ of a Markdown page into files.")
    parser.add_argument("page", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)

    found = blocks(options.page.read_text(encoding="utf-8"))
    if not found:
        print(f"{options.page}: no block of C++", file=sys.stderr)
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    for number, (line, code) in enumerate(found, 1):
        path = options.folder / f"{options.page.stem}_{number}.cpp"
        write_if_changed(path, f'#line {line} "{options.page.name}"\n{code}')
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
