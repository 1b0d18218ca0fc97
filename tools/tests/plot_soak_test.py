# SPDX-License-Identifier: Apache-2.0
"""Tests of plot_soak.py: it draws a line for each column of each file."""

from __future__ import annotations

import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import plot_soak

CSV = """\
seconds,requests,p50_ns,p99_ns,host_bytes,device_bytes,pool_bytes
1.00,100,50,2000,1048576,4194304,2097152
2.00,100,60,3000,1048576,4194304,2097152
"""


class PlotSoakTest(unittest.TestCase):
    def test_it_draws_what_the_files_have(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "soak.csv"
            path.write_text(CSV)
            rows = plot_soak.read(path)
        drawn = xml.etree.ElementTree.fromstring(plot_soak.draw([rows, rows]))
        lines = [each for each in drawn if each.tag.endswith("polyline")]
        self.assertEqual(len(lines), 2 * sum(len(columns) for _, _, columns in plot_soak.PANELS))
        self.assertTrue(all(len(each.attrib["points"].split()) == 2 for each in lines))

    def test_it_refuses_a_file_without_samples(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "soak.csv"
            path.write_text(CSV.splitlines()[0] + "\n")
            with self.assertRaises(SystemExit):
                plot_soak.read(path)


if __name__ == "__main__":
    unittest.main()
