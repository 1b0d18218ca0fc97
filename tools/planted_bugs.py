#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants bugs in the simulator, one at a time, and checks that its tests notice each.

    planted_bugs.py --build build/sim

For each bug, one file of the simulator is compiled like in the build, but with the bug, and linked with the build's other objects
into a library in a separate folder; the build folder stays as it is. Then CUDASIM_TEST runs with that library. Before that, it runs
with a copy without a bug, which has to pass. The exit status is 1 if a bug is not noticed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "simulator/src"
# Left out: random tests take long, and repeat operations of the others.
TESTS = "--gtest_filter=-RandomMemory.*:RandomStreamTest.*"


@dataclass(frozen=True)
class Bug:
    name: str
    file: str
    old: str
    new: str


BUGS = [
    Bug("a stream that waits for an event waits for nothing", "api_stream.cpp", "  work.after.push_back(e->at);\n", ""),
    Bug("the checker is not told of a wait", "api_stream.cpp", "  work.clock = e->clock;\n  return submit", "  return submit"),
    Bug("an event that is recorded again stays where it was", "api_event.cpp",
        "  e->recorded = true;\n  e->at       = end_of(s);\n", "  if (!e->recorded) { e->at = end_of(s); }\n  e->recorded = true;\n"),
    Bug("physical memory stays in the books when it is given back", "virtual_memory.cpp", "  owner.physical -= held->bytes;\n", ""),
    Bug("what a pool trims stays in the books", "pool.cpp", "  if (p.on_device()) { memory_of(p.device).pools -= bytes; }\n", ""),
    Bug("a fault comes one call late", "faults.cpp", "f.seen >= f.what.nth)", "f.seen > f.what.nth)"),
    Bug("a fault lasts one call too long", "faults.cpp", ">= f.what.count - 1;", ">= f.what.count;"),
]


class Build:
    """The commands by which a build folder of ninja makes the simulator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        listed = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "rmm_cudart_sim"], capture_output=True, text=True, check=True)
        self.commands = listed.stdout.splitlines()
        self.link_command = self.commands[-1]

    def compile(self, source: Path, original: Path, target: Path) -> str:
        """Compiles `source` with the command for `original`. Returns the name of the object that it replaces."""
        command = next(line for line in self.commands if line.endswith(f" -c {original}"))
        words = shlex.split(command)
        place = words.index("-o") + 1
        replaced, words[place] = words[place], str(target)
        words[words.index("-c") + 1] = str(source)
        words += [f"-I{original.parent}", "-Wno-error", "-MF", str(target.with_suffix(".d"))]
        subprocess.run(words, cwd=self.folder, check=True)
        return replaced

    def link(self, library: Path, replaced: str, replacement: Path) -> None:
        command = self.link_command.replace(replaced, str(replacement)) if replaced else self.link_command
        command, count = re.subn(r" -o \S+", f" -o {library}", command, count=1)
        assert count == 1, self.link_command
        subprocess.run(["bash", "-c", command], cwd=self.folder, check=True)

    def failed_tests(self, library: Path) -> list[str]:
        """Returns the tests that fail with this library."""
        environment = os.environ | {"LD_LIBRARY_PATH": str(library.parent)}
        try:
            run = subprocess.run([self.folder / "gtests/CUDASIM_TEST", "--gtest_brief=1", TESTS], cwd=library.parent, env=environment,
                                 capture_output=True, text=True, errors="replace", timeout=120, check=False)
        except subprocess.TimeoutExpired:
            return ["(does not end)"]
        failed = sorted(set(re.findall(r"^\[  FAILED  \] ([\w/.]+)", run.stdout, re.MULTILINE)))
        return failed if failed or run.returncode == 0 else [f"(ends with {run.returncode})"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, metavar="FOLDER", help="build folder of the preset sim, built with ninja")
    build = Build(parser.parse_args().build)
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = folder / "libcudart_sim.so"
        build.link(library, "", folder)
        failed = build.failed_tests(library)
        if failed:
            print(f"Fails without a bug: {', '.join(failed)}")
            return 1
        for bug in BUGS:
            text = (SOURCES / bug.file).read_text(encoding="utf-8")
            if text.count(bug.old) != 1:
                print(f"{bug.file} has changed: {bug.old!r} stands there {text.count(bug.old)} times.")
                return 1
            source = folder / bug.file
            source.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
            replaced = build.compile(source, SOURCES / bug.file, folder / "planted.o")
            build.link(library, replaced, folder / "planted.o")
            failed = build.failed_tests(library)
            missed += not failed
            shown = ", ".join(failed[:3]) + (", ..." if len(failed) > 3 else "")
            print(f"{bug.name}: {f'{len(failed)} tests fail: {shown}' if failed else 'NOT NOTICED'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
