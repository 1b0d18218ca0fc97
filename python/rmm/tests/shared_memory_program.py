# SPDX-License-Identifier: Apache-2.0
"""Shares memory with another process, which gets it as an argument or in a queue, as the argument of this program says."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import rmm
import rmm.mr
from rmm.pylibrmm.device_buffer import copy_host_to_ptr


def work(exported: Any, inbox: Any, outbox: Any) -> None:
    memory = rmm.mr.ImportedMemory(exported if exported is not None else inbox.get(timeout=300))
    outbox.put(rmm.DeviceBuffer.from_device(memory).tobytes()[-5:])
    copy_host_to_ptr(b"world", memory.ptr + memory.size - 5)
    outbox.put("written")


if __name__ == "__main__":
    way = sys.argv[1]
    multiprocessing.set_start_method("spawn")
    pool = rmm.mr.ElasticPoolMemoryResource(share_descriptors=True)
    if not pool.has_virtual_memory:
        sys.exit(77)
    buffer = rmm.DeviceBuffer(size=5 << 20, mr=pool)
    buffer.copy_from_host(bytes((5 << 20) - 5) + b"Hello")
    exported = pool.export_descriptors(buffer.ptr, buffer.size)
    inbox: Any = multiprocessing.Queue()
    outbox: Any = multiprocessing.Queue()
    child = multiprocessing.Process(target=work, args=(exported if way == "an argument" else None, inbox, outbox))
    child.start()
    if way == "a queue":
        inbox.put(exported)
    assert outbox.get(timeout=300) == b"Hello"
    assert outbox.get(timeout=300) == "written"
    child.join()
    assert child.exitcode == 0, child.exitcode
    assert buffer.tobytes()[-5:] == b"world"
