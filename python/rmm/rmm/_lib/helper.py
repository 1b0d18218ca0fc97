# SPDX-License-Identifier: Apache-2.0
"""rmm.pylibrmm.helper, under the name that it had up to 24.10."""

from __future__ import annotations

from rmm.pylibrmm.helper import (
    parse_bytes,
)

__all__ = [
    "parse_bytes",
]
