# SPDX-License-Identifier: Apache-2.0
"""Makes libraries to link wheels against: those of the machine, with the symbols that manylinux_2_28 allows and no others.

    link_stubs.py COMPILER FOLDER

A linker takes the newest version of each symbol that a library offers. The libraries of a machine offer newer ones than the
oldest machines that a wheel is for, so a wheel that is linked against them does not load there. The libraries that this
program writes into FOLDER have the same names, no code, and the newest version of each symbol that is old enough. A function
that is newer as a whole is missing in them: the linker names it, and `newer_functions.cpp` can have it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# The newest versions that the policy manylinux_2_28 of auditwheel allows.
_newest = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}

# Libraries of the machine, and the names by which the compiler asks the linker for them.
_libraries = {
    "libc.so.6": None,  # None: the compiler links it through a linker script
    "libdl.so.2": "libdl.so",
    "libgcc_s.so.1": None,
    "libm.so.6": "libm.so",
    "libpthread.so.0": "libpthread.so",
    "librt.so.1": "librt.so",
    "libstdc++.so.6": "libstdc++.so",
}

# A line of `readelf --dyn-syms`: number, value, size, type, binding, visibility, section, name with version.
_symbol = re.compile(
    r"\s*\d+: \w+ +(?P<size>\w+) (?P<type>\w+) +(?:GLOBAL|WEAK|UNIQUE) +DEFAULT +(?!UND)\w+ "
    r"(?P<name>[^@\s]+)@@?(?P<version>\S+)"
)


def number_of(version: str) -> tuple[int, ...] | None:
    """Returns a version as numbers; None if the policy does not allow it."""
    family, _, text = version.partition("_")
    if family not in _newest or not re.fullmatch(r"[0-9.]+", text):
        return None
    number = tuple(int(part) for part in text.split("."))
    return number if number <= _newest[family] else None


def old_symbols(library: Path) -> dict[str, tuple[str, str, int]]:
    """Returns the version, type and size of each symbol, in the newest version that the policy allows."""
    text = subprocess.run(
        ["readelf", "--wide", "--dyn-syms", str(library)], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, tuple[str, str, int]] = {}
    for symbol in _symbol.finditer(text):
        number, name = number_of(symbol["version"]), symbol["name"]
        if number is None or (name in found and (number_of(found[name][0]) or ()) >= number):
            continue
        found[name] = (symbol["version"], symbol["type"], int(symbol["size"], 0))
    return found


def assembly(symbols: dict[str, tuple[str, str, int]]) -> str:
    """Returns assembly that defines each symbol without content."""
    lines = []
    for place, (name, (version, kind, size)) in enumerate(sorted(symbols.items())):
        section = {"OBJECT": '.bss,"aw",%nobits', "TLS": '.tbss,"awT",%nobits'}.get(kind, '.text,"ax",%progbits')
        type_name = {"OBJECT": "object", "TLS": "tls_object"}.get(kind, "function")
        stub = f"stub_{place}"
        lines += [
            f".section {section}",
            ".balign 16",
            f".globl {stub}",
            f".type {stub}, %{type_name}",
            f".size {stub}, {size}",
            f".symver {stub}, {name}@@@{version}",
            f"{stub}: .zero {max(size, 1)}",
        ]
    return "\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""])


def make_stub(compiler: str, source: Path, stub: Path) -> None:
    """Writes a library for the linker with the allowed symbols of another library."""
    symbols = old_symbols(source)
    versions = sorted({version for version, _, _ in symbols.values()})
    script = stub.with_suffix(".map")
    script.write_text("".join(f"{version} {{ }};\n" for version in versions))
    code = stub.with_suffix(".s")
    code.write_text(assembly(symbols))
    subprocess.run(
        [
            *(compiler, "-shared", "-nostdlib", f"-Wl,-soname,{source.name}", "-x", "assembler", str(code)),
            *(*([f"-Wl,--version-script={script}"] if versions else []), "-o", str(stub)),
        ],
        check=True,
    )


def place_of(compiler: str, name: str) -> Path:
    """Returns the file that the compiler links for a name."""
    text = subprocess.run([compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout
    path = Path(text.strip())
    if not path.is_absolute():
        raise SystemExit(f"{compiler} has no {name}")
    return path


def make_newer_functions(compiler: str, folder: Path) -> None:
    """Compiles the replacements of newer functions into an archive."""
    objects = []
    for source in sorted(Path(__file__).parent.glob("newer_*.cpp")):
        objects.append(str(folder / f"{source.stem}.o"))
        flags = ["-std=c++17", "-O2", "-fPIC", "-ffunction-sections", "-Wall", "-Wextra"]
        subprocess.run([compiler, *flags, "-c", str(source), "-o", objects[-1]], check=True)
    archiver = subprocess.run(
        [compiler, "-print-prog-name=ar"], check=True, capture_output=True, text=True
    ).stdout.strip()
    library = folder / "libnewer_functions.a"
    library.unlink(missing_ok=True)
    subprocess.run([archiver, "rcs", str(library), *objects], check=True)


def make_all(compiler: str, folder: Path) -> None:
    """Writes all libraries into a folder, and newer_functions.cpp as libnewer_functions.a."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, linked_as in _libraries.items():
        make_stub(compiler, place_of(compiler, name), folder / (linked_as or name))
    # Static parts of glibc, and the dynamic loader.
    machine = subprocess.run([compiler, "-dumpmachine"], check=True, capture_output=True, text=True).stdout.partition(
        "-"
    )[0]
    loader = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[machine]
    make_stub(compiler, place_of(compiler, loader), folder / loader)
    parts = folder / "libc.so.6", place_of(compiler, "libc_nonshared.a"), folder / loader
    (folder / "libc.so").write_text("GROUP ( {} {} AS_NEEDED ( {} ) )\n".format(*parts))
    (folder / "libgcc_s.so").write_text(f"GROUP ( {folder / 'libgcc_s.so.1'} -lgcc )\n")  # has aarch64's atomics
    make_newer_functions(compiler, folder)


if __name__ == "__main__":
    make_all(sys.argv[1], Path(sys.argv[2]))
