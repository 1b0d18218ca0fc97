# SPDX-License-Identifier: Apache-2.0
"""Plain-Markdown copies of the site's pages, and llms.txt, which lists them, for tools that read documentation."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

FENCE = re.compile(r"^(```+|~~~+).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"^( *)\.\. ([a-z:]+):: ?(.*)$")
DOC = re.compile(r":doc:`(?:[^`<]*<)?/?([^`>]+)>?`")
ROLE = re.compile(r":[a-z:]+:`~?([^`]+)`")
SUMMARY_END = re.compile(r"(?<=[.!?])\s")


def without_navigation(markdown: str) -> str:
    """Returns a page without the lists that make up the navigation."""
    return FENCE.sub(lambda match: "" if match.group(0).startswith("```{toctree}") else match.group(0), markdown).rstrip() + "\n"


def inline(text: str, folder: str) -> str:
    text = DOC.sub(lambda match: f"[{posixpath.basename(match.group(1))}]({posixpath.relpath(match.group(1), folder)}.md)", text)
    text = ROLE.sub(r"`\1`", text).replace("``", "`")
    return re.sub(r"\\(.)", lambda match: "" if match.group(1) == " " else match.group(1), text)


def from_reference(rst: str, folder: str) -> str:
    """Returns a page of the references as Markdown. These pages use few constructs of reStructuredText."""
    lines = rst.splitlines()
    out: list[str] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        below = lines[index + 1] if index + 1 < len(lines) else ""
        match = DIRECTIVE.match(line)
        if line.strip() and re.fullmatch(r"=+|-+|~+", below) and len(below) >= len(line):
            out.append({"=": "# ", "-": "## ", "~": "### "}[below[0]] + inline(line, folder))
            index += 1
        elif match is None:
            out.append(inline(line.strip(), folder))
        elif match.group(2) == "toctree":
            index += 1
            while index < len(lines) and (not lines[index].strip() or lines[index].startswith("   ")):
                name = lines[index].strip()
                if name and not name.startswith(":"):
                    out.append(f"- [{name}]({name}.md)")
                index += 1
            out.append("")
            continue
        elif not match.group(2).endswith("namespace") and match.group(2) != "py:module":
            signatures = [match.group(3)]
            margin = " " * (len(match.group(1)) + len(match.group(2)) + 6)
            while index + 1 < len(lines) and lines[index + 1].startswith(margin) and lines[index + 1].strip():
                index += 1
                signatures.append(lines[index].strip())
            level = "#" * min(6, 3 + len(match.group(1)) // 3)
            out += [f"{level} `{signature}`" for signature in signatures]
        index += 1
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip() + "\n"


def title_and_summary(markdown: str) -> tuple[str, str]:
    """Returns the heading of a page and its first sentence."""
    blocks = [block.strip() for block in re.split(r"\n\s*\n", FENCE.sub("", markdown)) if block.strip()]
    title = blocks[0].lstrip("# ") if blocks and blocks[0].startswith("#") else ""
    text = next((block for block in blocks[1:] if re.match(r"[\w`*\[]", block)), "")
    text = re.sub(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^()\s]+\)", r"\1", " ".join(text.split()))
    return title, SUMMARY_END.split(text, maxsplit=1)[0]


def write(source: Path, html: Path, parts: list[tuple[str, list[str]]]) -> None:
    """Writes a copy of each page of the parts beside its HTML, and llms.txt."""
    index = without_navigation((source / "index.md").read_text(encoding="utf-8"))
    (html / "index.md").write_text(index, encoding="utf-8")
    title, summary = title_and_summary(index)
    lines = [f"# {title}", "", f"> {summary}", "", "Each page below is plain Markdown.", ""]
    for part, names in parts:
        lines += [f"## {part}", ""]
        for name in names:
            folder = source / posixpath.dirname(name)
            below = sorted(folder.glob("*.rst")) if name.startswith("reference/") else []
            for page in [source / f"{name}.md"] if not below else below:
                own = page.relative_to(source).with_suffix(".md").as_posix()
                text = page.read_text(encoding="utf-8")
                text = from_reference(text, posixpath.dirname(own)) if below else without_navigation(text)
                (html / own).parent.mkdir(parents=True, exist_ok=True)
                (html / own).write_text(text, encoding="utf-8")
                title, summary = title_and_summary(text)
                lines.append(f"- [{title}]({own})" + (f": {summary}" if summary else ""))
        lines.append("")
    (html / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
