# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check_commits.py."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOOLS))

import check_commits  # noqa: E402


class CheckCommits(unittest.TestCase):
    def test_imperatives_pass_with_and_without_a_scope(self) -> None:
        for subject in ("Name the failing call", "Python: build wheels", "Embed the page", "Re-read the page", "A" + "d" * 71):
            with self.subTest(subject):
                self.assertEqual("", check_commits.wrong_in(subject))

    def test_everything_else_is_named(self) -> None:
        for subject, problem in {
            "A" + "d" * 72: "73 characters",
            "Name the failing call.": "full stop",
            "name the failing call": "capital letter",
            "Fixed the call": "not an imperative",
            "Naming the call": "not an imperative",
            "What is named instead": "not an imperative",
            "`x` is new": "capital letter",
            "": "capital letter",
        }.items():
            with self.subTest(subject):
                self.assertIn(problem, check_commits.wrong_in(subject))

    def test_the_newest_commits_are_read_without_merges(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            def git(*arguments: str) -> None:
                subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True, capture_output=True)

            git("init", "-b", "main")
            for subject in ("First one", "Second one", "Third one"):
                git("commit", "--allow-empty", "-m", subject)
            git("checkout", "-b", "side", "HEAD~1")
            git("commit", "--allow-empty", "-m", "Fourth one")
            git("merge", "--no-ff", "main", "-m", "a merge")
            found = [subject for _, subject in check_commits.subjects(Path(folder), 3)]
            self.assertEqual({"Second one", "Third one", "Fourth one"}, set(found))

    def test_nothing_is_wrong_where_there_is_no_history(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual([], check_commits.subjects(Path(folder), 3))


if __name__ == "__main__":
    unittest.main()
