#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the table of resources and adaptors, include/rmm/mr/detail/resource_table.inc, and checks what its rows need elsewhere.

    resource_table.py [FOLDER]     FOLDER is the repository; default: this one

Prints the missing places of each resource or adaptor, a line for each; the exit status is 1 if there are any.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path("include/rmm/mr/detail/resource_table.inc")
RULES = Path("include/rmm/mr/detail/configuration_rules.hpp")
PAGE = Path("docs/configuration.md")
BINDINGS = Path("python/rmm/rmm/pylibrmm/memory_resource")
WITHOUT_BINDING = ("scrub_resource_adaptor",)  # Python has it as an option of configurations only

ROW = re.compile(
    r"^RMM_(?:RESOURCE\((?P<name>\w+), (?P<type>\w+), (?P<topic>[\w-]+),|ADAPTOR\((?P<option>\w+), (?P<adaptor>\w+),"
    r"|NOT_CONFIGURED\((?P<other>\w+), (?P<its_topic>[\w-]+)\))(?P<rest>.*?)(?=^RMM_|^#undef)",
    re.MULTILINE | re.DOTALL,
)
RULE = re.compile(r'option_rule(?: (?P<shared>\w+))?\{\s*"(?P<name>\w+)"')


@dataclass(frozen=True)
class Row:
    name: str  # in configurations; empty if it cannot be configured
    type: str  # the class; empty: the row stands for others
    topic: str  # the page of the reference
    options: tuple[str, ...]
    is_adaptor: bool

    @property
    def header(self) -> str:
        return f"rmm/mr/{self.type}.hpp"

    @property
    def python_class(self) -> str:
        return "".join(word.capitalize() for word in self.type.split("_"))


def rows(root: Path = ROOT) -> list[Row]:
    """Returns the rows in their order."""
    shared = {
        match["shared"]: match["name"]
        for match in RULE.finditer((root / RULES).read_text(encoding="utf-8"))
        if match["shared"]
    }
    found = []
    for match in ROW.finditer((root / TABLE).read_text(encoding="utf-8")):
        options = [(each.start(), each["name"]) for each in RULE.finditer(match["rest"])]
        options += [
            (each.start(), name)
            for word, name in shared.items()
            for each in re.finditer(rf"\b{word}\b", match["rest"])
        ]
        type_name = match["type"] or match["adaptor"] or match["other"]
        found.append(
            Row(
                match["name"] or match["option"] or "",
                "" if type_name == "none" else type_name,
                match["topic"] or match["its_topic"] or "adaptors",
                tuple(name for _, name in sorted(options)),
                match["option"] is not None or type_name.endswith("_adaptor"),
            )
        )
    return found


def headers_of(topic: str, root: Path = ROOT) -> list[str]:
    """Returns the table's headers on a page of the reference."""
    return [row.header for row in rows(root) if row.topic == topic and row.type]


def lacks(row: Row, root: Path) -> list[str]:
    """Returns the places that a row lacks, each with what is missing there."""
    missing = []
    table = (root / TABLE).read_text(encoding="utf-8")
    if row.name and row.name not in row.options and row.is_adaptor:
        missing.append(f"{TABLE}: no option '{row.name}', which the adaptor is named after")
    if row.type:
        header = root / "include" / row.header
        if not header.is_file() or not re.search(rf"\bclass {row.type}\b", header.read_text(encoding="utf-8")):
            missing.append(f"include/{row.header}: the class {row.type}")
        if row.name and f"#include <{row.header}>" not in table:
            missing.append(f"{TABLE}: #include <{row.header}>")
        if not any(row.type in file.read_text(encoding="utf-8") for file in sorted((root / "tests" / "rmm").rglob("*_tests.cpp"))):
            missing.append(f"tests/rmm/mr/{row.type}_tests.cpp: its tests")
    if row.name:
        page = (root / PAGE).read_text(encoding="utf-8")
        lines = [line for line in page.splitlines() if re.match(rf"\| `{row.name}(?:=[^`]*)?` \|", line)]
        if not lines:
            missing.append(f"{PAGE}: a row for `{row.name}`")
        elif absent := [name for name in row.options if not re.search(rf"`{name}[`=]", lines[0])]:
            missing.append(f"{PAGE}: options in the row of `{row.name}`: {', '.join(absent)}")
    if row.type and row.type not in WITHOUT_BINDING:
        for ending, what in ((".pyx", "the class"), (".pyi", "the types of the class")):
            pattern = re.compile(rf"^(?:cdef )?class {row.python_class}\b", re.MULTILINE)
            if not any(pattern.search(file.read_text(encoding="utf-8")) for file in sorted((root / BINDINGS).glob(f"*{ending}"))):
                missing.append(f"{BINDINGS}/*{ending}: {what} {row.python_class}")
    return missing


def problems(root: Path = ROOT) -> list[str]:
    """Returns what the rows lack elsewhere, and the classes of the library that the table lacks."""
    table = rows(root)
    found = [f"{row.name or row.type}: missing in {place}" for row in table for place in lacks(row, root)]
    known = {row.type for row in table}
    for header in sorted((root / "include/rmm/mr").glob("*_*.hpp")):
        is_one = header.stem.endswith(("_memory_resource", "_resource_adaptor"))
        if is_one and header.stem not in known and header.stem not in ("device_memory_resource", "is_resource_adaptor"):
            found.append(f"{header.stem}: missing in {TABLE}: a row")
    return found


def main() -> int:
    found = problems(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
