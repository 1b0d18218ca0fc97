# SPDX-License-Identifier: Apache-2.0
"""Detects other distributions with files in the folders of this one. pip installs such distributions over each other silently.

This module imports no other module of the package, because those may be another distribution's. It only lists one folder.
"""

from __future__ import annotations

import os
import sys

__all__ = ["advice", "hidden_modules", "other_distributions"]

_folder = os.path.dirname(os.path.abspath(__file__))


def other_distributions(folder: str) -> list[tuple[str, str]]:
    """Returns the names and versions of the distributions in a folder that also own `rmm/` or `librmm/`."""
    try:
        entries = os.listdir(folder)
    except OSError:  # Python did not import the package from a folder
        return []
    found = []
    for entry in entries:
        name, _, rest = entry.partition("-")
        if not rest.endswith((".dist-info", ".egg-info")):
            continue
        # Names that pip and conda install: rmm, librmm, rmm_cu13, librmm_cu13, ...
        base, _, suffix = name.lower().removeprefix("lib").partition("_")
        if base == "rmm" and (not suffix or (suffix.startswith("cu") and suffix[2:].isdecimal())):
            found.append((name.lower().replace("_", "-"), rest.rpartition(".")[0].partition("-")[0]))
    return sorted(found)


def hidden_modules(package: str) -> list[str]:
    """Returns the modules of the package that a compiled module of the same name hides."""
    found = []
    for folder, _, files in os.walk(package):
        stems = [name.partition(".")[0] for name in files if name.endswith((".so", ".py"))]
        compiled = {name.partition(".")[0] for name in files if name.endswith(".so")}
        modules = {stem for stem in compiled if stems.count(stem) > 1}
        place = os.path.relpath(folder, os.path.dirname(package)).replace(os.sep, ".")
        found += [f"{place}.{module}" for module in modules]
    return sorted(found)


def advice() -> str:
    """Returns a sentence that says what to do about distributions in the same folders; empty if there are none."""
    others = other_distributions(os.path.dirname(_folder))
    if not others:
        return ""
    described = ", ".join(" ".join(other) for other in others)
    names = " ".join(name for name, _ in others)
    return (
        f"{described} and rmm-engine are installed into the same folders, rmm and librmm, and have replaced files of "
        f"each other: run `pip uninstall {names} rmm-engine`, then install one of them again."
    )


def _check() -> None:
    """Warns of a mixed installation. Raises ImportError if it cannot work."""
    sentence = advice()
    if not sentence:
        return
    # If another distribution replaced rmm/__init__.py, its modules may be complete and work.
    is_ours = hasattr(sys.modules.get("rmm"), "__distribution__")
    hidden = hidden_modules(_folder) if is_ours else []
    if hidden:
        raise ImportError(f"{sentence} It cannot work as it is: Python finds two files for {hidden[0]}.")
    import warnings

    warnings.warn(sentence, stacklevel=4)


_check()
