# SPDX-License-Identifier: Apache-2.0
"""docs/configuration.md names every resource and option of include/rmm/mr/detail/configuration_rules.hpp, and no page others."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RULE = re.compile(r'(?:rule_for\(resource_kind::\w+, |\{\s*|option\{\s*)"(?P<name>[a-z_]+)"')
USE = re.compile(r'RMM_RESOURCE="?([a-z][^"`\s]*)')
NAME = re.compile(r"(?:^|[,(])([a-z_]+)(?=[=,)]|$)")


def names_of_rules() -> set[str]:
    rules = (ROOT / "include/rmm/mr/detail/configuration_rules.hpp").read_text(encoding="utf-8")
    return {match["name"] for match in RULE.finditer(rules)}


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
