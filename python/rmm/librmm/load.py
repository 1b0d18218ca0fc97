# SPDX-License-Identifier: Apache-2.0
"""How later releases load the library, which this one does not have: it consists of headers."""

from __future__ import annotations

import ctypes

__all__ = ["load_library"]


def load_library() -> ctypes.CDLL | None:
    """Loads the library, and returns its handle: None, for this library consists of headers."""
    return None
