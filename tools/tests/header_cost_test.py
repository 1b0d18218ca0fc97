# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/header_cost.py."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOOLS))

import header_cost  # noqa: E402
from header_cost import Cost, Table  # noqa: E402


class HeaderCost(unittest.TestCase):
    def test_blank_lines_and_line_markers_cost_nothing(self) -> None:
        self.assertEqual(2, header_cost.count_lines('# 1 "<stdin>"\n\n   \nint a;\n# 1 "b.hpp" 3 4\n  int b;\n'))

    def test_growth_up_to_a_tenth_is_accepted(self) -> None:
        self.assertEqual([], header_cost.problems({"rmm/a.hpp": Cost(1000)}, {"rmm/a.hpp": Cost(1100)}))

    def test_more_growth_is_reported(self) -> None:
        self.assertEqual(["rmm/a.hpp has 1101 lines; the table says 1000"],
                         header_cost.problems({"rmm/a.hpp": Cost(1000)}, {"rmm/a.hpp": Cost(1101)}))

    def test_a_header_that_shrinks_is_fine(self) -> None:
        self.assertEqual([], header_cost.problems({"rmm/a.hpp": Cost(1000)}, {"rmm/a.hpp": Cost(10)}))

    def test_the_table_has_to_have_every_header_and_no_other(self) -> None:
        self.assertEqual(["rmm/b.hpp is not in the table", "rmm/a.hpp is in the table and does not exist"],
                         header_cost.problems({"rmm/a.hpp": Cost(1)}, {"rmm/b.hpp": Cost(1)}))

    def test_a_table_is_read_as_it_was_written(self) -> None:
        table = Table("g++ 12, CCCL 3.0", {"rmm/a.hpp": Cost(14510, 0.25), "rmm/b.hpp": Cost(7)})
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "table.csv")
            header_cost.write_table(file, table)
            self.assertEqual(table, header_cost.read_table(file))

    def test_no_table_is_an_empty_one(self) -> None:
        self.assertEqual(Table("", {}), header_cost.read_table(Path("nowhere", "table.csv")))

    def test_detail_and_forwarding_headers_are_not_measured(self) -> None:
        headers = header_cost.public_headers(header_cost.check_headers.INCLUDE)
        self.assertIn("rmm/device_buffer.hpp", headers)
        self.assertNotIn("rmm/detail/error.hpp", headers)
        self.assertNotIn("rmm/mr/device/pool_memory_resource.hpp", headers)


if __name__ == "__main__":
    unittest.main()
