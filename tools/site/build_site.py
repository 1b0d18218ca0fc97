#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the site: the pages of the repository, and the references of C++ and Python.

    build_site.py [--output build/docs] [--source-url URL]

The pages are copied to OUTPUT/source in the layout of the repository, with docs/index.md as the start page; Sphinx turns them into
OUTPUT/html. README.md is not a page of the site, and links to it lead to the start page. Text in a comment `<!-- site: TEXT -->` appears
only on the site. Links to files that are not pages become links to URL/FILE, or plain text without URL. Beside each page is
its plain-Markdown copy, and OUTPUT/html/llms.txt lists these. Warnings of Doxygen and Sphinx are errors, and so are public functions
of C++ without a comment, and broken links and anchors on the finished pages.
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
import plain_copies  # noqa: E402
import python_reference  # noqa: E402

# Pages of docs/ in the order of the navigation. All others follow in the last part.
PARTS: list[tuple[str, list[str]]] = [
    ("Tutorials", ["tutorial-cpp", "tutorial-python"]),
    (
        "How-to guides",
        [
            "choosing",
            "configuration",
            "out-of-memory",
            "audit",
            "spilling",
            "performance",
            "traces",
            "snapshots",
            "elastic-pool",
            "sleep",
            "threads",
            "devices",
            "cuda-graphs",
            "frameworks",
            "dask",
            "simulator",
            "migration",
        ],
    ),
    ("Explanation", ["stream-order", "pools", "benchmarks", "reliability", "design"]),
    ("Reference", ["concepts", "compatibility"]),
]
REFERENCES = ["reference/cpp/index", "reference/python/index", "python/rmm/README"]
OTHERS = [
    "c/README.md",
    "examples/README.md",
    "benchmarks/README.md",
    "packaging/README.md",
    "tools/recorded/README.md",
    "python/rmm_rapids/README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
]
START = {"README.md": "index.md", "docs/index.md": "index.md"}

SITE_ONLY = re.compile(r"<!-- site: (.*?) -->", re.DOTALL)
FENCE = re.compile(r"^(```+|~~~+).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+(?:\([^()]*\))?)\)")


def pages(root: Path) -> list[str]:
    """Returns the pages of the site, by their names in the repository."""
    guide = sorted(file.relative_to(root).as_posix() for file in (root / "docs").rglob("*.md"))
    others = [f"{REFERENCES[-1]}.md", *OTHERS]
    return [*guide, *(page for page in others if (root / page).exists())]


def parts(root: Path) -> list[tuple[str, list[str]]]:
    """Returns the parts of the navigation, with the names of pages without their ending."""
    names = [page.removesuffix(".md") for page in pages(root) if page not in START]
    guide = [Path(name).name for name in names if posixpath.dirname(name) == "docs"]
    listed = {name for _, part in PARTS for name in part}
    found = [(title, [f"docs/{name}" for name in part if name in guide]) for title, part in PARTS]
    found[-1][1].extend(f"docs/{name}" for name in guide if name not in listed)
    found[-1][1].extend(REFERENCES)
    found.append(("Project", [page.removesuffix(".md") for page in OTHERS if (root / page).exists()]))
    measurements = [name for name in names if name.startswith("docs/measurements/")]
    found.append(("Measurements", sorted(measurements, reverse=True)))
    return found


def laid_out(text: str, page: str, known: set[str], source_url: str) -> str:
    """Returns the text of a page with its links in the form that the site needs."""

    place = posixpath.dirname(START.get(page, page))

    def link(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        if re.match(r"[a-z]+:|#|reference/", target):
            return match.group(0)
        path, _, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if f"{file}/README.md" in known:
            file += "/README.md"
        if image or file in known:
            to = posixpath.relpath(START.get(file, file), place or ".")
            return f"{image}[{label}]({to}{'#' + anchor if anchor else ''})"
        if source_url:
            return f"[{label}]({source_url.rstrip('/')}/{file})"
        return label if label.startswith("`") else f"`{label}`" if "/" in label else label

    text = SITE_ONLY.sub(lambda match: match.group(1), text)
    out, last = [], 0
    for fence in FENCE.finditer(text):
        out += [LINK.sub(link, text[last : fence.start()]), fence.group(0)]
        last = fence.end()
    out.append(LINK.sub(link, text[last:]))
    # Languages that Pygments does not know are shown without highlighting.
    return re.sub(r"^```(console|pycon|sh)[ \t]*$", r"```\1", "".join(out), flags=re.MULTILINE)


def navigation(root: Path) -> str:
    lines = [""]
    for title, names in parts(root):
        lines += ["```{toctree}", ":hidden:", f":caption: {title}", "", *names, "```", ""]
    return "\n".join(lines)


def lay_out(root: Path, source: Path, source_url: str) -> None:
    if source.exists():
        shutil.rmtree(source)
    known = {*pages(root), *START}
    for page in pages(root):
        text = laid_out((root / page).read_text(encoding="utf-8"), page, known, source_url)
        if page in START:
            text += navigation(root)
        to = source / START.get(page, page)
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
    plain_copies.write(source, html, parts(ROOT))
    wrong = check_links.check_site(html)
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print(html / "index.html")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
