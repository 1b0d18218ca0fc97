# SPDX-License-Identifier: Apache-2.0

from rmm.pylibrmm._log_levels import level_enum as level_enum
from rmm.pylibrmm._log_levels import logging_level as logging_level

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

def should_log(level: logging_level | level_enum) -> bool: ...
def set_logging_level(level: logging_level | level_enum) -> None: ...
def get_logging_level() -> logging_level | level_enum: ...
def flush_logger() -> None: ...
def set_flush_level(level: logging_level | level_enum) -> None: ...
def get_flush_level() -> logging_level | level_enum: ...
