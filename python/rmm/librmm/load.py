# SPDX-License-Identifier: Apache-2.0
"""Functions for the shared libraries of the package."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path

import librmm

__all__ = ["library_path", "load_library"]

# The CMake options that turn each library on.
_options = {
    "librmm_audit.so": "RMM_BUILD_AUDIT_LIBRARY",
    "librmm_c.so.1": "RMM_BUILD_C_LIBRARY",
    "librmm_nvtx.so": "RMM_BUILD_NVTX_LIBRARY",
}


def find_in(folders: Iterable[str], name: str) -> Path:
    """A file in the folders of a package. An editable installation has two: what was built, and the sources."""
    places = [Path(folder, name) for folder in folders]
    return next((place for place in places if place.exists()), places[-1])


def library_path(name: str = "librmm_c.so.1") -> Path:
    """Return the path of a library of the package. The default is the C interface, for ctypes and other languages.

    Parameters
    ----------
    name : str, optional
        The file: `librmm_c.so.1`, `librmm_audit.so` or `librmm_nvtx.so`.

    Returns
    -------
    pathlib.Path
        The path.

    Raises
    ------
    FileNotFoundError
        If the package has no such library.

    Examples
    --------
    >>> import ctypes, librmm
    >>> ctypes.CDLL(librmm.library_path()).rmm_c_version()  # doctest: +SKIP
    1001
    """
    path = find_in(librmm.__path__, f"lib/{name}")
    if name not in _options:
        raise FileNotFoundError(f"{name} is no library of the package: it has {', '.join(_options)}")
    if not path.is_file():
        raise FileNotFoundError(f"{name} was not found: this package was built without it ({_options[name]})")
    return path


def load_library() -> ctypes.CDLL | None:
    """Return None: this library consists of headers. In later releases of RMM this function loads a library.

    Returns
    -------
    None
    No handle.

    Examples
    --------
    >>> import librmm
    >>> librmm.load_library()
    """
    return None
