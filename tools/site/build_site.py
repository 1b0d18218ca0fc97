#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the site: the pages of the repository, and the references of C++ and Python.

    build_site.py [--output build/docs] [--source-url URL]

The pages are laid out in OUTPUT/source as they lie in the repository, README.md as the start page; Sphinx makes OUTPUT/html of
them. Links to files that are no pages become links to URL/FILE, or plain text where no URL is given. Warnings of Doxygen and
Sphinx are errors, and so are public functions of C++ without a comment, and links and anchors of the finished pages that lead
nowhere.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import check_links  # noqa: E402
import cpp_reference  # noqa: E402
import python_reference  # noqa: E402

# Pages in the order of the navigation. Other pages of docs/ follow in the last part.
PARTS: list[tuple[str, list[str]]] = [
    (
        "Guide",
        [
            "choosing",
            "concepts",
            "stream-order",
            "pools",
            "elastic-pool",
            "out-of-memory",
            "devices",
            "threads",
            "configuration",
        ],
    ),
    ("With other things", ["frameworks", "c-interface", "cuda-graphs", "simulator", "migration"]),
    ("Seeing", ["traces", "snapshots", "trace-format"]),
    ("More", ["performance", "benchmarks", "design", "compatibility", "reliability"]),
]
OTHERS = ["python/rmm/README.md", "examples/README.md", "packaging/README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]

FENCE = re.compile(r"^(```+|~~~+).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+(?:\([^()]*\))?)\)")


def pages(root: Path) -> list[str]:
    """Pages of the site, by their names in the repository."""
    guide = sorted(file.relative_to(root).as_posix() for file in (root / "docs").glob("*.md"))
    return ["README.md", *guide, *(page for page in OTHERS if (root / page).exists())]


def parts(root: Path) -> list[tuple[str, list[str]]]:
    """Parts of the navigation, with names of pages without their ending."""
    there = [Path(page).stem for page in pages(root) if page.startswith("docs/")]
    listed = {name for _, names in PARTS for name in names}
    found = [(title, [f"docs/{name}" for name in names if name in there]) for title, names in PARTS]
    found[-1][1].extend(f"docs/{name}" for name in there if name not in listed)
    others = [page.removesuffix(".md") for page in OTHERS if (root / page).exists()]
    found.append(("Reference", ["reference/cpp/index", "reference/python/index", others[0]]))
    found.append(("Project", others[1:]))
    return found


def laid_out(text: str, page: str, known: set[str], source_url: str) -> str:
    """The text of a page with its links as the site needs them."""

    def link(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        if re.match(r"[a-z]+:|#", target) or image:
            return match.group(0)
        path, _, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if f"{file}/README.md" in known:
            file += "/README.md"
        if file in known:
            name = "index.md" if file == "README.md" else file
            to = posixpath.relpath(name, posixpath.dirname(page) or ".")
            return f"[{label}]({to}{'#' + anchor if anchor else ''})"
        if source_url:
            return f"[{label}]({source_url.rstrip('/')}/{file})"
        return label if label.startswith("`") else f"`{label}`" if "/" in label else label

    out, last = [], 0
    for fence in FENCE.finditer(text):
        out += [LINK.sub(link, text[last : fence.start()]), fence.group(0)]
        last = fence.end()
    out.append(LINK.sub(link, text[last:]))
    # What Pygments does not know is shown as it is.
    return re.sub(r"^```(console|pycon|sh)[ \t]*$", r"```\1", "".join(out), flags=re.MULTILINE)


def navigation(root: Path) -> str:
    lines = [""]
    for title, names in parts(root):
        lines += ["```{toctree}", ":hidden:", f":caption: {title}", "", *names, "```", ""]
    return "\n".join(lines)


def lay_out(root: Path, source: Path, source_url: str) -> None:
    if source.exists():
        shutil.rmtree(source)
    known = set(pages(root))
    for page in pages(root):
        text = laid_out((root / page).read_text(encoding="utf-8"), page, known, source_url)
        if page == "README.md":
            text += navigation(root)
        to = source / ("index.md" if page == "README.md" else page)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text, encoding="utf-8")
    for folder in ("plots", "figures"):
        if (root / "docs" / folder).exists():
            shutil.copytree(root / "docs" / folder, source / "docs" / folder)
    shutil.copytree(HERE / "_static", source / "_static")
    shutil.copy(HERE / "conf.py", source / "conf.py")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Builds the site.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "docs")
    parser.add_argument("--source-url", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    source, html = options.output / "source", options.output / "html"
    lay_out(ROOT, source, options.source_url)
    try:
        cpp_reference.write_pages(ROOT, options.output / "doxygen", source / "reference" / "cpp")
    except cpp_reference.BadReference as error:
        print(error, file=sys.stderr)
        return 1
    python_reference.write_pages(ROOT, source / "reference" / "python")
    if html.exists():
        shutil.rmtree(html)
    version = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-b", "html", "-j", str(options.jobs)]
    command += ["-d", str(options.output / "doctrees"), str(source), str(html)]
    if subprocess.run(command, env={**os.environ, "RMM_SITE_VERSION": version}, check=False).returncode != 0:
        return 1
    wrong = check_links.check_site(html)
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print(html / "index.html")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
