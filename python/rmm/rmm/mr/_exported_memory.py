# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from multiprocessing import reduction
from types import TracebackType
from typing import Any, Self


class ExportedMemory:
    """A block of device memory that other processes can map with `ImportedMemory`.

    `export_descriptors` and `export_fabric` of an `ElasticPoolMemoryResource` make it. Send it with `multiprocessing`: as an
    argument of a spawned process, through a queue, or through a connection. Fabric handles can also be pickled and sent by
    other means, to other machines, too. Descriptors cannot.

    Parameters
    ----------
    offset_bytes : int
        The offset of the block in its first chunk.
    nbytes : int
        The bytes of the block.
    chunk_bytes : int
        The bytes of a chunk.
    descriptors : tuple of int, optional
        A file descriptor for each chunk that the block touches. The object closes them.
    fabric_handles : tuple of bytes, optional
        A fabric handle for each chunk that the block touches.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.ElasticPoolMemoryResource(share_descriptors=True)
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
    >>> with pool.export_descriptors(buffer.ptr, buffer.size) as exported:
    ...     exported
    ExportedMemory(nbytes=1000, 1 descriptors)
    """

    __slots__ = {  # noqa: RUF023 - in the order of the parameters
        "offset_bytes": "Where the block begins in its first chunk.",
        "nbytes": "Bytes of the block.",
        "chunk_bytes": "Bytes of a chunk. Importers can access whole chunks, not only the block.",
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
        """Close the descriptors. Memory that was imported with them stays mapped.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.ElasticPoolMemoryResource(share_descriptors=True)
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> exported = pool.export_descriptors(buffer.ptr, buffer.size)
        >>> exported.close()
        """
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
        if getattr(self, "descriptors", ()):  # an __init__ that raised an exception has set none
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.descriptors:
            raise TypeError(
                "file descriptors are valid in one process only: send this object with multiprocessing, which duplicates them"
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
