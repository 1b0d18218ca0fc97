# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from multiprocessing import reduction
from types import TracebackType
from typing import Any, Self


class ExportedMemory:
    """A block of device memory for other processes, where `ImportedMemory` maps it.

    `export_descriptors` and `export_fabric` of an `ElasticPoolMemoryResource` make it. It is sent with `multiprocessing`: as an
    argument of a process that is spawned, through a queue, or through a connection. Fabric handles are bytes, and are pickled
    and sent by any means, to other machines too; descriptors are not.

    Parameters
    ----------
    offset_bytes, nbytes, chunk_bytes, descriptors, fabric_handles:
        The attributes of the same names.
    """

    __slots__ = {  # noqa: RUF023 - in the order of the parameters
        "offset_bytes": "Where the block begins in its first chunk.",
        "nbytes": "Bytes of the block.",
        "chunk_bytes": "Bytes of a chunk. Others can use whole chunks, with what else lies in them.",
        "descriptors": "A file descriptor for each chunk that the block touches. They are closed with this object.",
        "fabric_handles": "A fabric handle for each chunk that the block touches.",
        "__weakref__": "Weak references to this object.",
    }

    def __init__(
        self,
        offset_bytes: int,
        nbytes: int,
        chunk_bytes: int,
        descriptors: tuple[int, ...] = (),
        fabric_handles: tuple[bytes, ...] = (),
    ) -> None:
        self.offset_bytes = offset_bytes
        self.nbytes = nbytes
        self.chunk_bytes = chunk_bytes
        self.descriptors = descriptors
        self.fabric_handles = fabric_handles

    def close(self) -> None:
        """Closes the descriptors. What was imported with them stays."""
        descriptors, self.descriptors = self.descriptors, ()
        for descriptor in descriptors:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "descriptors", ()):  # there are none where __init__ has failed
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.descriptors:
            raise TypeError(
                "descriptors mean nothing in other processes: send it with multiprocessing, which duplicates them"
            )
        return ExportedMemory, (self.offset_bytes, self.nbytes, self.chunk_bytes, (), self.fabric_handles)

    def __repr__(self) -> str:
        kind = "fabric handles" if self.fabric_handles else "descriptors"
        count = len(self.fabric_handles or self.descriptors)
        return f"ExportedMemory(nbytes={self.nbytes}, {count} {kind})"


def _received(sizes: tuple[int, int, int], duplicates: list[Any]) -> ExportedMemory:
    return ExportedMemory(*sizes, descriptors=tuple(each.detach() for each in duplicates))


def _reduce(memory: ExportedMemory) -> tuple[Any, ...]:
    if not memory.descriptors:
        return memory.__reduce__()
    sizes = (memory.offset_bytes, memory.nbytes, memory.chunk_bytes)
    return _received, (sizes, [reduction.DupFd(each) for each in memory.descriptors])


reduction.register(ExportedMemory, _reduce)
