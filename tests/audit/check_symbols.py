#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What librmm_audit.so shows to a process, and what it asks of it.

    check_symbols.py [--readelf PROGRAM] --functions driver_functions.hpp LIBRARY

It defines dlsym(), the functions of the driver in its table, and two functions for programs. It needs the C library alone: a preloaded library that
needed the C++ library would choose that of the program. It is never unloaded.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

C_LIBRARY = re.compile(r"(libc|libdl|libpthread|libm|librt|ld-linux[\w-]*)\.so\.\d+")


def complaints(symbols: str, dynamic: str, functions: str) -> list[str]:
    """A line for each thing that is wrong."""
    expected = {"dlsym", "rmm_audit_library_v1", "rmm_audit_report", *re.findall(r"^ *X\((cu\w+),", functions, re.MULTILINE)}
    defined = set()
    wrong = []
    for line in symbols.splitlines():
        words = line.split()
        if len(words) < 8 or not words[0].rstrip(":").isdigit() or words[6] == "UND":
            continue
        defined.add(words[7])
        if words[4] == "UNIQUE":
            wrong.append(f"shares {words[7]} with all loaded objects (STB_GNU_UNIQUE)")
    wrong += [f"shows {name}, which is not in the table" for name in sorted(defined - expected)]
    wrong += [f"lacks {name}" for name in sorted(expected - defined)]
    wrong += [f"needs {name}" for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic) if not C_LIBRARY.fullmatch(name)]
    if not re.search(r"\(FLAGS_1\).*NODELETE", dynamic):
        wrong.append("can be unloaded, while programs have its functions")
    return wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("--functions", type=Path, required=True)
    parser.add_argument("library", type=Path)
    chosen = parser.parse_args(arguments)

    def read(option: str) -> str:
        return subprocess.run(
            [chosen.readelf, "--wide", option, chosen.library], check=True, capture_output=True, text=True
        ).stdout

    wrong = complaints(read("--dyn-syms"), read("--dynamic"), chosen.functions.read_text(encoding="utf-8"))
    for line in wrong:
        print(f"{chosen.library.name} {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
