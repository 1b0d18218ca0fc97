# SPDX-License-Identifier: Apache-2.0
"""docs/configuration.md names every resource and option of the table of resources, and no page names others."""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import resource_table  # noqa: E402

USE = re.compile(r'RMM_RESOURCE="?([a-z][^"`\s]*)')
NAME = re.compile(r"(?:^|[,(])([a-z_]+)(?=[=,)]|$)")


def names_of_rules() -> set[str]:
    return {name for row in resource_table.rows() for name in (row.name, *row.options) if name}


class ConfigurationPage(unittest.TestCase):
    def test_names_everything(self) -> None:
        page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
        names = names_of_rules()
        self.assertLessEqual({"elastic", "initial", "limit", "upstream"}, names)
        for name in sorted(names):
            with self.subTest(name):
                self.assertRegex(page, rf"`{name}[`=|]")

    def test_configurations_of_all_pages_have_names_that_there_are(self) -> None:
        names, uses = names_of_rules(), 0
        for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("python/rmm/*.md")]:
            for configuration in USE.findall(page.read_text(encoding="utf-8")):
                uses += 1
                with self.subTest(page=page.name, configuration=configuration):
                    self.assertLessEqual(set(NAME.findall(configuration)), names)
        self.assertGreater(uses, 3)


if __name__ == "__main__":
    unittest.main()
