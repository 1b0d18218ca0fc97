# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import socket
import struct
from array import array
from collections.abc import Iterable
from multiprocessing import context, reduction, resource_sharer
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self


class ExportedMemory:
    """A block of device memory that other processes can map with `ImportedMemory`.

    `export_descriptors` and `export_fabric` of an `ElasticPoolMemoryResource` make it. Send it with `multiprocessing`: as an
    argument of a spawned process, through a queue, or through a connection. Fabric handles can also be pickled and sent by
    other means, to other machines, too. Descriptors cannot.

    A process sends descriptors only to processes of its own user, and takes them only from these. Others get a
    `PermissionError`. Descriptors that nobody takes stay open until the sender ends. If you send the numbers of descriptors,
    or fabric handles, by other means, check who gets them: the holder can read and write the memory.

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


_sharer: Any = resource_sharer._resource_sharer  # type: ignore[attr-defined]  # what multiprocessing sends a descriptor with
_MOST_OF_A_MESSAGE = 128  # the kernel takes 253


def _refusal(theirs: int) -> PermissionError:
    return PermissionError(
        f"the other process belongs to user {theirs} and this one to user {os.geteuid()}: "
        "memory is shared only between processes of one user"
    )


def _checked_socket(connection: Connection[Any, Any]) -> socket.socket:
    """Returns a duplicate of the connection's socket. Raises PermissionError if another user is at the other end."""
    checked = socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
    credentials = struct.Struct("iII")
    _, user, _ = credentials.unpack(checked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    if user != os.geteuid():
        checked.close()
        raise _refusal(user)
    return checked


def _close_all(descriptors: Iterable[int]) -> None:
    for each in descriptors:
        os.close(each)


def _send(connection: Connection[Any, Any], descriptors: list[int]) -> None:
    with _checked_socket(connection) as checked:
        for at in range(0, len(descriptors), _MOST_OF_A_MESSAGE):
            socket.send_fds(checked, [b"m"], descriptors[at : at + _MOST_OF_A_MESSAGE])


def _receive(source: socket.socket, most: int) -> tuple[array[int], bool]:
    """Receives a message. Returns its descriptors, at most `most`, and whether there were no others."""
    got = array("i")
    # recv_fds() ignores the flag, without which programs that other threads start inherit the descriptors
    _, pieces, flags, _ = source.recvmsg(1, socket.CMSG_LEN(most * got.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in pieces:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            got.frombytes(data[: len(data) - len(data) % got.itemsize])
    return got, not flags & socket.MSG_CTRUNC


class _SentDescriptors:
    """Descriptors that one other process takes, over a Unix socket, from a thread of this process."""

    def __init__(self, descriptors: Iterable[int]) -> None:
        duplicates: list[int] = []
        try:
            for each in descriptors:
                duplicates.append(os.dup(each))
            self.place = _sharer.register(
                lambda connection, process: _send(connection, duplicates), lambda: _close_all(duplicates)
            )
        except BaseException:
            _close_all(duplicates)
            raise
        self.count = len(duplicates)

    def _connect(self) -> Connection[Any, Any]:
        try:
            return _sharer.get_connection(self.place)  # type: ignore[no-any-return]
        except PermissionError as error:  # the socket lies in a folder that only the sender's user may enter
            raise _refusal(os.stat(os.path.dirname(self.place[0])).st_uid) from error

    def take(self) -> tuple[int, ...]:
        taken: list[int] = []
        try:
            with self._connect() as connection, _checked_socket(connection) as checked:
                while len(taken) < self.count:
                    most = min(_MOST_OF_A_MESSAGE, self.count - len(taken))
                    got, whole = _receive(checked, most)
                    taken += got
                    if not got or not whole:
                        raise ConnectionError(
                            f"{len(taken)} of {self.count} descriptors of shared memory came: the sender ended or refused this "
                            "user, or this process has too many open files"
                        )
        except BaseException:
            _close_all(taken)
            raise
        return tuple(taken)


def _received(sizes: tuple[int, int, int], sent: _SentDescriptors) -> ExportedMemory:
    return ExportedMemory(*sizes, descriptors=sent.take())


def _inherited(sizes: tuple[int, int, int], duplicates: list[Any]) -> ExportedMemory:
    return ExportedMemory(*sizes, descriptors=tuple(each.detach() for each in duplicates))


def _reduce(memory: ExportedMemory) -> tuple[Any, ...]:
    if not memory.descriptors:
        return memory.__reduce__()
    sizes = (memory.offset_bytes, memory.nbytes, memory.chunk_bytes)
    if context.get_spawning_popen() is not None:  # this process starts the one that takes them
        return _inherited, (sizes, [reduction.DupFd(each) for each in memory.descriptors])
    return _received, (sizes, _SentDescriptors(memory.descriptors))


reduction.register(ExportedMemory, _reduce)
