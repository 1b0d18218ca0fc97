# SPDX-License-Identifier: Apache-2.0
"""Memory of an elastic pool that processes share."""

from __future__ import annotations

import ctypes
import gc
import pickle
import subprocess
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest

import librmm
import rmm
import rmm.mr
from rmm._build_facts import cuda_backend
from rmm._cuda import gpu
from rmm.mr import ExportedMemory, ImportedMemory
from rmm.pylibrmm.device_buffer import copy_host_to_ptr
from rmm.pylibrmm.stream import Stream

MIB = 1 << 20


@pytest.fixture
def pool() -> rmm.mr.ElasticPoolMemoryResource:
    made = rmm.mr.ElasticPoolMemoryResource(share_descriptors=True)
    if not made.has_virtual_memory:
        pytest.skip("needs a device with virtual memory")
    return made


@pytest.fixture
def shared(pool: rmm.mr.ElasticPoolMemoryResource) -> rmm.DeviceBuffer:
    """A buffer of 5 MiB that covers several chunks and does not begin at one."""
    before = rmm.DeviceBuffer(size=MIB, mr=pool)
    buffer = rmm.DeviceBuffer(size=5 * MIB, mr=pool)
    del before
    buffer.copy_from_host(bytes(range(256)) * (5 * MIB // 256))
    return buffer


def test_imported_memory_is_the_same_memory(pool: rmm.mr.ElasticPoolMemoryResource, shared: rmm.DeviceBuffer) -> None:
    with pool.export_descriptors(shared.ptr, shared.size) as exported:
        assert exported.nbytes == 5 * MIB
        assert exported.chunk_bytes == pool.chunk_bytes
        assert len(exported.descriptors) > 1
        imported = ImportedMemory(exported)
    assert (imported.size, imported.nbytes, len(imported), imported.device) == (5 * MIB,) * 3 + (0,)
    assert imported.ptr != shared.ptr
    assert rmm.DeviceBuffer.from_device(imported).tobytes() == shared.tobytes()
    copy_host_to_ptr(b"Hello", imported.ptr + 4 * MIB)
    assert shared.tobytes()[4 * MIB : 4 * MIB + 5] == b"Hello"
    assert repr(imported).startswith(f"ImportedMemory(size={5 * MIB}, ptr=0x")


def test_imported_memory_speaks_dlpack(pool: rmm.mr.ElasticPoolMemoryResource, shared: rmm.DeviceBuffer) -> None:
    imported: Any = ImportedMemory(pool.export_descriptors(shared.ptr, 1000))
    assert imported.__dlpack_device__() == (2, 0)
    capsule = imported.__dlpack__()
    del imported
    gc.collect()

    class Tensor:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

        def __dlpack__(self, *, stream: Any = None) -> Any:
            return capsule

    assert rmm.DeviceBuffer.from_device(Tensor()).tobytes() == shared.tobytes()[:1000]


def test_imported_memory_is_not_copied(pool: rmm.mr.ElasticPoolMemoryResource, shared: rmm.DeviceBuffer) -> None:
    imported = ImportedMemory(pool.export_descriptors(shared.ptr, 1000))
    with pytest.raises(BufferError, match="without a copy"):
        imported.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="without a copy"):
        imported.__dlpack__(dl_device=(2, 7))


def test_descriptors_are_closed_once(
    pool: rmm.mr.ElasticPoolMemoryResource, shared: rmm.DeviceBuffer, open_descriptors: Callable[[], int]
) -> None:
    pool.export_descriptors(shared.ptr, shared.size).close()  # opens descriptors that the process keeps
    before = open_descriptors()
    exported = pool.export_descriptors(shared.ptr, shared.size)
    assert open_descriptors() == before + len(exported.descriptors)
    exported.close()
    exported.close()
    assert open_descriptors() == before
    pool.export_descriptors(shared.ptr, shared.size)  # the destructor closes them, too
    gc.collect()
    assert open_descriptors() == before


def test_imported_memory_goes_with_the_object(pool: rmm.mr.ElasticPoolMemoryResource, shared: rmm.DeviceBuffer) -> None:
    exported = pool.export_descriptors(shared.ptr, shared.size)
    size = shared.size
    del shared, pool
    imported = ImportedMemory(exported)  # imported memory keeps the chunks
    assert rmm.DeviceBuffer.from_device(imported).size == size
    exported.close()
    del imported


@pytest.mark.skipif(cuda_backend != "sim", reason="looks at the simulator's runtime")
def test_the_end_of_imported_memory_waits_for_its_device_and_leaves_the_current_one(
    pool: rmm.mr.ElasticPoolMemoryResource, shared: rmm.DeviceBuffer, second_device: int
) -> None:
    runtime = ctypes.CDLL(str(Path(librmm.__file__).parent / "lib" / "libcudart_sim.so"))
    imported = ImportedMemory(pool.export_descriptors(shared.ptr, 1000))
    stream = Stream()
    handle = ctypes.c_void_p(stream.__cuda_stream__()[1])
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
    for _ in range(20):  # until it still sleeps: this thread may have to wait for a processor meanwhile
        assert runtime.cudaLaunchHostFunc(handle, sleep, ctypes.c_void_p(300_000)) == 0
        if runtime.cudaStreamQuery(handle) != 0:
            break
    assert runtime.cudaStreamQuery(handle) != 0
    gpu.setDevice(second_device)
    del imported
    gc.collect()
    assert runtime.cudaStreamQuery(handle) == 0
    assert gpu.getDevice() == second_device


def test_memory_that_cannot_be_exported_is_refused(
    pool: rmm.mr.ElasticPoolMemoryResource, shared: rmm.DeviceBuffer
) -> None:
    private = rmm.mr.ElasticPoolMemoryResource()
    buffer = rmm.DeviceBuffer(size=MIB, mr=private)
    with pytest.raises(RuntimeError, match="without the option share_descriptors"):
        private.export_descriptors(buffer.ptr, buffer.size)
    with pytest.raises(RuntimeError, match="without the option share_fabric"):
        pool.export_fabric(shared.ptr, shared.size)
    for ptr, nbytes in ((0, MIB), (shared.ptr, 0), (shared.ptr, 1 << 40)):
        with pytest.raises(RuntimeError):
            pool.export_descriptors(ptr, nbytes)
    with pytest.raises(TypeError):
        pool.export_descriptors(shared.ptr, 1.5)  # type: ignore[arg-type]


def test_memory_that_was_not_exported_is_refused(
    pool: rmm.mr.ElasticPoolMemoryResource, shared: rmm.DeviceBuffer
) -> None:
    exported = pool.export_descriptors(shared.ptr, shared.size)
    for bad in (
        ExportedMemory(0, 0, exported.chunk_bytes),
        ExportedMemory(0, 1000, exported.chunk_bytes),
        ExportedMemory(exported.offset_bytes, exported.nbytes, exported.chunk_bytes, (-1,) * len(exported.descriptors)),
        ExportedMemory(0, 1000, exported.chunk_bytes, (), (b"too short",)),
        ExportedMemory(0, 1000, exported.chunk_bytes, (), (b"",)),
        ExportedMemory(0, 1000, exported.chunk_bytes, (), (bytes(65),)),
        ExportedMemory(0, 1000, exported.chunk_bytes, (), (bytes(64),)),  # no memory has this name
        ExportedMemory(0, 1000, exported.chunk_bytes, (), (bytes(64), bytes(64))),
        ExportedMemory(0, exported.chunk_bytes + 1, exported.chunk_bytes, (), (bytes(64), bytes(63))),
    ):
        with pytest.raises(RuntimeError):
            ImportedMemory(bad)
        bad.descriptors = ()  # they are not to be closed
    with pytest.raises(AttributeError):
        ImportedMemory(shared)  # type: ignore[arg-type]


def test_descriptors_are_sent_with_multiprocessing_only(
    pool: rmm.mr.ElasticPoolMemoryResource, shared: rmm.DeviceBuffer
) -> None:
    exported = pool.export_descriptors(shared.ptr, shared.size)
    with pytest.raises(TypeError, match="multiprocessing"):
        pickle.dumps(exported)
    assert bytes(ForkingPickler.dumps(exported))


def test_fabric_handles_are_pickled() -> None:
    exported = ExportedMemory(7, 1000, 2 * MIB, (), (bytes(range(64)),))
    again = pickle.loads(pickle.dumps(exported))
    assert (again.offset_bytes, again.nbytes, again.chunk_bytes) == (7, 1000, 2 * MIB)
    assert again.fabric_handles == exported.fabric_handles
    assert repr(again) == "ExportedMemory(nbytes=1000, 1 fabric handles)"


def way_of_sharing(way: str) -> Any:
    program = Path(__file__).with_name("shared_memory_program.py")
    return pytest.param(way, marks=pytest.mark.program(arguments=[str(program), way]))


@pytest.mark.parametrize("way", [way_of_sharing("an argument"), way_of_sharing("a queue")])
def test_another_process_reads_and_writes_it(way: str, done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode == 77:
        pytest.skip("needs a device with virtual memory")
    assert done.returncode == 0, done.stderr
