# SPDX-License-Identifier: Apache-2.0
"""Writes a copy of a Cython file whose docstrings begin with signatures, in the form that `inspect.signature` reads.

    add_signatures.py FILE.pyx COPY.pyx

Extension classes and their methods are C code, which has no signature but what its docstring says. Python takes the first
lines of such a docstring, up to one of two dashes, as the signature, and does not show them. Cython can write them for
functions, but not for classes, and not where a default is an object, for which `inspect` accepts `...` only. The lines keep
their numbers.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

_class = re.compile(r"cdef class (\w+)(\(.*\))?:$")
_function = re.compile(r"(?P<indent> *)(?:def|cpdef)\b[^(=]*?\b(?P<name>\w+)\(")
_end_of_header = re.compile(r"[^\n:]*:\n")


def end_of_parentheses(text: str, begin: int) -> int:
    """Returns the index of the parenthesis that closes the one at `begin`. No default may be a string with a parenthesis."""
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0:
            return at
    raise ValueError(f"not closed: {text[begin : begin + 60]!r}")


def split(text: str) -> list[str]:
    """Splits at the commas that are outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def literal(default: str) -> str:
    """Returns a default as a literal if it is a constant, or calculated from constants; else `...`."""
    tree = ast.parse(default, mode="eval")
    calculates = (ast.Expression, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    if not all(isinstance(node, calculates) for node in ast.walk(tree)):
        return "..."
    return repr(eval(compile(tree, "default", "eval"), {}))


def parameter(text: str) -> str:
    """Returns a Cython parameter without its type."""
    declared, equals, default = text.partition("=")
    name = re.sub(r"\s+(not|or) None\s*$", "", declared).split()[-1]
    return f"{name}={literal(default.strip())}" if equals else name


def signature(name: str, parameters: str, drops_self: bool, marks_self: bool) -> str:
    """Returns the first line of a docstring, which tells how to call `name`, and the lines that end the signature."""
    given = [parameter(each) for each in split(parameters)]
    if drops_self:
        given = given[1:]
    elif marks_self:
        given[0] = "$self"
    return f"{name}({', '.join(given)})\\n--\\n\\n"


def with_signatures(source: str) -> str:
    """Returns `source` with signatures in the docstrings of its extension classes, their methods, and its functions."""
    additions: list[tuple[int, str]] = []  # position and text

    def add(docstring: int, text: str) -> None:
        opening = re.compile(r'\s*"""').match(source, docstring)
        if opening is not None:
            additions.append((opening.end(), text))

    inside: str | None = None  # the extension class of the current line
    end_of_class_line, has_bases, is_constructed = 0, False, False
    decorators: list[str] = []

    def end_class() -> None:
        if inside is not None and not is_constructed and not has_bases:
            add(end_of_class_line, f"{inside}()\\n--\\n\\n")

    at = 0
    is_in_docstring = False
    for line in source.splitlines(keepends=True):
        begin, at = at, at + len(line)
        was_in_docstring = is_in_docstring
        if line.count('"""') % 2 == 1:
            is_in_docstring = not is_in_docstring
        if was_in_docstring or not line.strip() or line.lstrip().startswith("#"):
            continue
        if not line[0].isspace() and not line.startswith((")", "@")):
            end_class()
            inside = None
        if found := _class.match(line.rstrip()):
            inside, has_bases, is_constructed, end_of_class_line = found[1], bool(found[2]), False, at
        elif line.lstrip().startswith("@"):
            decorators.append(line.strip())
            continue
        elif found := _function.match(line):
            is_method = inside is not None and found["indent"] == "    "
            opening = begin + found.end() - 1
            closing = end_of_parentheses(source, opening)
            parameters = source[opening + 1 : closing]
            header = _end_of_header.match(source, closing + 1)
            is_property = any("property" in each or ".setter" in each for each in decorators)
            name = found["name"]
            if is_method and name in ("__cinit__", "__init__"):
                if not is_constructed:  # otherwise __cinit__ has given the signature
                    add(end_of_class_line, signature(str(inside), parameters, True, False))
                is_constructed = True
            elif (is_method or not found["indent"]) and not name.startswith("__") and not is_property and header:
                is_static = "@staticmethod" in decorators
                text = signature(name, parameters, False, is_method and not is_static)
                if not (is_static and "=..." in text):  # those are Python functions, which have signatures
                    add(header.end(), text)
        decorators.clear()
    end_class()

    text = source
    for where, addition in sorted(additions, reverse=True):
        text = text[:where] + addition + text[where:]
    return text


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(with_signatures(Path(sys.argv[1]).read_text(encoding="utf-8")), encoding="utf-8")
