# SPDX-License-Identifier: Apache-2.0
"""Runs the Python code in the pages of the documentation, all blocks of a page in one interpreter."""

from __future__ import annotations

import doctest
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

root = Path(__file__).resolve().parents[3]


def doc_code() -> ModuleType | None:
    """Imports tools/doc_code.py, which finds the blocks. Returns None if the package is without its repository."""
    file = root / "tools" / "doc_code.py"
    if not file.exists():
        return None
    spec = importlib.util.spec_from_file_location("doc_code", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["doc_code"] = module
    spec.loader.exec_module(module)
    return module


def pages() -> list[Path]:
    tool = doc_code()
    if tool is None:
        return []
    return [page for page in tool.all_pages() if any(block.language == "python" for block in tool.blocks(page))]


def program(page: Path) -> str:
    """Returns the blocks as one program whose errors name lines of the page. Doctests run at their place."""
    tool = doc_code()
    assert tool is not None
    lines = ["import doctest, rmm"]
    for block in tool.blocks(page):
        if block.language != "python" or block.excuse:
            continue
        padded = "\n" * (block.line - 1) + block.code
        if block.code.startswith(">>>"):
            arguments = f"{block.code!r}, globals(), {page.name!r}, {page.name!r}, {block.line - 1}"
            test = f"doctest.DocTestParser().get_doctest({arguments})"
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            lines.append(
                f"assert doctest.DocTestRunner(optionflags={flags}).run({test}, clear_globs=False).failed == 0"
            )
        else:
            lines.append(f"exec(compile({padded!r}, {page.name!r}, 'exec'), globals())")
    return "\n".join(lines)


def case(page: Path) -> Any:
    """A page, whose program may run after others unless it changes the allocators of frameworks."""
    return pytest.param(
        page, marks=pytest.mark.program(shares="allocators.enable(" not in program(page), takes_long=True)
    )


def program_of(test: pytest.Function) -> list[str]:
    return ["-c", program(Path(str(test.callspec.params["page"])))]


@pytest.mark.parametrize("page", [case(page) for page in pages()], ids=lambda page: page.relative_to(root).as_posix())
def test_code_of_pages_runs(page: Path, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
