# SPDX-License-Identifier: Apache-2.0
"""ReservationQueue: reservations that wait for their turn and for the memory."""

from __future__ import annotations

import threading
import time

import pytest

import rmm

MIB = 1 << 20


def pool() -> rmm.mr.PoolMemoryResource:
    return rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 4 * MIB, 4 * MIB)


def wait_until(queue: rmm.mr.ReservationQueue, waiting: int) -> None:
    while queue.waiting != waiting:
        time.sleep(0.001)


def test_available_memory_is_reserved_immediately() -> None:
    source = pool()
    queue = rmm.mr.ReservationQueue(source)
    with queue.reserve_or_wait("1MiB", priority=3, timeout=0) as task:
        assert (task.size, task.source) == (MIB, source)
        assert rmm.DeviceBuffer(size=1000, mr=task).size == 1000
    assert (queue.waiting, queue.source) == (0, source)


def test_a_request_waits_until_memory_is_free() -> None:
    source = pool()
    queue = rmm.mr.ReservationQueue(source, retry_after=60)
    held = source.reserve(4 * MIB)
    sizes: list[int] = []
    worker = threading.Thread(target=lambda: sizes.append(queue.reserve_or_wait(MIB).size))
    worker.start()
    wait_until(queue, 1)
    held.release()
    queue.notify()
    worker.join(300)
    assert sizes == [MIB]


def test_requests_come_in_the_order_of_their_priority() -> None:
    source = pool()
    queue = rmm.mr.ReservationQueue(
        source, aging=None, retry_after=60
    )  # else the first could be at a retry when others come
    held = source.reserve(4 * MIB)
    order: list[int] = []

    def work(priority: int) -> None:
        with queue.reserve_or_wait(3 * MIB, priority):
            order.append(priority)
        queue.notify()

    workers = []
    for number, priority in enumerate((1, 3, 2)):
        workers.append(threading.Thread(target=work, args=(priority,)))
        workers[-1].start()
        wait_until(queue, number + 1)
    held.release()
    queue.notify()
    for worker in workers:
        worker.join(300)
    assert order == [3, 2, 1]


def test_a_timeout_is_a_memory_error() -> None:
    source = pool()
    held = source.reserve(4 * MIB)
    with pytest.raises(
        MemoryError, match=r"No reservation of 1.000000 MiB after \d+ ms: the pool does not have as much memory"
    ):
        rmm.mr.ReservationQueue(source).reserve_or_wait(MIB, timeout=0.01)
    assert held.size == 4 * MIB


def test_parts_of_a_reservation_can_wait_too() -> None:
    task = pool().reserve(2 * MIB)
    queue = rmm.mr.ReservationQueue(task)
    assert queue.reserve_or_wait(MIB, timeout=0).size == MIB
    task.release()
    with pytest.raises(RuntimeError, match="The reservation has ended"):
        queue.reserve_or_wait(MIB)


def test_impossible_requests_are_refused_immediately() -> None:
    source = pool()
    task = source.reserve(2 * MIB)
    for owner, most in ((source, "4"), (task, "2")):
        queue = rmm.mr.ReservationQueue(owner)
        with pytest.raises(MemoryError, match=f"there can be at most {most}.000000 MiB. Reserve less"):
            queue.reserve_or_wait("5MiB")
        with pytest.raises(RuntimeError, match="Cannot reserve 0 bytes"):
            queue.reserve_or_wait(0)


def test_a_queue_and_its_reservations_keep_the_pool() -> None:
    queue = rmm.mr.ReservationQueue(pool())
    task = queue.reserve_or_wait(MIB)
    del queue
    assert rmm.DeviceBuffer(size=1000, mr=task).size == 1000


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="has no pool in it"):
        rmm.mr.ReservationQueue(rmm.mr.CudaMemoryResource())
    with pytest.raises(TypeError):
        rmm.mr.ReservationQueue(None)  # type: ignore[arg-type]
    queue = rmm.mr.ReservationQueue(pool())
    for timeout in (-1, float("nan")):
        with pytest.raises(ValueError, match="timeout is"):
            queue.reserve_or_wait(MIB, timeout=timeout)
    with pytest.raises(ValueError, match="aging is -1"):
        rmm.mr.ReservationQueue(pool(), aging=-1)
    with pytest.raises(OverflowError):
        queue.reserve_or_wait(MIB, priority=1 << 40)
    assert repr(queue) == "ReservationQueue(PoolMemoryResource(CudaMemoryResource()))"
