#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the prose of the documentation: sentences of at most 35 words, sizes of pages, and the beginnings and ends of pages.

    check_prose.py [PAGE.md]...

A word is a text between blanks. Code, tables, comments and the targets of links do not count; code within a sentence is one word.
A guide page (docs/*.md) begins with a heading and a sentence on its purpose, and ends with a line `Next: ...` that has two links.
Without arguments, checks the pages of the repository, and the limits on their lines.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MOST_WORDS = 35
MOST_LINES = {"README.md": 147, "CONTRIBUTING.md": 150, "docs/benchmarks.md": 150, "docs/reliability.md": 150}
MOST_LINES_OF_GUIDE = 3000

FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1[ \t]*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
TAG = re.compile(r"</?[a-z][^>\n]*>")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^()\s]+(?:\([^()]*\))?\)")
ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s+")
END = re.compile(r"(?<=[.!?])[)\"'*_]*(?=\s|$)")


@dataclass(frozen=True)
class Sentence:
    line: int
    text: str

    @property
    def words(self) -> int:
        return len(self.text.split())


def blanked(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group(0))


def plain(text: str) -> str:
    """Returns the text without the parts that do not count, with the same number of lines."""
    text = COMMENT.sub(blanked, FENCE.sub(blanked, text))
    text = CODE.sub(lambda match: "code" + "\n" * match.group(0).count("\n"), text)
    return TAG.sub("", LINK.sub(lambda match: match.group(1), text))


def paragraphs(text: str) -> list[tuple[int, str]]:
    """Returns paragraphs, items of lists and headings, each with its first line."""
    found: list[tuple[int, str]] = []
    fresh = True
    for number, line in enumerate(plain(text).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("|"):
            fresh = True
        elif line.startswith("#"):
            found.append((number, line.lstrip("# ")))
            fresh = True
        elif line.startswith("    ") and fresh:
            continue  # indented code
        else:
            words = ITEM.sub("", line)
            if fresh or words != line:
                found.append((number, words.strip()))
            else:
                found[-1] = (found[-1][0], found[-1][1] + "\n" + line.strip())
            fresh = False
    return found


def sentences(text: str) -> list[Sentence]:
    found = []
    for first, paragraph in paragraphs(text):
        begin = 0
        for end in [match.end() for match in END.finditer(paragraph)] + [len(paragraph)]:
            sentence = paragraph[begin:end]
            if sentence.strip():
                skipped = len(sentence) - len(sentence.lstrip())
                line = first + paragraph.count("\n", 0, begin + skipped)
                found.append(Sentence(line, " ".join(sentence.split())))
            begin = end
    return found


def wrong_sentences(page: Path) -> list[str]:
    return [
        f"{page}:{sentence.line}: a sentence of {sentence.words} words, at most {MOST_WORDS}: {sentence.text[:60]}..."
        for sentence in sentences(page.read_text(encoding="utf-8"))
        if sentence.words > MOST_WORDS
    ]


def wrong_frame(page: Path) -> list[str]:
    """Returns what is wrong with the beginning and the end of a guide page."""
    lines = [line for line in COMMENT.sub("", page.read_text(encoding="utf-8")).splitlines() if line.strip()]
    wrong = []
    if len(lines) < 3 or not lines[0].startswith("# ") or not re.match(r"[A-Z`*\[]", lines[1]):
        wrong.append(f"{page}:1: does not begin with a heading and a sentence")
    last = lines[-1] if lines else ""
    if not last.startswith("Next: ") or len(LINK.findall(last)) != 2:
        wrong.append(f"{page}: does not end with `Next:` and two links")
    return wrong


def wrong_sizes(root: Path) -> list[str]:
    sizes = {name: len((root / name).read_text(encoding="utf-8").splitlines()) for name in MOST_LINES if (root / name).exists()}
    wrong = [f"{name}: {size} lines, at most {MOST_LINES[name]}" for name, size in sizes.items() if size > MOST_LINES[name]]
    total = sum(len(page.read_text(encoding="utf-8").splitlines()) for page in (root / "docs").glob("*.md"))
    if total > MOST_LINES_OF_GUIDE:
        wrong.append(f"docs/*.md: {total} lines together, at most {MOST_LINES_OF_GUIDE}")
    return wrong


def pages(root: Path) -> list[Path]:
    named = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "python/rmm/README.md", "python/rmm_rapids/README.md",
             "packaging/README.md", "examples/README.md", "benchmarks/README.md", "c/README.md", "tools/recorded/README.md"]
    return [root / name for name in named if (root / name).exists()] + sorted((root / "docs").rglob("*.md"))


def check(root: Path) -> list[str]:
    wrong = [line for page in pages(root) for line in wrong_sentences(page)]
    wrong += [line for page in sorted((root / "docs").glob("*.md")) for line in wrong_frame(page)]
    return wrong + wrong_sizes(root)


def main(arguments: list[str] | None = None) -> int:
    names = sys.argv[1:] if arguments is None else arguments
    wrong = [line for name in names for line in wrong_sentences(Path(name))] if names else check(ROOT)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
