# SPDX-License-Identifier: Apache-2.0
"""Parses sizes such as "512 MiB"."""

__all__ = ["parse_bytes"]

cdef object _pattern = None
cdef dict _multipliers = {"": 1, "b": 1}
for _exponent, _letter in enumerate("kmgtp", start=1):
    _multipliers[_letter + "b"] = 1000**_exponent
    _multipliers[_letter + "ib"] = 1024**_exponent


cpdef object parse_bytes(object s):
    """Convert a size to a number of bytes.

    Parameters
    ----------
    s : int, float or str
        The size: an int, a float without a fraction such as 1e9, or a str such as "512 MiB", "1.5gb" or "4096". Units are powers
        of 1000 (kB to PB) and of 1024 (KiB to PiB), in upper or lower case. Without a unit, the number counts bytes.

    Returns
    -------
    int
        The bytes.

    Raises
    ------
    ValueError
        If the text is not a size, or the number has a fraction of a byte.

    Examples
    --------
    >>> from rmm.pylibrmm.helper import parse_bytes
    >>> parse_bytes("1.5 KiB")
    1536
    """
    global _pattern
    if isinstance(s, float):
        if not s.is_integer():
            raise ValueError(f"{s!r} is not a whole number of bytes")
        return int(s)
    if not isinstance(s, str):
        return s
    if _pattern is None:
        import re

        _pattern = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)[ \t]*([a-zA-Z]*)", re.ASCII)
    match = _pattern.fullmatch(s)
    multiplier = None if match is None else _multipliers.get(match[2].lower())
    if multiplier is None:
        raise ValueError(f"Could not parse {s!r} as a size in bytes: write a number and, if it is not in bytes, one of the "
                         "units kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB")
    number = match[1]
    try:
        return int(number) * multiplier if number.isdigit() else int(float(number) * multiplier)
    except (OverflowError, ValueError):  # infinite as a float, or more digits than int() accepts
        raise ValueError(f"Could not parse {s[:20]!r}... as a size in bytes: the number is too large") from None
