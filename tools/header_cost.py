#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of including each public header, and compares it with the table tools/header_cost.csv.

    header_cost.py [--update] [--seconds] [--jobs N] [--isystem FOLDER]...

The cost is the number of lines after preprocessing, without blank lines and line markers; the compiler is
g++ -std=c++17. --seconds also compiles the headers that have a time in the table, with -O1, and prints the user time, which depends on the
machine and is not compared. The exit status is 1 if a header has more than 10 % more lines than the table says, or if
the table lacks a header or has one that does not exist. --update writes the measured costs to the table. A new resource or adaptor may be
missing in the table if it costs no more than the most expensive one on its page of the reference, as the table of resources says.

Lines depend on the compiler and on CCCL. If these differ from the table's, nothing is compared, and a line says so.

Headers that only forward to another cost as much as that and are not listed; rmm/logger.hpp costs as much as spdlog. The other
headers are measured as if spdlog were not installed.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import check_headers
import resource_table

TABLE = Path(__file__).resolve().parent / "header_cost.csv"
ALLOWED_GROWTH = 0.10
COMMAND = ["g++", "-std=c++17", "-x", "c++", "-", *check_headers.DEFINITIONS, "-DRMM_WITHOUT_SPDLOG"]


@dataclass
class Cost:
    lines: int
    seconds: float | None = None


@dataclass
class Table:
    platform: str
    costs: dict[str, Cost]


def public_headers(include: Path) -> list[str]:
    """Returns the public headers under `include` that have content of their own, by the names to include them."""
    found = sorted(file.relative_to(include).as_posix() for file in include.rglob("*.hpp"))
    return [header for header in found
            if header not in check_headers.NEEDS and not check_headers.is_compiled_once(header)]


def count_lines(preprocessed: str) -> int:
    """Returns the number of lines that are neither blank nor line markers."""
    return sum(1 for line in preprocessed.splitlines() if line.strip() and not line.startswith("#"))


def read_table(file: Path) -> Table:
    """Returns the table in `file`: a comment with the platform, then header, lines and, for some, seconds."""
    if not file.is_file():
        return Table("", {})
    comment, *rows = file.read_text(encoding="utf-8").splitlines()
    costs = {row["header"]: Cost(int(row["lines"]), float(row["seconds"]) if row["seconds"] else None)
             for row in csv.DictReader(rows)}
    return Table(comment.removeprefix("# "), costs)


def write_table(file: Path, table: Table) -> None:
    rows = [f"{header},{cost.lines},{'' if cost.seconds is None else f'{cost.seconds:.2f}'}"
            for header, cost in sorted(table.costs.items())]
    file.write_text("\n".join([f"# {table.platform}", "header,lines,seconds", *rows]) + "\n", encoding="utf-8")


def peers_of(header: str) -> list[str]:
    """Returns the headers of the resources on the same page of the reference; none for a header without a resource."""
    topics = [row.topic for row in resource_table.rows() if row.header == header]
    return [peer for topic in topics for peer in resource_table.headers_of(topic)]


def problems(recorded: dict[str, Cost], measured: dict[str, Cost]) -> list[str]:
    """Returns what is wrong with the measured costs, a line for each."""
    found = []
    for header, cost in measured.items():
        before = recorded.get(header)
        if before is None:
            peers = [recorded[peer].lines for peer in peers_of(header) if peer in recorded]
            if not peers:
                found.append(f"{header} is not in the table")
            elif cost.lines > max(peers):
                found.append(f"{header} is not in the table, and has {cost.lines} lines; others of its kind have at most {max(peers)}")
        elif cost.lines > before.lines * (1 + ALLOWED_GROWTH):
            found.append(f"{header} has {cost.lines} lines; the table says {before.lines}")
    found += [f"{header} is in the table and does not exist" for header in recorded if header not in measured]
    return found


def platform(folders: list[Path]) -> str:
    """Returns the compiler and the CCCL that the lines depend on."""
    version = subprocess.run(["g++", "-dumpversion"], capture_output=True, text=True, check=True).stdout.split(".")[0].strip()
    text = "#include <cuda/std/version>\nCCCL_VERSION\n"
    result = subprocess.run([*COMMAND, "-E", *includes(folders)], input=text, capture_output=True, text=True, check=True)
    cccl = int(result.stdout.split()[-1])
    return f"g++ {version}, CCCL {cccl // 1_000_000}.{cccl // 1_000 % 1_000}"


def includes(folders: list[Path]) -> list[str]:
    return [f"-I{check_headers.INCLUDE}", *(word for folder in folders for word in ("-isystem", str(folder)))]


def measure_lines(header: str, folders: list[Path]) -> int:
    result = subprocess.run([*COMMAND, "-E", *includes(folders)], input=f"#include <{header}>\n", capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{header} cannot be preprocessed:\n{result.stderr}")
    return count_lines(result.stdout)


def measure_seconds(header: str, folders: list[Path]) -> float:
    """Returns the user time of compiling `header` alone, the best of three."""
    times = []
    for _ in range(3):
        before = os.times().children_user
        subprocess.run([*COMMAND, "-O1", "-c", "-o", os.devnull, *includes(folders)], input=f"#include <{header}>\n",
                       text=True, check=True)
        times.append(os.times().children_user - before)
    return min(times)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares the cost of each public header with the table.")
    parser.add_argument("--update", action="store_true", help="write the measured costs to the table")
    parser.add_argument("--seconds", action="store_true", help="also compile the headers that have a time in the table")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--isystem", action="append", type=Path, help="folder of foreign headers")
    args = parser.parse_args()

    folders = args.isystem or check_headers.toolkit_folders()
    here = platform(folders)
    table = read_table(TABLE)
    headers = public_headers(check_headers.INCLUDE)
    with ThreadPoolExecutor(args.jobs) as pool:
        lines = pool.map(lambda header: measure_lines(header, folders), headers)
    measured = {header: Cost(count) for header, count in zip(headers, lines)}
    for header, cost in measured.items():
        recorded = table.costs.get(header)
        timed = recorded is not None and recorded.seconds is not None
        if timed and (args.seconds or args.update):
            cost.seconds = measure_seconds(header, folders)
        change = f"{cost.lines - recorded.lines:+8d}" if recorded is not None else "     new"
        print(f"{header:48} {cost.lines:7d} {change}" + ("" if cost.seconds is None else f" {cost.seconds:6.2f} s"))

    if args.update:
        write_table(TABLE, Table(here, measured))
        return 0
    if here != table.platform:
        print(f"not compared: the table was made with {table.platform}, and this is {here}")
        return 0
    found = problems(table.costs, measured)
    for problem in found:
        print(problem)
    if found:
        print("If the cost is justified: run tools/header_cost.py --update, and say in the commit what it buys.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
