# SPDX-License-Identifier: Apache-2.0
"""Finds the release of RAPIDS' rmm that the bridge is built for.

    rapids.py

prints for CMake the version of the installed rmm-cu13, and the folders of the packages librmm, rapids_logger and rmm.
"""

from __future__ import annotations

import os
import re
import sysconfig
from importlib.metadata import PackageNotFoundError, distributions, version
from importlib.util import find_spec
from pathlib import Path

#: Releases that the bridge is tested with, oldest first.
releases = ("26.8", "26.10")

_distribution = "rmm-cu13"


def release_of(version: str) -> str:
    """Returns '26.10' for '26.10.0' and for '26.10.00a12'."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        raise SystemExit(f"{version!r} is not a version of {_distribution}")
    return f"{int(found[1])}.{int(found[2])}"


def chosen_release() -> str:
    """Returns the release in RMM_RAPIDS_RELEASE; else the one installed where pip installs packages; else the newest.

    pip builds in an environment of its own, which hides what is installed. Where packages are installed is known all the same.
    """
    named = os.environ.get("RMM_RAPIDS_RELEASE")
    if named:
        return release_of(named)
    folders = list({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    for found in distributions(name=_distribution, path=folders):
        return release_of(found.version)
    return releases[-1]


def requirements(release: str) -> list[str]:
    """Returns the packages that the bridge for a release is compiled with."""
    return [f"{name}=={release}.*" for name in (f"lib{_distribution}", _distribution)]


def installed_version() -> str:
    """Returns the version of rmm-cu13 in the environment of the build."""
    try:
        return version(_distribution)
    except PackageNotFoundError:
        wanted = " ".join(repr(each) for each in requirements(chosen_release()))
        raise SystemExit(f"the build needs the packages of RAPIDS: pip install {wanted}") from None


def package_folder(name: str) -> Path:
    """Returns the folder of an installed package without importing it."""
    spec = find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise SystemExit(f"the package {name} of RAPIDS is not installed")
    return Path(places[0])


if __name__ == "__main__":
    packages = (package_folder(name) for name in ("librmm", "rapids_logger", "rmm"))
    print(installed_version(), *packages, sep=";")
