# SPDX-License-Identifier: Apache-2.0
"""The debug log: what the library reports about itself, in the file named by RMM_DEBUG_LOG_FILE, else `rmm_log.txt`.

The file is made when the first message is written.
"""

from libc.stdint cimport int32_t
from libcpp cimport bool

from rmm.librmm._logger cimport level_enum as c_level, logger

import warnings

from rmm.pylibrmm._log_levels import level_enum, logging_level

__all__ = [
    "flush_logger", "get_flush_level", "get_logging_level", "level_enum", "logging_level", "set_flush_level",
    "set_logging_level", "should_log",
]


cdef extern from "pylibrmm/_debug_log.hpp" namespace "rmm_python" nogil:
    logger& debug_log() except +
    void write_to_debug_log(...) noexcept
    const int active_level


cdef log_function debug_log_function() noexcept:
    return <log_function>write_to_debug_log


# Levels are given back as members of the enumeration that the last one that was set belongs to.
cdef object _level_type = logging_level


cdef c_level checked(level) except *:
    if not isinstance(level, (logging_level, level_enum)):
        raise TypeError(f"a level has to be a member of rmm.logging_level or rmm.level_enum, not {level!r}")
    if level == level_enum.n_levels:
        raise ValueError("level_enum.n_levels is no level")
    return <c_level><int32_t>int(level)


cdef set_level_type(level):
    global _level_type
    _level_type = type(level)
    if level < active_level:
        warnings.warn(
            f"RMM will not log {type(level).__name__}.{level.name}. This may be because the C++ library is compiled at a "
            f"logging level of {type(level).__name__}.{_level_type(active_level).name}.", stacklevel=1)


def should_log(level):
    """Whether a message of `level` would be written: it is at or above the current level, and compiled in."""
    cdef c_level wanted = checked(level)
    return int(level) >= active_level and debug_log().should_log(wanted)


def set_logging_level(level):
    """Sets the least severe level that is written. Warns where such messages are not compiled in."""
    cdef c_level wanted = checked(level)
    debug_log().set_level(wanted)
    set_level_type(level)


def get_logging_level():
    """The least severe level that is written; initially info."""
    return _level_type(<int32_t>debug_log().level())


def flush_logger():
    """Writes what is buffered."""
    with nogil:
        debug_log().flush()


def set_flush_level(level):
    """Sets the least severe level whose messages are not buffered. Warns where such messages are not compiled in."""
    cdef c_level wanted = checked(level)
    debug_log().flush_on(wanted)
    set_level_type(level)


def get_flush_level():
    """The least severe level whose messages are not buffered; initially warn."""
    return _level_type(<int32_t>debug_log().flush_level())
