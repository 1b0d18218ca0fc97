# SPDX-License-Identifier: Apache-2.0
"""Translates Cython modules of the package to C++, below the current folder.

    translate.py [--warning-errors] MODULE...
    translate.py --digest

Writes <package>/<module>.pyx, a copy with signatures in its docstrings, and <package>/<module>.cpp. Cython gets relative
paths, because tracebacks show them. `--digest` prints a digest of all that the result depends on. A source distribution has
translated modules, and an installation uses them if their digest is still right.
"""

from __future__ import annotations

import hashlib
import runpy
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import add_signatures

root = Path(__file__).parents[1]
# With binding=True, a method that is called through its class, as in DeviceBuffer.tobytes(5), would not check the type of
# the object.
options = ("--cplus", "-3", "--directive", "binding=False", "-I", str(root))


def digest() -> str:
    """Returns a digest of the files that Cython reads. Of those of cuda-bindings, the major version counts."""
    found = hashlib.sha256()
    scripts = [Path(__file__), Path(add_signatures.__file__)]
    for path in [*sorted(root.glob("rmm/**/*.p[xy][xd]")), *scripts]:
        content = path.read_bytes()
        found.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    try:
        bindings = version("cuda-bindings").partition(".")[0]
    except PackageNotFoundError:
        bindings = ""
    found.update(bindings.encode())
    return found.hexdigest()


def translate(module: str, more_options: list[str]) -> None:
    """Translates one module. Leaves the interpreter by SystemExit if Cython fails."""
    path = Path(*module.split(".")).with_suffix(".pyx")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(add_signatures.with_signatures((root / path).read_text(encoding="utf-8")), encoding="utf-8")
    output = path.with_suffix(".cpp").as_posix()
    sys.argv = ["cython", *options, *more_options, "--module-name", module, path.as_posix(), "-o", output]
    runpy.run_module("cython", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--digest"]:
        print(digest())
    else:
        wanted = sys.argv[1:]
        given = [each for each in wanted if each.startswith("-")]
        for each in wanted:
            if each not in given:
                translate(each, given)
