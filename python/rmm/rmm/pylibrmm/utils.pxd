# SPDX-License-Identifier: Apache-2.0

from rmm.pylibrmm.stream cimport Stream


cdef inline Stream as_stream(Stream stream):
    """Returns `stream`. Raises TypeError if it is None."""
    if stream is None:
        raise TypeError("stream argument cannot be None")
    return stream
