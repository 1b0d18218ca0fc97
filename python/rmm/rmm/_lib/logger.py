# SPDX-License-Identifier: Apache-2.0
"""rmm.pylibrmm.logger, under the name that it had up to 24.10."""

from __future__ import annotations

from rmm.pylibrmm.logger import (
    flush_logger,
    get_flush_level,
    get_logging_level,
    level_enum,
    logging_level,
    set_flush_level,
    set_logging_level,
    should_log,
)

__all__ = [
    "flush_logger",
    "get_flush_level",
    "get_logging_level",
    "level_enum",
    "logging_level",
    "set_flush_level",
    "set_logging_level",
    "should_log",
]
