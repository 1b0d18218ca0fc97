# SPDX-License-Identifier: Apache-2.0
"""docs/configuration.md names every resource and option of include/rmm/mr/detail/configuration_rules.hpp."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RULE = re.compile(r'(?:rule_for\(resource_kind::\w+, |\{\s*|option\{\s*)"(?P<name>[a-z_]+)"')


class ConfigurationPage(unittest.TestCase):
    def test_names_everything(self) -> None:
        rules = (ROOT / "include/rmm/mr/detail/configuration_rules.hpp").read_text(encoding="utf-8")
        page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
        names = {match["name"] for match in RULE.finditer(rules)}
        self.assertLessEqual({"elastic", "initial", "limit", "upstream"}, names)
        for name in sorted(names):
            with self.subTest(name):
                self.assertRegex(page, rf"`{name}[`=|]")


if __name__ == "__main__":
    unittest.main()
