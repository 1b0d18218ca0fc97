# SPDX-License-Identifier: Apache-2.0
"""Pages of the Python reference, made from the sources alone: signatures from .pyi and .py files, texts from .pyx and .py.

Nothing is imported, so neither a GPU nor a built package is needed.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

# File of the page: (module that programs import, title, names on the page; empty: all names of the module)
PAGES: dict[str, tuple[str, str, list[str]]] = {
    "rmm": ("rmm", "The package: buffers, the current resource, scopes, the log", []),
    "mr": ("rmm.mr", "Resources and adaptors", []),
    "experimental": ("rmm.mr.experimental", "Resources that may still change", []),
    "streams": ("rmm.pylibrmm.stream", "Streams", ["Stream"]),
    "stream_pool": ("rmm.pylibrmm.cuda_stream_pool", "Pools of streams", ["CudaStreamPool"]),
    "allocators": ("rmm.allocators", "CuPy, Numba, PyTorch: all at once", []),
    "cupy": ("rmm.allocators.cupy", "CuPy", []),
    "numba": ("rmm.allocators.numba", "Numba", []),
    "torch": ("rmm.allocators.torch", "PyTorch", []),
    "sleep": ("rmm.sleep", "Memory that sleeps", []),
    "torch_memory_saver": ("rmm.allocators.torch_memory_saver", "The interface of torch_memory_saver", []),
    "vllm": ("rmm.allocators.vllm", "vLLM", []),
    "dask": ("rmm.dask", "Dask", []),
    "statistics": ("rmm.statistics", "Statistics and the profiler", []),
    "memory_report": ("rmm.memory_report", "What reports consist of", []),
    "memory_snapshot": ("rmm.memory_snapshot", "Snapshots", []),
}

CONSTRUCTORS = ("__init__", "__new__", "__cinit__")
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class BadReference(Exception):
    """A name that a module exports and no source defines."""


def texts_of_cython(source: str) -> dict[str, str]:
    """Returns the docstrings of a .pyx file by qualified name."""
    texts: dict[str, str] = {}
    scopes: list[tuple[int, str]] = []
    lines = source.splitlines()
    number = 0
    while number < len(lines):
        match = re.match(r"( *)(?:(?:cdef +|cpdef +)?(?:class|def) +|cpdef +(?:[\w.]+ +)?)(\w+)", lines[number])
        number += 1
        if match is None:
            continue
        indent = len(match.group(1))
        scopes = [scope for scope in scopes if scope[0] < indent] + [(indent, match.group(2))]
        while number < len(lines) and not lines[number - 1].rstrip().endswith(":"):
            number += 1
        if number < len(lines) and (begin := re.match(r' *r?"""', lines[number])):
            text = lines[number][begin.end() :]
            while '"""' not in text:
                number += 1
                text += "\n" + lines[number]
            texts[".".join(name for _, name in scopes)] = clean(text.partition('"""')[0])
    return texts


def clean(text: str) -> str:
    lines = text.strip("\n").expandtabs().splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    return "\n".join([lines[0].strip(), *(line[margin:].rstrip() for line in lines[1:])]).strip() if lines else ""


def statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Returns the statements of a module, including those under `if TYPE_CHECKING:`, whose names are imported when they are used."""
    found: list[ast.stmt] = []
    for node in body:
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test).removeprefix("not ") == "TYPE_CHECKING"
        found += [*node.body, *node.orelse] if is_for_types and isinstance(node, ast.If) else [node]
    return found


class Module:
    def __init__(self, package: Path, name: str) -> None:
        base = package.joinpath(*name.split(".")[1:])
        candidates = [base.with_suffix(".pyi"), base.with_suffix(".py"), base / "__init__.py"]
        self.file = next(file for file in candidates if file.exists())
        self.name = name
        self.tree = ast.parse(self.file.read_text(encoding="utf-8"))
        cython = base.with_suffix(".pyx")
        self.texts = texts_of_cython(cython.read_text(encoding="utf-8")) if cython.exists() else {}
        self.definitions: dict[str, list[Definition]] = {}
        self.imported: dict[str, tuple[str, str]] = {}
        self.imported_whole: list[str] = []  # modules whose exported names it imports
        self.exported: list[str] = []
        self.exports_of: list[str] = []  # modules whose exported names it exports
        for node in statements(self.tree.body):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                self.definitions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if alias.name == "*":
                        self.imported_whole.append(node.module)
                    else:
                        self.imported[alias.asname or alias.name] = (node.module, alias.name)
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" and isinstance(node.value, ast.List):
                for element in node.value.elts:
                    if isinstance(element, ast.Starred):
                        self.exports_of.append(".".join(self.imported[ast.unparse(element.value).removesuffix(".__all__")]))
                    else:
                        self.exported.append(ast.literal_eval(element))

    def text(self, node: Definition, qualified: str) -> str:
        own = ast.get_docstring(node)
        if own:
            return own
        return self.texts.get(qualified, "")


class Package:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules: dict[str, Module] = {}

    def module(self, name: str) -> Module:
        if name not in self.modules:
            self.modules[name] = Module(self.folder, name)
        return self.modules[name]

    def exported(self, name: str) -> list[str]:
        """Returns the names that a module exports."""
        here = self.module(name)
        return [*here.exported, *(each for other in here.exports_of for each in self.exported(other))]

    def find(self, module: str, name: str) -> tuple[Module, str] | None:
        """Returns the module that defines a name, and its name there; None for names of other packages, modules and values."""
        for _ in range(9):
            here = self.module(module)
            if name in here.definitions:
                return here, name
            if name in here.imported:
                module, name = here.imported[name]
            elif whole := [other for other in here.imported_whole if name in self.exported(other)]:
                module = whole[0]
            else:
                return None
            if not module.startswith("rmm"):
                return None
            below = self.folder.joinpath(*module.split(".")[1:])
            if not below.with_suffix(".py").exists() and not below.with_suffix(".pyi").exists() and not below.is_dir():
                return None
        return None


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, drop_first: bool) -> str:
    arguments = ast.parse(ast.unparse(node.args).join(("def f(", "): ..."))).body[0].args  # type: ignore[attr-defined]
    if drop_first:
        (arguments.posonlyargs or arguments.args).pop(0)
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"({ast.unparse(arguments)}){returned}".replace(" -> Self", "")


def decorators(node: Definition) -> set[str]:
    return {ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list}


def rst(text: str) -> list[str]:
    """Converts a docstring: plain text with `code`, doctests and headings in NumPy's style."""
    lines: list[str] = []
    source = text.splitlines()
    previous_item = False
    for number, line in enumerate(source):
        below = source[number + 1] if number + 1 < len(source) else ""
        if re.fullmatch(r"-{3,}", line.strip()) and lines and lines[-1].startswith("**"):
            lines.append("")
            continue
        if re.fullmatch(r"-{3,}", below.strip()) and line.strip():
            lines += ["", f"**{line.strip()}**"]
            continue
        if (
            line.lstrip().startswith(">>>")
            and lines
            and lines[-1].strip()
            and not lines[-1].lstrip().startswith((">>>", "..."))
        ):
            if not previous_item:
                lines.append("")
        previous_item = line.lstrip().startswith(">>>") or (previous_item and bool(line.strip()))
        lines.append(line if previous_item else re.sub(r"(?<![`:\w])`([^`]+)`(?![`_])", r"``\1``", line.replace("*", r"\*")))
    return lines


def indented(lines: list[str], by: int) -> list[str]:
    return [" " * by + line if line else "" for line in lines]


def function_lines(module: Module, nodes: list[Definition], qualified: str, directive: str, method: bool) -> list[str]:
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    overloads = [node for node in functions if "overload" in decorators(node)] or functions[:1]
    name = qualified.rpartition(".")[2]
    static = "staticmethod" in decorators(overloads[0])
    heads = [name + signature(node, method and not static) for node in overloads]
    option = [f"   :{kind}:" for kind in ("staticmethod", "classmethod") if kind in decorators(overloads[0])] if method else []
    text = next((found for node in functions if (found := module.text(node, qualified))), "")
    pad = "\n" + " " * (len(directive) + 7)
    return [f".. py:{directive}:: {pad.join(heads)}", *option, "", *indented(rst(text), 3), ""]


def class_lines(package: Package, module: Module, node: ast.ClassDef, shown_as: str) -> list[str]:
    members: dict[str, list[Definition]] = {}
    for part in members_of(package, module, node):
        members.setdefault(part[1].name, []).append(part[1])
    homes = {part[1].name: part[0] for part in reversed(members_of(package, module, node))}
    head = shown_as
    constructor = next((members[name] for name in CONSTRUCTORS if name in members), None)
    if constructor and isinstance(constructor[-1], ast.FunctionDef):
        head += signature(constructor[-1], True).partition(" -> ")[0]
    bases = [ast.unparse(base) for base in node.bases if not ast.unparse(base).startswith("_")]
    text = module.text(node, node.name)
    lines = [f".. py:class:: {head}", ""]
    if bases and bases[0] in ("DeviceMemoryResource", "UpstreamResourceAdaptor"):
        lines += [f"   A :py:class:`rmm.mr.{bases[0]}`.", ""]
    lines += [*indented(rst(text), 3), ""]
    for name, nodes in members.items():
        if name.startswith("_"):
            continue
        home, owner = homes[name]
        qualified = f"{owner}.{name}"
        if "property" in decorators(nodes[0]) or "cached_property" in decorators(nodes[0]):
            kind = nodes[0].returns if isinstance(nodes[0], ast.FunctionDef) else None
            kind_line = [f"      :type: {ast.unparse(kind)}"] if kind is not None else []
            text = home.text(nodes[0], qualified)
            lines += [f"   .. py:property:: {name}", *kind_line, "", *indented(rst(text), 6), ""]
        else:
            lines += indented(function_lines(home, nodes, qualified, "method", True), 3)
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and not part.target.id.startswith("_"):
            lines += [f"   .. py:attribute:: {part.target.id}", f"      :type: {ast.unparse(part.annotation)}", ""]
    return lines


def members_of(package: Package, module: Module, node: ast.ClassDef) -> list[tuple[tuple[Module, str], Definition]]:
    """Returns (where it is defined, member) for the members of a class, including those of private bases."""
    found: list[tuple[tuple[Module, str], Definition]] = [
        ((module, node.name), part)
        for part in node.body
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))
        and not any(word.endswith((".setter", ".deleter")) for word in decorators(part))
    ]
    names = {part.name for _, part in found}
    for base in node.bases:
        name = ast.unparse(base)
        if name.startswith("_") and (place := package.find(module.name, name)):
            home, own = place
            above = home.definitions[own][0]
            if isinstance(above, ast.ClassDef):
                found += [part for part in members_of(package, home, above) if part[1].name not in names]
    return found


def page_lines(package: Package, name: str, title: str, only: list[str]) -> list[str]:
    module = package.module(name)
    lines = [name, "=" * len(name), "", f"{title}.", "", f".. py:module:: {name}", ""]
    lines += [*rst(ast.get_docstring(module.tree) or ""), ""]
    names = only or sorted(package.exported(name)) or [own for own in module.definitions if not own.startswith("_")]
    for own in names:
        if own.startswith("_"):
            continue
        place = package.find(name, own)
        if place is None:
            continue
        home, there = place
        nodes = home.definitions[there]
        if isinstance(nodes[0], ast.ClassDef):
            lines += class_lines(package, home, nodes[0], own)
        else:
            lines += function_lines(home, nodes, there, "function", False)
    return lines


def write_pages(root: Path, folder: Path) -> None:
    """Writes the pages, and an index of them, to `folder`."""
    package = Package(root / "python" / "rmm" / "rmm")
    folder.mkdir(parents=True, exist_ok=True)
    index = [
        "Python reference",
        "================",
        "",
        "Made from the stubs and texts of the package.",
        "",
        ".. toctree::",
        "   :maxdepth: 2",
        "",
    ]
    for page, (name, title, only) in PAGES.items():
        index.append(f"   {page}")
        lines = page_lines(package, name, title, only)
        (folder / f"{page}.rst").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "index.rst").write_text("\n".join(index) + "\n", encoding="utf-8")
