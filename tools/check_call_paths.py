#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the drawings of call paths in docs/design.md: each function exists in the named file, and calls those drawn below it.

    check_call_paths.py [PAGE] [INCLUDE]

A drawing is a code block whose first line is `calls:`. Each further line is `name  file`, with the file below include/rmm; the function
calls those that are indented below it. Text after a `|` is for the reader only.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DRAWING = re.compile(r"^```\w*\ncalls:\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^( *)([\w:~]+)\s+(\S+)(?:\s*\|.*)?$")


@dataclass(frozen=True)
class Call:
    """A line of a drawing."""

    depth: int
    name: str
    file: str


def calls_in(drawing: str) -> list[Call]:
    """Returns the lines of a drawing."""
    calls = []
    for line in drawing.splitlines():
        if not line.strip():
            continue
        found = LINE.match(line)
        if found is None:
            raise ValueError(f"not a line of a drawing: {line!r}")
        calls.append(Call(len(found[1]), found[2], found[3]))
    return calls


def bodies_of(text: str, name: str) -> list[str]:
    """Returns the bodies of all functions of that name that a file defines."""
    text = re.sub(r"//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", "", text)
    bodies = []
    for found in re.finditer(rf"(?<![\w.>]){re.escape(name)}\s*\(", text):
        at = matching(text, found.end() - 1, "(", ")")
        head = re.match(r"[\s\w]*(?:noexcept(?:\([^)]*\))?)?[\s\w]*\{", text[at:])
        if head is None:
            continue
        begin = at + head.end() - 1
        bodies.append(text[begin : matching(text, begin, "{", "}")])
    return bodies


def matching(text: str, begin: int, opening: str, closing: str) -> int:
    """Returns the position behind the bracket that closes the one at `begin`."""
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] == opening) - (text[at] == closing)
        if depth == 0:
            return at + 1
    return len(text)


def errors_of(calls: list[Call], include: Path) -> list[str]:
    """Returns the errors of a drawing."""
    errors = []
    callers: list[Call] = []
    for call in calls:
        while callers and callers[-1].depth >= call.depth:
            callers.pop()
        path = include / "rmm" / call.file
        bodies = bodies_of(path.read_text(), call.name.rpartition("::")[2]) if path.is_file() else []
        if not bodies:
            errors.append(f"{call.name} is not defined in {call.file}")
        elif callers:
            caller = callers[-1]
            name = call.name.rpartition("::")[2]
            of_caller = bodies_of((include / "rmm" / caller.file).read_text(), caller.name.rpartition("::")[2])
            if not any(re.search(rf"\b{re.escape(name)}\s*\(", body) for body in of_caller):
                errors.append(f"{caller.name} in {caller.file} does not call {call.name}")
        callers.append(call)
    return errors


def main(arguments: list[str]) -> int:
    page = Path(arguments[0]) if arguments else ROOT / "docs" / "design.md"
    include = Path(arguments[1]) if len(arguments) > 1 else ROOT / "include"
    drawings = [calls_in(found) for found in DRAWING.findall(page.read_text())]
    errors = [error for calls in drawings for error in errors_of(calls, include)]
    if not drawings:
        errors.append(f"{page} has no drawing of calls")
    for error in errors:
        print(error)
    print(f"{len(drawings)} drawings, {sum(map(len, drawings))} calls, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
