#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the CUDA runtime's symbols that a program, library or object needs and the simulator lacks.

    missing_sim_symbols.py --simulator libcudart_sim.so FILE...
    missing_sim_symbols.py --simulator libcudart_sim.so --runtime libcudart.so

FILE is an executable, a shared or static library, or an object file. With --runtime: the symbols that this real runtime
exports and the simulator lacks. Exit status 1 if anything is missing, 2 if a file cannot be read.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

RUNTIME_SYMBOL = re.compile(r"(__)?cuda[A-Z]\w*")


def symbols(file: Path, *options: str) -> set[str]:
    """Returns the runtime's symbols that nm lists for `file`, without their versions."""
    result = subprocess.run(["nm", "-P", *options, str(file)], capture_output=True, text=True)
    if result.returncode != 0:
        print(f"missing_sim_symbols.py: {result.stderr.strip() or file}", file=sys.stderr)
        sys.exit(2)
    names = (line.split()[0].split("@")[0] for line in result.stdout.splitlines() if line and not line.endswith(":"))
    return {name for name in names if RUNTIME_SYMBOL.fullmatch(name)}


def needed(file: Path) -> set[str]:
    """Returns the runtime's symbols that `file` needs from elsewhere."""
    try:
        with file.open("rb") as stream:
            head = stream.read(18)
    except OSError as error:
        print(f"missing_sim_symbols.py: {error}", file=sys.stderr)
        sys.exit(2)
    linked = head[:4] == b"\x7fELF" and head[16] in (2, 3)  # an executable or a shared object: its dynamic symbols
    if linked:
        return symbols(file, "-D", "--undefined-only")
    return symbols(file, "--undefined-only") - symbols(file, "--defined-only")


def main() -> int:
    parser = argparse.ArgumentParser(description="Lists the CUDA runtime's symbols that the simulator lacks.")
    parser.add_argument("--simulator", type=Path, required=True)
    parser.add_argument("--runtime", type=Path, help="a real runtime, all of whose symbols the simulator has to have")
    parser.add_argument("file", nargs="*", type=Path)
    args = parser.parse_args()

    simulated = symbols(args.simulator, "-D", "--defined-only")
    wanted = [(file, needed(file)) for file in args.file]
    if args.runtime:
        wanted.append((args.runtime, symbols(args.runtime, "-D", "--defined-only")))
    if not wanted:
        parser.error("name a FILE or --runtime")

    missing = 0
    for file, names in wanted:
        for name in sorted(names - simulated):
            print(f"{file}: {name}")
            missing += 1
    print(f"{len(wanted)} files, {len(set().union(*(names for _, names in wanted)))} symbols of the runtime, {missing} missing")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
