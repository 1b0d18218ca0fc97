#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the subjects of the newest commits: imperative, capitalised, at most 72 characters, without a full stop.

    check_commits.py [--count N]     default: the newest 20

A subject may begin with a scope, such as `Python: `, after which the verb may be in lower case. Whether a word is a verb cannot be checked,
but endings that no imperative has can. Commits up to FIRST are older than the rule. Without a history nothing is checked.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FIRST = "ea9fa18"
MOST_CHARACTERS = 72
SCOPE = re.compile(r"^[A-Z][\w+. ]{0,20}: ")
VERBS = {"bring", "embed", "feed", "need", "proceed", "ring", "seed", "speed", "string", "succeed", "swing", "wring"}
NO_VERBS = {"a", "an", "the", "this", "no", "new", "some", "more", "what", "who", "where", "when", "how", "if", "it", "for", "fixes", "adds"}


def wrong_in(subject: str) -> str:
    """Returns what is wrong with a subject, or an empty text."""
    if len(subject) > MOST_CHARACTERS:
        return f"{len(subject)} characters, at most {MOST_CHARACTERS}"
    if subject.endswith("."):
        return "ends with a full stop"
    scope = SCOPE.match(subject)
    words = (subject[scope.end() :] if scope else subject).split()
    word = words[0] if words else ""
    if not re.fullmatch(r"[A-Za-z][a-z]+(-[a-z]+)*" if scope else r"[A-Z][a-z]+(-[a-z]+)*", word):
        return "does not begin with a verb with a capital letter"
    if word.lower() in NO_VERBS or (re.search(r"(ing|ed)$", word) and word.lower() not in VERBS):
        return f"'{word}' is not an imperative"
    return ""


def subjects(root: Path, count: int) -> list[tuple[str, str]]:
    """Returns hash and subject of the newest commits that the rule applies to, without merges."""
    git = ["git", "-C", str(root)]
    known = subprocess.run([*git, "cat-file", "-e", f"{FIRST}^{{commit}}"], capture_output=True, check=False).returncode == 0
    log = subprocess.run(
        [*git, "log", "--no-merges", f"--max-count={count}", "--format=%h %s", "HEAD", *([f"^{FIRST}"] if known else [])],
        capture_output=True, text=True, check=False)
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in log.stdout.splitlines()]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Checks the subjects of the newest commits.")
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args(arguments)
    wrong = [f"{name} {subject}: {problem}" for name, subject in subjects(ROOT, options.count) if (problem := wrong_in(subject))]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
