#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the symbols that librmm_c.so exports and needs.

    check_symbols.py [--readelf PROGRAM] --header rmm.h LIBRARY

The library defines the functions of its header, under one version, and nothing else: no class of RMM, no template of the C++ library,
no variable that all loaded objects share (STB_GNU_UNIQUE), no note by which other copies of RMM would find its state. The symbols that
it needs come from the C and C++ libraries or the CUDA runtime, or are weak: a statically linked C++ library names some that may be
missing. The library's soname has the major version of the header.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

VERSION_NODE = "RMM_C_1"
# Versions of the system and of the CUDA runtime. Functions of the simulator have no version.
KNOWN_VERSIONS = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC)_[\w.]+|libcudart\.so\.\d+")
WITHOUT_VERSION = re.compile(r"cu(da)?[A-Z]\w+|_ITM_\w+|__gmon_start__|")


@dataclass(frozen=True)
class Symbol:
    binding: str
    section: str
    name: str
    version: str

    @property
    def is_defined(self) -> bool:
        return self.section != "UND"


def dynamic_symbols(text: str) -> list[Symbol]:
    """Parses the output of `readelf --dyn-syms --wide`."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 7 or not words[0].rstrip(":").isdigit() or not words[0].endswith(":"):
            continue
        name, _, version = (words[7] if len(words) > 7 else "").partition("@")
        found.append(Symbol(words[4], words[6], name, version.lstrip("@")))
    return found


def functions_of(header: str) -> set[str]:
    return set(re.findall(r"RMM_C_API [^(;]*?\b(rmm_c_\w+)\(", header))


def complaints(symbols: list[Symbol], dynamic: str, sections: str, header: str) -> list[str]:
    """Returns a line for each fault."""
    wrong = []
    expected = functions_of(header)
    defined = {symbol.name for symbol in symbols if symbol.is_defined} - {VERSION_NODE}
    wrong += [f"shows {name}, which is not in the header" for name in sorted(defined - expected)]
    wrong += [f"lacks {name}" for name in sorted(expected - defined)]
    for symbol in symbols:
        if symbol.binding == "UNIQUE":
            wrong.append(f"shares {symbol.name} with all loaded objects (STB_GNU_UNIQUE)")
        elif symbol.is_defined and symbol.name in expected and (symbol.version, symbol.binding) != (VERSION_NODE, "GLOBAL"):
            wrong.append(f"{symbol.name} is {symbol.binding} with version '{symbol.version}'")
        elif not symbol.is_defined:
            known = KNOWN_VERSIONS if symbol.version else WITHOUT_VERSION
            if symbol.binding != "WEAK" and not known.fullmatch(symbol.version or symbol.name):
                wrong.append(f"needs {symbol.name}, of '{symbol.version}'")
    major = re.search(r"define RMM_C_VERSION_MAJOR (\d+)", header)
    soname = re.search(r"\(SONAME\).*\[(.*)\]", dynamic)
    if not major or not soname or soname[1] != f"librmm_c.so.{major[1]}":
        wrong.append(f"is called {soname[1] if soname else 'nothing'}, while the header is of version {major[1] if major else '?'}")
    if not re.search(r"\(FLAGS_1\).*NODELETE", dynamic):
        wrong.append("can be unloaded, while blocks may still be given back")
    if ".note.rmm" in sections:
        wrong.append("has notes by which other copies of RMM find its state")
    return wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("--header", type=Path, required=True)
    parser.add_argument("library", type=Path)
    chosen = parser.parse_args(arguments)

    def read(*options: str) -> str:
        return subprocess.run(
            [chosen.readelf, "--wide", *options, chosen.library], check=True, capture_output=True, text=True
        ).stdout

    wrong = complaints(
        dynamic_symbols(read("--dyn-syms")), read("--dynamic"), read("--sections"), chosen.header.read_text(encoding="utf-8")
    )
    for line in wrong:
        print(f"{chosen.library.name} {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
