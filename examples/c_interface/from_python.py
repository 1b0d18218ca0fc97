# SPDX-License-Identifier: Apache-2.0
"""A pool from Python, through ctypes alone.

RMM_C_LIBRARY names librmm_c.so.1 if the loader does not find it. RMM_C_LOAD_FIRST names a library to load before it, such as
the simulated CUDA runtime.
"""

from __future__ import annotations

import ctypes
import os

if first := os.environ.get("RMM_C_LOAD_FIRST"):
    ctypes.CDLL(first, mode=ctypes.RTLD_GLOBAL)
library = ctypes.CDLL(os.environ.get("RMM_C_LIBRARY", "librmm_c.so.1"))

CURRENT_DEVICE = -1
OUT_OF_MEMORY = 1

library.rmm_c_resource_create.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)]
library.rmm_c_resource_allocate.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
]
library.rmm_c_resource_deallocate.argtypes = [
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_size_t,
    ctypes.c_void_p,
]
library.rmm_c_resource_deallocate.restype = None
library.rmm_c_resource_destroy.argtypes = [ctypes.c_void_p]
library.rmm_c_last_failure_text.restype = ctypes.c_char_p


def check(status: int) -> None:
    """Raises an exception for a status other than success."""
    if status != 0:
        text = library.rmm_c_last_failure_text().decode(errors="replace")
        raise MemoryError(text) if status == OUT_OF_MEMORY else RuntimeError(text)


class Block:
    """Memory of a resource. It is freed when the last reference to the object is gone."""

    def __init__(self, resource: Resource, nbytes: int, stream: int = 0) -> None:
        self.nbytes = nbytes
        self._stream = stream
        self._address = ctypes.c_void_p()
        self._resource = resource
        check(library.rmm_c_resource_allocate(resource.handle, nbytes, 0, stream, ctypes.byref(self._address)))

    @property
    def address(self) -> int:
        return self._address.value or 0

    def __del__(self) -> None:
        # This also works after the resource was closed, and while the interpreter ends.
        library.rmm_c_resource_deallocate(self._resource.handle, self._address, self.nbytes, 0, self._stream)


class Resource:
    """The resource of a configuration, such as "pool,max=80%". The pool lives until its last block is freed."""

    def __init__(self, configuration: str | None = None, device: int = CURRENT_DEVICE) -> None:
        self.handle = ctypes.c_void_p()
        text = None if configuration is None else configuration.encode()
        check(library.rmm_c_resource_create(text, device, ctypes.byref(self.handle)))

    def allocate(self, nbytes: int, stream: int = 0) -> Block:
        return Block(self, nbytes, stream)

    def close(self) -> None:
        check(library.rmm_c_resource_destroy(self.handle))


pool = Resource()  # uses the configuration in RMM_RESOURCE
block = pool.allocate(1000)
assert block.address % 256 == 0

limited = Resource("pool,max=1MiB")
try:
    limited.allocate(2 << 20)
except MemoryError as error:
    print(str(error).splitlines()[0])
else:
    raise AssertionError("the limit was not kept")

kept = limited.allocate(1000)
limited.close()  # `kept` is freed when the interpreter ends; the pool lives until then
print("version", library.rmm_c_version())
