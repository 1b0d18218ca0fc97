# SPDX-License-Identifier: Apache-2.0
"""Pages of the C++ reference, made from the comments of the public headers through Doxygen's XML.

Doxygen reads the code; this file decides what is shown and how: one page for each topic of TOPICS, members from bases in `detail` as
the class's own, and no private members.
"""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

import resource_table  # noqa: E402

Element = ElementTree.Element

# File of the page: (title, its public headers, which follow those of the table of resources)
OTHER_HEADERS: dict[str, tuple[str, list[str]]] = {
    "containers": (
        "Containers",
        [
            "rmm/device_buffer.hpp",
            "rmm/device_uvector.hpp",
            "rmm/device_scalar.hpp",
            "rmm/device_vector.hpp",
            "rmm/prefetch.hpp",
        ],
    ),
    "streams-and-devices": (
        "Streams and devices",
        [
            "rmm/cuda_stream_view.hpp",
            "rmm/cuda_stream.hpp",
            "rmm/cuda_stream_pool.hpp",
            "rmm/cuda_device.hpp",
            "rmm/aligned.hpp",
        ],
    ),
    "interface": (
        "The interface, and the current resource",
        [
            "rmm/mr/device_memory_resource.hpp",
            "rmm/resource_ref.hpp",
            "rmm/mr/per_device_resource.hpp",
            "rmm/mr/audit_route.hpp",
            "rmm/mr/trimmable_resource.hpp",
            "rmm/mr/is_resource_adaptor.hpp",
            "rmm/mr/host/host_memory_resource.hpp",
            "rmm/process_is_exiting.hpp",
        ],
    ),
    "pools": (
        "Pools",
        [
            "rmm/mr/memory_reservation.hpp",
            "rmm/mr/reservation_queue.hpp",
            "rmm/mr/shared_memory.hpp",
            "rmm/mr/shared_memory_socket.hpp",
        ],
    ),
    "sources": (
        "Where memory comes from",
        [
            "rmm/mr/host/new_delete_resource.hpp",
            "rmm/mr/host/pinned_memory_resource.hpp",
        ],
    ),
    "adaptors": (
        "Adaptors",
        [
            "rmm/mr/failure_callback_t.hpp",
            "rmm/mr/owning_wrapper.hpp",
        ],
    ),
    "configuration": (
        "Configuration",
        [
            "rmm/mr/configured_resource.hpp",
            "rmm/mr/resource_configuration.hpp",
            "rmm/mr/make_recommended_resource.hpp",
            "rmm/mr/recommended_configuration.hpp",
            "rmm/memory_amount.hpp",
        ],
    ),
    "errors-and-figures": (
        "Errors, reports, figures",
        [
            "rmm/error.hpp",
            "rmm/detail/error.hpp",
            "rmm/memory_report.hpp",
            "rmm/recovery.hpp",
            "rmm/heap_figures.hpp",
            "rmm/memory_snapshot.hpp",
            "rmm/logger.hpp",
            "rmm/logger_macros.hpp",
            "rmm/version_config.hpp",
        ],
    ),
    "scopes": ("Tags and captures", ["rmm/tag_scope.hpp", "rmm/capture_scope.hpp"]),
    "allocators": (
        "Allocators and Thrust",
        [
            "rmm/mr/polymorphic_allocator.hpp",
            "rmm/mr/thrust_allocator_adaptor.hpp",
            "rmm/exec_policy.hpp",
        ],
    ),
    "simulator": ("The simulator", ["cudasim/cudasim.h"]),
}

TOPICS = {topic: (title, resource_table.headers_of(topic) + headers) for topic, (title, headers) in OTHER_HEADERS.items()}

FORWARDED = re.compile(r"rmm/mr/device/|rapids_logger/|^(?!rmm/detail/error\.hpp$).*/detail/")

# Files with the classes and macros of a header, if not the header itself.
CLASSES_OF = {"rmm/cuda_stream.hpp": "rmm/detail/cuda_stream.hpp"}
MACROS_OF = {"rmm/logger_macros.hpp": "rmm/detail/logger_frontend.hpp"}

DOXYFILE = """
PROJECT_NAME = rmm
INPUT = "{root}/include" "{root}/simulator/include"
RECURSIVE = YES
FILE_PATTERNS = *.hpp *.h
EXCLUDE_PATTERNS = */include/rmm/mr/device/* */include/rapids_logger/*
STRIP_FROM_PATH = "{root}/include" "{root}/simulator/include"
OUTPUT_DIRECTORY = "{output}"
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
HAVE_DOT = NO
CLASS_GRAPH = NO
COLLABORATION_GRAPH = NO
INCLUDE_GRAPH = NO
INCLUDED_BY_GRAPH = NO
QUIET = YES
AUTOLINK_SUPPORT = NO
INPUT_FILTER = "sed -E -f '{filter}'"
WARN_IF_UNDOCUMENTED = NO
WARN_NO_PARAMDOC = NO
EXTRACT_PRIV_VIRTUAL = YES
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = RMM_NAMESPACE=rmm RMM_EXPORT= RMM_HIDDEN= RMM_COLD= RMM_OUT_OF_LINE= RMM_FLATTEN= RMM_ALWAYS_INLINE=inline \\
             "RMM_CONSTEXPR_FRIEND=friend constexpr" RMM_EXEC_CHECK_DISABLE= CUDASIM_EXPORT= __cplusplus=201703L \\
             RMM_HAS_SPDLOG=1 SPDLOG_USE_STD_FORMAT
"""

# Rewrites the paragraphs of our comments and lists of invariants; leaves examples alone.
FILTER = r"""
/@code/,/@endcode/b
s@^( *///) (Returns|Failure|Threads|Stream|Cost|Note)  +@\1 \\par \2\n\1 @
s@^( *///)  ([A-Z][0-9]+)  @\1 - `\2` @
s@^( *///) Invariants:@\1 \\par Invariants\n\1@
/^ *\/\/\//s@%([A-Za-z_])@%%\1@g
"""


class BadReference(Exception):
    """The errors for which the reference cannot be made, one per line."""


def public_headers(root: Path) -> list[str]:
    """Returns the headers that programs include, under the names for including them."""
    found = []
    for base in (root / "include", root / "simulator" / "include"):
        for file in base.rglob("*"):
            name = file.relative_to(base).as_posix()
            if file.suffix in (".hpp", ".h") and not FORWARDED.search(name):
                found.append(name)
    return sorted(found)


def check_topics(headers: list[str]) -> None:
    listed = [header for _, names in TOPICS.values() for header in names]
    nowhere = f"on no page of tools/site/cpp_reference.py, and in no row of {resource_table.TABLE}"
    wrong = [f"{header}: {nowhere}" for header in headers if header not in listed]
    wrong += [f"{header}: not there" for header in listed if header not in headers]
    if wrong:
        raise BadReference("\n".join(wrong))


def run_doxygen(root: Path, folder: Path) -> Path:
    """Runs Doxygen. Returns the folder of the XML. Warnings in public headers are errors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "filter.sed").write_text(FILTER.lstrip(), encoding="utf-8")
    text = DOXYFILE.format(root=root, output=folder, filter=folder / "filter.sed")
    (folder / "Doxyfile").write_text(text, encoding="utf-8")
    ran = subprocess.run(["doxygen", "Doxyfile"], cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise BadReference(ran.stderr)
    # Its parser cannot match some definitions with their declarations. The declaration has the comment.
    wrong = [
        line
        for line in ran.stderr.splitlines()
        if ": warning:" in line and "/detail/" not in line and "matching class member" not in line
    ]
    if wrong:
        raise BadReference("\n".join(wrong))
    return folder / "xml"


# --- text -------------------------------------------------------------------------------------------------------------


PAGE_OF_GUIDE = re.compile(r"docs/([a-z-]+)\.md")
EDGE = "\0"  # where inline markup begins and ends


def escaped(text: str) -> str:
    """Returns the text without markup. Pages of the guide that it names become links."""
    parts = PAGE_OF_GUIDE.split(text)
    for index, part in enumerate(parts):
        parts[index] = f"{EDGE}:doc:`/docs/{part}`{EDGE}" if index % 2 else re.sub(r"([\\*`|_])", r"\\\1", part)
    return "".join(parts)


def inline(element: Element) -> str:
    """Returns the text of an element as one line of reStructuredText."""
    parts = [escaped(element.text or "")]
    for child in element:
        content = "".join(child.itertext())
        if child.tag == "computeroutput":
            parts.append(f"{EDGE}``{content.strip()}``{EDGE}")
        elif child.tag in ("bold", "emphasis"):
            mark = "**" if child.tag == "bold" else "*"
            parts.append(f"{EDGE}{mark}{escaped(content.strip())}{mark}{EDGE}")
        elif child.tag == "linebreak":
            parts.append(" ")
        elif child.tag == "ulink":
            parts.append(f"`{content} <{child.get('url')}>`__")
        elif child.tag in BLOCKS:
            pass  # a block of its own
        else:
            parts.append(inline(child))
        parts.append(escaped(child.tail or ""))
    text = re.sub(r"\s+", " ", "".join(parts)).strip()
    # reStructuredText needs the mark only between a letter and markup.
    return re.sub(rf"(?<=\S){EDGE}(?=\S)", r"\\ ", text).replace(EDGE, "")


BLOCKS = ("itemizedlist", "orderedlist", "simplesect", "programlisting", "verbatim", "preformatted", "parameterlist", "table")


def indented(lines: list[str], by: int) -> list[str]:
    return [" " * by + line if line else "" for line in lines]


def code_of(listing: Element) -> str:
    lines = []
    for line in listing.iter("codeline"):
        lines.append("".join(" " if part.tag == "sp" else part.text or "" for part in text_parts(line)))
    return "\n".join(lines)


def text_parts(line: Element) -> Iterator[Element]:
    for part in line.iter():
        yield part
        if part.tail and part is not line:
            tail = Element("tail")
            tail.text = part.tail
            yield tail


def blocks(element: Element) -> list[str]:
    """Returns the text of a description as lines of reStructuredText."""
    lines: list[str] = []

    def add(more: list[str]) -> None:
        if more:
            lines.extend([*more, ""])

    if element.tag == "para":
        text = inline(element)
        if text:
            add([text])
    for child in element:
        if child.tag == "para":
            add(trimmed(blocks(child)))
        elif child.tag in ("itemizedlist", "orderedlist"):
            for item in child:
                inner = trimmed(blocks(item)) or [""]
                lines.extend(["* " + inner[0], *indented(inner[1:], 2)])
            lines.append("")
        elif child.tag == "simplesect":
            title = child.find("title")
            name = inline(title) if title is not None else (child.get("kind") or "note").capitalize()
            inner = [line for para in child.findall("para") for line in [*trimmed(blocks(para)), ""]]
            add([name, *indented(trimmed(inner) or ["\\ "], 2)])
        elif child.tag == "programlisting":
            add([".. code-block:: cpp", "", *indented(code_of(child).splitlines(), 3)])
        elif child.tag in ("verbatim", "preformatted"):
            add(["::", "", *indented("".join(child.itertext()).splitlines(), 3)])
        elif child.tag == "parameterlist":
            for item in child:
                name = ", ".join("".join(part.itertext()) for part in item.iter("parametername"))
                description = item.find("parameterdescription")
                add([f"``{name}``", *indented(trimmed(blocks(description)) if description is not None else [], 2)])
    return lines


def trimmed(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


def description_of(element: Element) -> list[str]:
    lines: list[str] = []
    for tag in ("briefdescription", "detaileddescription"):
        part = element.find(tag)
        if part is not None:
            lines += blocks(part)
    return trimmed(lines)


def has_text(element: Element) -> bool:
    return bool(description_of(element))


# --- code -------------------------------------------------------------------------------------------------------------


def plain(element: Element | None) -> str:
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip() if element is not None else ""


def tidied(code: str) -> str:
    code = re.sub(r"\[\[nodiscard\]\] *|\binline\b *|^static (?=constexpr .*=)", "", code)
    code = re.sub(r"typename detail::suballocator_upstream< ?Upstream ?>::ref_type", "device_async_resource_ref", code)
    code = re.sub(r"< ", "<", code)
    code = re.sub(r" >", ">", code)
    return re.sub(r"\s+", " ", code).strip()


def template_of(element: Element) -> str:
    parameters = element.find("templateparamlist")
    if parameters is None:
        return ""
    texts = []
    for parameter in parameters:
        text = plain(parameter.find("type"))
        name = plain(parameter.find("declname"))
        default = plain(parameter.find("defval"))
        if not name and "enable_if" in default + text:
            continue  # a condition on the function, which its comment describes
        if name and not re.search(rf"\b{re.escape(name)}$", text):
            text += " " + name
        if default:
            text += " = " + default
        texts.append(text)
    return tidied(f"template <{', '.join(texts)}> ") if texts else ""


def arguments_of(member: Element) -> str:
    text = plain(member.find("argsstring"))
    return re.sub(r"=(default|delete|0)$", r" = \1", text)


def function_signature(member: Element) -> str:
    name = plain(member.find("name"))
    kind = plain(member.find("type"))
    words = [word for word in ("explicit", "static", "constexpr", "virtual") if flag(member, word)]
    kind = re.sub(r"\b(constexpr|static|virtual|explicit|friend)\b ?", "", kind)
    if "friend" in plain(member.find("definition")).split():
        words.append("friend")
    return tidied(f"{template_of(member)} {' '.join(words)} {kind} {name}{arguments_of(member)}")


def is_to_be_overridden(member: Element) -> bool:
    virtual = member.get("virt") in ("virtual", "pure-virtual")
    return member.get("prot") == "private" and virtual and not re.search(r"\b(override|final)\b", arguments_of(member))


def flag(member: Element, word: str) -> bool:
    return (
        member.get({"virtual": "virt"}.get(word, word)) in ("yes", "virtual", "pure-virtual")
        or word in plain(member.find("type")).split()
    )


class Reference:
    def __init__(self, xml: Path) -> None:
        self.compounds: dict[str, Element] = {}
        self.uncommented: list[str] = []  # functions on pages without a text, `FILE:LINE: FUNCTION: ...`
        for file in sorted(xml.glob("*.xml")):
            if file.name in ("index.xml", "Doxyfile.xml"):
                continue
            for compound in ElementTree.parse(file).getroot():
                self.compounds[compound.get("id", "")] = compound
        self.shown: set[str] = set()

    def classes_of(self, header: str) -> list[Element]:
        """Returns the classes of a header that are not nested in others, in its order."""
        found = []
        for compound in self.compounds.values():
            if compound.get("kind") not in ("class", "struct", "union"):
                continue
            name = plain(compound.find("compoundname"))
            place = compound.find("location")
            if place is None or place.get("file") not in (header, CLASSES_OF.get(header)) or "detail::" in name or "<" in name:
                continue
            if self.owner_of(name) is None:
                found.append(compound)
        return sorted(found, key=line_of)

    def owner_of(self, name: str) -> Element | None:
        outer = name.rpartition("::")[0]
        for compound in self.compounds.values():
            if compound.get("kind") in ("class", "struct") and plain(compound.find("compoundname")) == outer:
                return compound
        return None

    def public_bases(self, compound: Element) -> Iterator[str]:
        """Yields the names of public bases. Bases in `detail` are replaced by their own bases."""
        for base in compound.findall("basecompoundref"):
            if base.get("prot") == "private":
                continue
            if "detail::" not in (base.text or ""):
                yield plain(base)
            elif base.get("refid", "") in self.compounds:
                yield from self.public_bases(self.compounds[base.get("refid", "")])

    def members(self, compound: Element) -> list[Element]:
        """Returns public members, and documented protected or virtual ones, together with those of bases in `detail`."""
        found = [
            member
            for section in compound.findall("sectiondef")
            for member in section.findall("memberdef")
            if member.get("prot") == "public"
            or (has_text(member) and (member.get("prot") == "protected" or is_to_be_overridden(member)))
        ]
        found.sort(key=line_of)
        names = {plain(member.find("name")) for member in found}
        for base in compound.findall("basecompoundref"):
            above = self.compounds.get(base.get("refid", ""))
            if above is None or "detail::" not in (base.text or "") or base.get("prot") == "private":
                continue
            own = plain(above.find("compoundname")).rpartition("::")[2]
            for member in self.members(above):
                name = plain(member.find("name"))
                special = name in (own, "~" + own) or name.startswith("operator") or member.get("prot") != "public"
                special = special or re.search(r"\b(override|final)\b", arguments_of(member)) is not None
                if name not in names and not special:
                    found.append(member)
        return found

    def member_lines(self, member: Element, scope: str) -> list[str]:
        name = plain(member.find("name"))
        kind = member.get("kind")
        arguments = arguments_of(member)
        text = description_of(member)
        if not text and (arguments.endswith(("delete", "default")) or name.startswith("~")):
            return []  # adds nothing to the language
        if not text and "override" in arguments:
            return []  # the base's comment is shown
        own = scope.rpartition("::")[2]
        if not text and name in (own, "operator=") and re.match(rf"\({own}(<.*?>)? (const ?)?&&? ?\w*\)", arguments):
            return []  # a plain copy or move
        if kind == "function":
            if "->" in arguments and not plain(member.find("type")):
                return []  # a deduction guide
            head = f".. cpp:function:: {function_signature(member)}"
        elif kind == "variable":
            value = plain(member.find("initializer"))
            value = value if len(value) < 60 and "{" not in value[1:] else ""
            value = "" if value.startswith("{") else value
            # cpp:member needs a plain declaration
            kind_of = re.sub(r"\bmutable\b ?", "", plain(member.find("type")))
            head = f".. cpp:member:: {tidied(f'{template_of(member)} {kind_of} {name}{arguments} {value}')}"
        elif kind == "typedef":
            to = plain(member.find("type"))
            definition = plain(member.find("definition"))
            if not definition.startswith(("using", "typedef")) and "using" not in definition:
                return []
            head = f".. cpp:type:: {tidied(f'{template_of(member)} {name} = {to}')}"
        elif kind == "enum":
            strong = "enum-class" if member.get("strong") == "yes" else "enum"
            head = f".. cpp:{strong}:: {name}"
            lines = [head, "", *indented(text, 3), ""]
            for value in member.findall("enumvalue"):
                lines += [f"   .. cpp:enumerator:: {plain(value.find('name'))}", "", *indented(description_of(value), 6), ""]
            return lines
        else:
            return []
        key = scope + "::" + head
        if key in self.shown:
            return []
        self.shown.add(key)
        return [head, "", *indented(text, 3), ""]

    def class_lines(self, compound: Element) -> list[str]:
        name = plain(compound.find("compoundname"))
        own = name.rpartition("::")[2]
        bases = [base for base in dict.fromkeys(self.public_bases(compound)) if "<" not in base]
        final = " final" if compound.get("final") == "yes" else ""
        below = " : public " + ", public ".join(bases) if bases else ""
        kind = "struct" if compound.get("kind") == "struct" else "class"
        lines = [f".. cpp:{kind}:: " + tidied(f"{template_of(compound)} {own}{final}{below}"), ""]
        lines += [*indented(description_of(compound), 3), ""]
        lines += indented(self.lines_of([(name, member) for member in self.members(compound)]), 3)
        for inner in compound.findall("innerclass"):
            part = self.compounds.get(inner.get("refid", ""))
            if part is not None and inner.get("prot") == "public":
                lines += indented(self.class_lines(part), 3)
        return lines

    def lines_of(self, members: list[tuple[str, Element]]) -> list[str]:
        """Returns the lines of members, each with its scope, in their order. Records those that have no text."""
        place_of = {}
        entries = []
        for scope, member in members:
            lines = self.member_lines(member, scope)
            entries.append((plain(member.find("name")), lines))
            if lines:
                place_of[lines[0]] = f"{location_of(member)}: {scope}::{plain(member.find('name'))}"
        found = joined(entries)
        for lines in found:
            if lines[0].startswith(FUNCTION) and not any(lines[lines.index("") :]):
                self.uncommented.append(f"{place_of[lines[0]]}: a public function without a comment")
        return [line for lines in found for line in lines]

    def free_members(self, header: str) -> Iterator[tuple[str, Element]]:
        """Yields (namespace, member) for a header's members outside of classes."""
        for compound in self.compounds.values():
            if compound.get("kind") not in ("namespace", "file"):
                continue
            name = plain(compound.find("compoundname"))
            if compound.get("kind") == "namespace" and re.match(r"std|cuda(?!sim)|thrust|.*\bdetail\b", name):
                continue
            for member in compound.iter("memberdef"):
                place = member.find("location")
                if place is None or member.get("static") == "yes":
                    continue
                macro = member.get("kind") == "define" and place.get("file") == MACROS_OF.get(header)
                if (place.get("file") != header and not macro) or plain(member.find("name")).startswith("RMM_DETAIL_"):
                    continue
                if compound.get("kind") == "file":
                    if member.get("kind") == "define" and has_text(member):
                        yield "", member
                    continue
                yield name, member

    def header_lines(self, header: str) -> list[str]:
        lines: list[str] = []
        last = None

        def enter(namespace: str) -> None:
            nonlocal last
            if namespace != last:
                lines.extend([f".. cpp:namespace:: {namespace or 'NULL'}", ""])
                last = namespace

        things: list[tuple[int, str, Element]] = []
        for compound in self.classes_of(header):
            name = plain(compound.find("compoundname"))
            things.append((line_of(compound), name.rpartition("::")[0], compound))
        for namespace, member in self.free_members(header):
            things.append((line_of(member), namespace, member))
        for _, namespace, thing in sorted(things, key=lambda thing: thing[0]):
            if thing.tag == "compounddef":
                more = self.class_lines(thing)
            elif thing.get("kind") == "define":
                parameters = [plain(part.find("defname")) for part in thing.findall("param")]
                call = f"({', '.join(parameters)})" if parameters else ""
                more = [f".. c:macro:: {plain(thing.find('name'))}{call}", "", *indented(description_of(thing), 3), ""]
            else:
                if not has_text(thing) and plain(thing.find("name")).startswith("operator"):
                    continue
                more = self.lines_of([(namespace, thing)])
            if more:
                enter(namespace)
                lines += more
        return lines


FUNCTION = ".. cpp:function:: "

# Functions that share the description of the function on the right.
TWINS = {"cbegin": "begin", "cend": "end", "crbegin": "rbegin", "crend": "rend", "operator!=": "operator=="}


def joined(entries: list[tuple[str, list[str]]]) -> list[list[str]]:
    """Joins overloads and twins without a text to the entry before them, whose text is theirs, too."""
    found: list[list[str]] = []
    last = ""
    for name, lines in entries:
        if not lines:
            continue
        name = TWINS.get(name, name)
        if name == last and lines[0].startswith(FUNCTION) and not any(lines[1:]):
            before = found[-1]
            before.insert(before.index(""), " " * len(FUNCTION) + lines[0].removeprefix(FUNCTION))
        else:
            found.append(list(lines))
            last = name if lines[0].startswith(FUNCTION) else ""
    return found


def line_of(element: Element) -> int:
    place = element.find("location")
    return int(place.get("line", "0")) if place is not None else 0


def location_of(element: Element) -> str:
    place = element.find("location")
    return f"{place.get('file')}:{place.get('line')}" if place is not None else "?"


def write_pages(root: Path, work: Path, folder: Path) -> None:
    """Writes the pages, and an index of them, to `folder`.

    A function without a text, its own or an overload's, is an error, and so is a header without anything to show.
    """
    check_topics(public_headers(root))
    reference = Reference(run_doxygen(root, work))
    folder.mkdir(parents=True, exist_ok=True)
    index = [
        "C++ reference",
        "=============",
        "",
        "Made from the comments of the headers. The rules that all resources and containers share",
    ]
    index += ["are in :doc:`/docs/concepts`.", "", ".. toctree::", "   :maxdepth: 2", ""]
    for name, (title, headers) in TOPICS.items():
        index.append(f"   {name}")
        lines = [title, "=" * len(title), ""]
        for header in headers:
            more = reference.header_lines(header)
            if not more:
                reference.uncommented.append(f"{header}: has nothing to show")
            lines += [header, "-" * len(header), "", f"``#include <{header}>``", "", *more, ""]
        (folder / f"{name}.rst").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "index.rst").write_text("\n".join(index) + "\n", encoding="utf-8")
    if reference.uncommented:
        raise BadReference("\n".join(reference.uncommented))
