# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from enum import IntEnum

__all__ = ["level_enum", "logging_level"]


class logging_level(IntEnum):
    """Severities of messages of the debug log, under the names of RMM up to 24.12.

    Examples
    --------
    >>> import rmm
    >>> rmm.should_log(rmm.logging_level.CRITICAL)
    True
    """

    TRACE = 0
    DEBUG = 1
    INFO = 2
    WARN = 3
    ERR = 4
    CRITICAL = 5
    OFF = 6


class level_enum(IntEnum):
    """Severities of messages of the debug log, under the names of RMM since 25.02.

    `n_levels` is the number of the others. As a level it means the same as `off`: nothing is logged.

    Examples
    --------
    >>> import rmm
    >>> rmm.should_log(rmm.level_enum.critical)
    True
    """

    trace = 0
    debug = 1
    info = 2
    warn = 3
    error = 4
    critical = 5
    off = 6
    n_levels = 7
