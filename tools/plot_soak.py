#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws files of LONG_LIFE_TEST as SVG: latencies, host memory, and the memory of devices and pools over time.

With RMM_SOAK_DEVICES the memory is the sum over all devices, and over their pools.

    RMM_SOAK_SECONDS=1200 RMM_SOAK_CSV=soak.csv build/cuda/gtests/LONG_LIFE_TEST
    tools/plot_soak.py soak.csv [soak.csv.0 soak.csv.1 ...] > soak.svg
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, GAP = 760, 150, 90, 36, 56
MIB = 1 << 20
# Title of a panel, the size of its unit, and its lines: label, column, colour.
PANELS = [
    ("time of a call: half of the calls take less (ns)", 1.0, [("p50", "p50_ns", "#1f6fb4")]),
    ("time of a call: 99 % of the calls take less (µs)", 1000.0, [("p99", "p99_ns", "#c8501e")]),
    ("host memory (MiB)", MIB, [("allocated", "host_bytes", "#1f6fb4")]),
    ("device memory (MiB)", MIB, [("in use on all devices", "device_bytes", "#c8501e"), ("of the pools", "pool_bytes", "#1f6fb4")]),
]

Rows = list[dict[str, float]]


def read(path: Path) -> Rows:
    with path.open(newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    if not rows:
        raise SystemExit(f"{path} has no samples")
    return rows


def polyline(points: Iterable[tuple[float, float]], colour: str) -> str:
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="1.2" stroke-opacity="0.8"/>'


def panel(files: Sequence[Rows], top: float, title: str, unit: float, lines: list[tuple[str, str, str]]) -> list[str]:
    end = max(rows[-1]["seconds"] for rows in files)
    most = max(row[column] / unit for rows in files for row in rows for _, column, _ in lines) or 1.0
    digits = 0 if most >= 10 else 2
    made = [f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{escape(title)}</text>']
    for part in (0, 0.5, 1):
        y = top + HEIGHT * (1 - part)
        made.append(f'<line x1="{LEFT}" y1="{y}" x2="{LEFT + WIDTH}" y2="{y}" stroke="#ccc"/>')
        made.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{most * part:,.{digits}f}</text>')
        made.append(f'<text x="{LEFT + WIDTH * part}" y="{top + HEIGHT + 16}" text-anchor="middle">{end * part:,.0f} s</text>')
    for number, (label, column, colour) in enumerate(lines):
        made.append(f'<text x="{LEFT + WIDTH - 150 * number}" y="{top - 8}" text-anchor="end" fill="{colour}">{escape(label)}</text>')
        for rows in files:
            points = ((LEFT + WIDTH * row["seconds"] / end, top + HEIGHT * (1 - row[column] / unit / most)) for row in rows)
            made.append(polyline(points, colour))
    return made


def draw(files: Sequence[Rows]) -> str:
    height = TOP + len(PANELS) * (HEIGHT + GAP)
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (title, unit, lines) in enumerate(PANELS):
        made += panel(files, TOP + number * (HEIGHT + GAP), title, unit, lines)
    return "\n".join([*made, "</svg>"]) + "\n"


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    sys.stdout.write(draw([read(Path(name)) for name in sys.argv[1:]]))
