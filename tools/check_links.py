#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks links: of Markdown pages, as they are read in the repository, and of a site.

    check_links.py [PAGE.md | FOLDER]...

A link within the repository has to name an existing file or folder, and its anchor a heading of that page. Of external links only the form
is checked, because this script does not use the network. Links in comments are not checked. A folder is a site: each link of its pages
has to name one of its files, and its anchor an element with that id. Without arguments, checks all pages of the repository.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[ \t]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(<?([^()\s>]+(?:\([^()]*\))?)>?(?:\s+\"[^\"]*\")?\)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
HEADING = re.compile(r"^#{1,6}[ \t]+(.*?)[ \t#]*$", re.MULTILINE)
HOST = re.compile(r"^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$")


def blanked(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group(0))


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings, in the form that the repository's viewer makes."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub(blanked, text)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        name, number = slug, 0
        while name in found:
            number += 1
            name = f"{slug}-{number}"
        found.add(name)
    return found


def wrong_outside(target: str) -> str:
    """Returns what is wrong with the form of an external link, or an empty text."""
    parts = urlsplit(target)
    if parts.scheme not in ("http", "https", "mailto"):
        return f"unknown kind of link '{target}'"
    if parts.scheme != "mailto" and not HOST.match(parts.hostname or ""):
        return f"no name of a host in '{target}'"
    return ""


def check_page(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    prose = COMMENT.sub(blanked, CODE.sub(blanked, FENCE.sub(blanked, text)))
    # Labels in `code` are blanked, but their brackets are kept, and so are the targets.
    wrong = []
    for match in LINK.finditer(prose):
        target = match.group(1)
        line = prose.count("\n", 0, match.start()) + 1
        problem = ""
        if re.match(r"[A-Za-z][A-Za-z+.-]*:", target):
            problem = wrong_outside(target)
        else:
            path, _, anchor = target.partition("#")
            to = (page.parent / unquote(path)).resolve() if path else page
            if not to.exists():
                problem = f"there is no '{target}'"
            elif anchor and to.suffix == ".md" and anchor not in anchors(to.read_text(encoding="utf-8")):
                problem = f"there is no heading '{anchor}' in {to.name}"
        if problem:
            wrong.append(f"{page}:{line}: {problem}")
    return wrong


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.ids: set[str] = set()
        self.targets: list[tuple[int, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (name == "name" and tag == "a"):
                self.ids.add(value or "")
            elif (name == "href" or name == "src") and value:
                self.targets.append((self.getpos()[0], value))


def check_site(folder: Path) -> list[str]:
    links: dict[Path, Links] = {}
    for page in sorted(folder.rglob("*.html")):
        links[page.resolve()] = Links()
        links[page.resolve()].feed(page.read_text(encoding="utf-8"))
    wrong = []
    for page, found in links.items():
        for line, target in found.targets:
            problem = ""
            if target.startswith("data:"):
                continue
            if re.match(r"[A-Za-z][A-Za-z+.-]*:|//", target):
                problem = wrong_outside(target)
            else:
                path, _, anchor = target.partition("#")
                path = path.partition("?")[0]
                to = (page.parent / unquote(path)).resolve() if path else page
                if not to.exists():
                    problem = f"there is no '{target}'"
                elif anchor and to in links and unquote(anchor) not in links[to].ids:
                    problem = f"there is no '{anchor}' in {to.name}"
            if problem:
                wrong.append(f"{page.relative_to(folder.resolve())}:{line}: {problem}")
    return wrong


def pages_of_repository(root: Path = ROOT) -> list[Path]:
    """Returns the pages in root, without pages of other projects in build folders and virtual environments."""
    skipped = {"build", "dist", ".cache", "install", "_skbuild", ".git"}
    environments = {marker.parent for marker in root.rglob("pyvenv.cfg")}
    return sorted(page for page in root.rglob("*.md")
                  if not skipped.intersection(page.relative_to(root).parts[:-1]) and environments.isdisjoint(page.parents))


def main(arguments: list[str] | None = None) -> int:
    names = sys.argv[1:] if arguments is None else arguments
    wrong: list[str] = []
    for path in [Path(name) for name in names] or pages_of_repository():
        wrong += check_site(path) if path.is_dir() else check_page(path)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
