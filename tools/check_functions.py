#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the functions of the library that are too long or too complex (cyclomatic complexity). Needs lizard, from PyPI."""

from __future__ import annotations

import pathlib
import re
import sys

import lizard

MOST_LINES = 60
MOST_WAYS = 20  # cyclomatic complexity
FOLDERS = ("include", "python/rmm/rmm")


def functions_of(path: pathlib.Path) -> list[lizard.FunctionInfo]:
    # lizard takes `class alignas(64) name {` for a function.
    code = re.sub(r"\balignas\([^()]*\)", "", path.read_text(encoding="utf-8"))
    found: list[lizard.FunctionInfo] = lizard.analyze_file.analyze_source_code(str(path), code).function_list
    return found


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    count = 0
    too_large = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.hpp")):
            for function in functions_of(path):
                count += 1
                if function.length > MOST_LINES or function.cyclomatic_complexity > MOST_WAYS:
                    too_large.append(
                        f"{path.relative_to(root)}:{function.start_line}: {function.name} has {function.length} lines"
                        f" and {function.cyclomatic_complexity} ways through it"
                    )
    print("\n".join(too_large), end="\n" if too_large else "")
    print(f"{count} functions, {len(too_large)} with more than {MOST_LINES} lines or {MOST_WAYS} ways through them")
    return 1 if too_large or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
