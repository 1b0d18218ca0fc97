# SPDX-License-Identifier: Apache-2.0
"""The debug log, in which the library reports on itself. It is written to RMM_DEBUG_LOG_FILE, or to `rmm_log.txt`.

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


# Getters return members of the enumeration from which the last level was set.
cdef object _level_type = logging_level


cdef c_level checked(level) except *:
    if not isinstance(level, (logging_level, level_enum)):
        raise TypeError(f"a level has to be a member of rmm.logging_level or rmm.level_enum, not {level!r}")
    return <c_level><int32_t>int(level)


cdef level_of(c_level number):
    if number == c_level.n_levels and _level_type is logging_level:
        return logging_level.OFF  # set as level_enum.n_levels, which logging_level lacks; the last level was set as a logging_level
    return _level_type(<int32_t>number)


cdef set_level_type(level):
    global _level_type
    _level_type = type(level)
    if level < active_level:
        warnings.warn(
            f"RMM will not log {type(level).__name__}.{level.name}. This may be because the C++ library is compiled at a "
            f"logging level of {type(level).__name__}.{_level_type(active_level).name}.", stacklevel=1)


def should_log(level):
    """Return whether a message of a level would be written: the level is compiled in, and not below the logging level.

    Parameters
    ----------
    level : level_enum or logging_level
        The level.

    Returns
    -------
    bool
        Whether such a message would be written.

    Raises
    ------
    TypeError
        If `level` is not a member of one of the enumerations.

    Examples
    --------
    >>> import rmm
    >>> rmm.should_log(rmm.level_enum.critical)
    True
    """
    cdef c_level wanted = checked(level)
    return int(level) >= active_level and debug_log().should_log(wanted)


def set_logging_level(level):
    """Set the least severe level that is written. Warns if messages of the level are not compiled in.

    Parameters
    ----------
    level : level_enum or logging_level
        The level.

    Raises
    ------
    TypeError
        If `level` is not a member of one of the enumerations.

    Examples
    --------
    >>> import rmm
    >>> before = rmm.get_logging_level()
    >>> rmm.set_logging_level(rmm.level_enum.warn)
    >>> rmm.get_logging_level()
    <level_enum.warn: 3>
    >>> rmm.set_logging_level(before)
    """
    cdef c_level wanted = checked(level)
    debug_log().set_level(wanted)
    set_level_type(level)


def get_logging_level():
    """Return the least severe level that is written; initially info.

    Returns
    -------
    level_enum or logging_level
        The level.

    Examples
    --------
    >>> import rmm
    >>> level = rmm.get_logging_level()
    """
    return level_of(debug_log().level())


def flush_logger():
    """Write buffered messages of the debug log to its file.

    Examples
    --------
    >>> import rmm
    >>> rmm.flush_logger()
    """
    with nogil:
        debug_log().flush()


def set_flush_level(level):
    """Set the least severe level whose messages are written immediately. Warns if messages of the level are not compiled in.

    Parameters
    ----------
    level : level_enum or logging_level
        The level.

    Raises
    ------
    TypeError
        If `level` is not a member of one of the enumerations.

    Examples
    --------
    >>> import rmm
    >>> before = rmm.get_flush_level()
    >>> rmm.set_flush_level(rmm.level_enum.error)
    >>> rmm.get_flush_level()
    <level_enum.error: 4>
    >>> rmm.set_flush_level(before)
    """
    cdef c_level wanted = checked(level)
    debug_log().flush_on(wanted)
    set_level_type(level)


def get_flush_level():
    """Return the least severe level whose messages are written immediately; initially warn.

    Returns
    -------
    level_enum or logging_level
        The level.

    Examples
    --------
    >>> import rmm
    >>> level = rmm.get_flush_level()
    """
    return level_of(debug_log().flush_level())
