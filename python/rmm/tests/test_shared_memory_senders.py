# SPDX-License-Identifier: Apache-2.0
"""Descriptors of shared memory on their way between processes: of one user, of two, and with senders that lie or end."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import connection, process, resource_sharer
from multiprocessing.reduction import ForkingPickler

import pytest

from rmm.mr import ExportedMemory
from rmm.mr._exported_memory import _SentDescriptors, _sharer

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")

begin = """
    import hmac, multiprocessing, os, pickle, socket, tempfile  # all of it here: the other user may not be able to read modules
    from multiprocessing import connection, resource_sharer
    from multiprocessing.reduction import ForkingPickler
    from rmm.mr import ExportedMemory
    from rmm.mr._exported_memory import _sharer, _SentDescriptors

    other_user = 65534

    def open_descriptors():
        return len(os.listdir("/proc/self/fd"))

    def outcome_of(data):
        before = open_descriptors()
        try:
            with pickle.loads(data) as memory:
                outcome = f"took {len(memory.descriptors)}"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        return outcome, open_descriptors() - before

    def start(work, *arguments):
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=work, args=(theirs, *arguments))
        child.start()
        theirs.close()
        return ours, child

    def finish(child):
        child.join()
        assert child.exitcode == 0, child.exitcode
"""


@pytest.fixture
def many() -> Iterator[ExportedMemory]:
    """More descriptors than fit into one message."""
    resource_sharer.stop()
    with ExportedMemory(7, 1000, 1 << 21, tuple(os.open("/", os.O_RDONLY) for _ in range(130))) as memory:
        yield memory
    resource_sharer.stop()


def test_descriptors_arrive_in_order_and_are_not_inherited(many: ExportedMemory) -> None:
    reading, writing = os.pipe()
    many.descriptors += (reading, writing)
    with pickle.loads(ForkingPickler.dumps(many)) as taken:
        assert (taken.offset_bytes, taken.nbytes, taken.chunk_bytes) == (7, 1000, 1 << 21)
        assert len(taken.descriptors) == 132
        assert not set(taken.descriptors) & set(many.descriptors)
        for ours, theirs in zip(many.descriptors, taken.descriptors, strict=True):
            assert os.path.sameopenfile(ours, theirs)
            assert not os.get_inheritable(theirs)


def test_nothing_is_lost_by_a_receiver_that_closes_the_connection(
    many: ExportedMemory, open_descriptors: Callable[[], int]
) -> None:
    before = open_descriptors()
    for _ in range(2):
        _sharer.get_connection(_SentDescriptors(many.descriptors).place).close()
    assert len(pickle.loads(ForkingPickler.dumps(many)).descriptors) == 130  # the thread goes on
    resource_sharer.stop()
    assert open_descriptors() == before


def test_nothing_is_lost_if_a_descriptor_cannot_be_duplicated(
    many: ExportedMemory, open_descriptors: Callable[[], int]
) -> None:
    before = open_descriptors()
    with pytest.raises(OSError, match="Bad file descriptor"):
        _SentDescriptors((*many.descriptors, 1 << 30))
    assert open_descriptors() == before


def taken_from(sender: Callable[[socket.socket], None], count: int) -> int:
    """Takes `count` descriptors from what `sender` sends. Returns how many came."""

    def serve() -> None:
        with listener.accept() as accepted:
            accepted.recv()
            with socket.fromfd(accepted.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as end:
                sender(end)

    with connection.Listener(authkey=process.current_process().authkey) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        sent = _SentDescriptors(())
        sent.place, sent.count = (listener.address, 1), count
        try:
            taken = sent.take()
        finally:
            thread.join()
    for each in taken:
        os.close(each)
    return len(taken)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((), "0 of 3 descriptors"),  # closes the connection
        ((0,), "0 of 3 descriptors"),  # a message without descriptors
        ((1,), "1 of 3 descriptors"),
        ((2, 0, 1), "2 of 3 descriptors"),
        ((4,), "3 of 3 descriptors"),
        ((1, 200), "3 of 3 descriptors"),
    ],
)
def test_a_sender_that_ends_early_or_lies_is_refused(
    sizes: tuple[int, ...], text: str, open_descriptors: Callable[[], int]
) -> None:
    resource_sharer.stop()
    before = open_descriptors()

    def send(end: socket.socket) -> None:
        folder = os.open("/", os.O_RDONLY)
        with suppress(BrokenPipeError):  # the receiver has refused what came before
            for size in sizes:
                socket.send_fds(end, [b"m"], [folder] * size)
        os.close(folder)

    with pytest.raises(ConnectionError, match=text):
        taken_from(send, 3)
    resource_sharer.stop()
    assert open_descriptors() == before


def test_descriptors_may_come_one_by_one() -> None:
    def send(end: socket.socket) -> None:
        for _ in range(3):
            socket.send_fds(end, [b"m"], [0])

    assert taken_from(send, 3) == 3


@pytest.mark.program("""
    def receive(talk, data):
        talk.send(outcome_of(data))

    before = open_descriptors()
    with ExportedMemory(7, 1000, 1 << 21, os.pipe()) as exported:
        talk, child = start(receive, bytes(ForkingPickler.dumps(exported)))
    print(*talk.recv())
    finish(child)
    talk.close()
    del talk, child
    assert not _sharer._cache
    resource_sharer.stop()
    print(open_descriptors() - before)
""")
def test_a_process_of_the_same_user_takes_descriptors(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout == "took 2 0\n0\n"
    assert done.stderr == ""


@needs_root
@pytest.mark.program("""
    def send(talk):
        os.setuid(other_user)
        with ExportedMemory(7, 1000, 1 << 21, os.pipe()) as exported:
            talk.send_bytes(ForkingPickler.dumps(exported))
            talk.recv()

    talk, child = start(send)
    print(*outcome_of(talk.recv_bytes()))
    talk.send("end")
    finish(child)
""")
def test_a_sender_of_another_user_is_refused(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "PermissionError: the other process belongs to user 65534 and this one to user 0: "
        "memory is shared only between processes of one user 0\n"
    )


@needs_root
@pytest.mark.program("""
    def receive(talk, data):
        os.setuid(other_user)
        talk.send(outcome_of(data))

    exported = ExportedMemory(7, 1000, 1 << 21, os.pipe())
    talk, child = start(receive, bytes(ForkingPickler.dumps(exported)))
    print(*talk.recv())
    finish(child)
""")
def test_a_receiver_of_another_user_learns_why_it_cannot_connect(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "PermissionError: the other process belongs to user 0 and this one to user 65534: "
        "memory is shared only between processes of one user 0\n"
    )


@needs_root
@pytest.mark.program("""
    def receive(talk, place):
        os.setuid(other_user)
        with _sharer.get_connection(place) as connection:  # as a program that does not look at the sender's user
            with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as end:
                talk.send(socket.recv_fds(end, 1, 2)[:2])

    ends = os.pipe()
    before = open_descriptors()
    sent = _SentDescriptors(ends)
    os.chmod(os.path.dirname(sent.place[0]), 0o711)
    os.chmod(sent.place[0], 0o666)
    talk, child = start(receive, sent.place)
    print(*talk.recv())
    finish(child)
    talk.close()
    del talk, child
    assert not _sharer._cache
    resource_sharer.stop()
    print(open_descriptors() - before)
""")
def test_a_receiver_of_another_user_is_sent_nothing(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout == "b'' []\n0\n"
    assert "PermissionError: the other process belongs to user 65534 and this one to user 0" in done.stderr
