# SPDX-License-Identifier: Apache-2.0
"""Where the libraries of the package are, and how later releases load the one that this one does not have."""

from __future__ import annotations

import ctypes
from pathlib import Path

__all__ = ["library_path", "load_library"]

# The options of a build that leave libraries out.
_options = {
    "librmm_audit.so": "RMM_BUILD_AUDIT_LIBRARY",
    "librmm_c.so.1": "RMM_BUILD_C_LIBRARY",
    "librmm_nvtx.so": "RMM_BUILD_NVTX_LIBRARY",
}


def library_path(name: str = "librmm_c.so.1") -> Path:
    """Return where a library of the package is: without a name the C interface, for ctypes and other languages.

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
    path = Path(__file__).parent / "lib" / name
    if name not in _options:
        raise FileNotFoundError(f"{name} is no library of the package: it has {', '.join(_options)}")
    if not path.is_file():
        raise FileNotFoundError(f"{name} was not found: this package was built without it ({_options[name]})")
    return path


def load_library() -> ctypes.CDLL | None:
    """Loads the library, and returns its handle: None, for this library consists of headers."""
    return None
