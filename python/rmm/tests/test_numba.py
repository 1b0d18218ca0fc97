# SPDX-License-Identifier: Apache-2.0
"""The plug-in for Numba. Numba calls no CUDA where these tests make a manager by themselves, so they need no GPU."""

from __future__ import annotations

import gc
import subprocess
import warnings
from importlib.util import find_spec
from typing import Any

import pytest

import rmm
import rmm.mr
from rmm._build_facts import cuda_backend

if find_spec("numba") is None:
    pytest.skip("Numba is not installed", allow_module_level=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # those of Numba about a NumPy that is newer
    try:
        import numba.cuda.cudadrv.driver  # noqa: F401
    except (ImportError, AttributeError) as error:  # the latter where it asks NumPy for what a newer one lacks
        pytest.skip(f"Numba cannot be imported here: {error}", allow_module_level=True)
    from rmm.allocators.numba import RMMNumbaManager, _numba_memory_manager


class Context:
    """All that a manager needs of Numba's context to allocate."""


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def manager(context: Context) -> Any:
    made = RMMNumbaManager(context=context)
    made.initialize()
    return made


@pytest.fixture
def counted() -> rmm.mr.StatisticsResourceAdaptor:
    resource = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(resource)
    return resource


def test_memory_comes_from_the_current_device_resource(manager: Any, counted: rmm.mr.StatisticsResourceAdaptor) -> None:
    memory = manager.memalloc(1024)
    assert memory.size == 1024
    assert counted.allocation_counts.current_bytes == 1024
    assert [buffer.ptr for buffer in manager.allocations.values()] == [int(memory.device_pointer)]


def test_memory_goes_back_with_its_pointer(manager: Any, counted: rmm.mr.StatisticsResourceAdaptor) -> None:
    memory = manager.memalloc(1024)
    del memory
    gc.collect()
    assert counted.allocation_counts.current_bytes == 0
    assert not manager.allocations


def test_a_pointer_can_outlive_the_table(manager: Any, counted: rmm.mr.StatisticsResourceAdaptor) -> None:
    memory = manager.memalloc(1024)
    manager.reset()
    assert counted.allocation_counts.current_bytes == 0
    del memory
    gc.collect()
    assert counted.allocation_counts.current_count == 0


def test_a_pointer_that_outlived_the_table_frees_no_new_memory(
    manager: Any, small_pool: rmm.mr.PoolMemoryResource
) -> None:
    old = manager.memalloc(1024)
    manager.reset()
    new = manager.memalloc(1024)
    assert int(new.device_pointer) == int(old.device_pointer)  # the pool hands the same memory out again
    del old
    gc.collect()
    assert [buffer.ptr for buffer in manager.allocations.values()] == [int(new.device_pointer)]
    assert small_pool.figures()["live_bytes"] == 1024


def test_no_bytes_are_not_in_the_table(manager: Any) -> None:
    first, second = manager.memalloc(0), manager.memalloc(0)
    assert first.size == second.size == 0
    assert not manager.allocations


def test_nothing_goes_back_while_clean_up_is_deferred(manager: Any, counted: rmm.mr.StatisticsResourceAdaptor) -> None:
    memory = manager.memalloc(1024)
    other = manager.memalloc(1024)
    with manager.defer_cleanup():
        del memory
        gc.collect()
        with manager.defer_cleanup():
            pass
        assert counted.allocation_counts.current_bytes == 2048
    assert counted.allocation_counts.current_bytes == 1024
    del other
    gc.collect()
    assert counted.allocation_counts.current_bytes == 0


def test_what_was_deferred_can_be_allocated_again_later(manager: Any, small_pool: rmm.mr.PoolMemoryResource) -> None:
    memory = manager.memalloc(6 << 20)
    with manager.defer_cleanup():
        del memory
        gc.collect()
        with pytest.raises(MemoryError):
            manager.memalloc(6 << 20)
    assert manager.memalloc(6 << 20).size == 6 << 20


def test_out_of_memory_is_a_memory_error_with_the_report(manager: Any, small_pool: rmm.mr.PoolMemoryResource) -> None:
    with pytest.raises(MemoryError, match="Maximum pool size exceeded"):
        manager.memalloc(1 << 30)


@pytest.mark.usefixtures("device_alone")
def test_memory_that_a_pool_has_free_is_free(manager: Any) -> None:
    info = manager.get_memory_info()
    assert tuple(info) == rmm.mr.available_device_memory()
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "8MiB")
    rmm.mr.set_current_device_resource(rmm.mr.StatisticsResourceAdaptor(pool))
    memory = manager.memalloc(2 << 20)
    free, total = rmm.mr.available_device_memory()
    assert manager.get_memory_info() == (free + (6 << 20), total)
    assert (manager.get_memory_info().free, manager.get_memory_info().total) == manager.get_memory_info()
    del memory


@pytest.mark.usefixtures("device_alone")
def test_free_memory_of_a_pool_is_found_below_adaptors_with_figures_of_their_own(manager: Any) -> None:
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "8MiB")
    rmm.mr.set_current_device_resource(rmm.mr.SpillResourceAdaptor(pool))
    free, total = rmm.mr.available_device_memory()
    assert manager.get_memory_info() == (free + (8 << 20), total)
    rmm.mr.set_current_device_resource(rmm.mr.SpillResourceAdaptor(rmm.mr.CudaMemoryResource()))
    assert manager.get_memory_info() == (free, total)


def test_numba_accepts_the_manager(manager: Any) -> None:
    assert manager.interface_version == 1
    assert _numba_memory_manager is RMMNumbaManager


@pytest.mark.program(
    """
    from numba.cuda.cudadrv import driver
    driver._ensure_memory_manager()
    assert driver._memory_manager.__name__ == "RMMNumbaManager"
    """,
    begin="",
    environment={"NUMBA_CUDA_MEMORY_MANAGER": "rmm.allocators.numba"},
)
def test_the_environment_chooses_the_manager(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


begin = """
    import gc, sys
    import numpy as np
    from numba import cuda
    if not cuda.is_available(): sys.exit(77)
    import rmm, rmm.allocators, rmm.mr
    counted = rmm.mr.StatisticsResourceAdaptor(
        rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "64MiB", "1GiB"))
    rmm.mr.set_current_device_resource(counted)
    rmm.allocators.enable("numba")
"""
needs_kernels = pytest.mark.skipif(cuda_backend == "sim", reason="needs a GPU: the simulator runs no kernels")


def check(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode == 77:
        pytest.skip("Numba finds no GPU")
    assert done.returncode == 0, done.stderr


@needs_kernels
@pytest.mark.program(
    """
    @cuda.jit
    def twice(x):
        i = cuda.grid(1)
        if i < x.size: x[i] *= 2
    x = cuda.to_device(np.arange(100000, dtype="f8"))
    assert counted.allocation_counts.current_bytes == 800000
    twice[400, 256](x)
    assert (x.copy_to_host() == 2 * np.arange(100000)).all()
    del x
    gc.collect()
    assert counted.allocation_counts.current_bytes == 0
""",
    shares=True,
)
def test_kernels_compute_on_the_pool(kernels_of_numba: None, done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@needs_kernels
@pytest.mark.program(
    """
    x, y = cuda.device_array(1000, dtype="u1"), cuda.device_array(1000, dtype="u1")
    handles = [array.get_ipc_handle()._ipc_handle for array in (x, y)]
    assert abs(handles[0].offset - handles[1].offset) >= 1000
""",
    shares=True,
)
def test_ipc_handles_have_the_offset_in_the_pool(done: subprocess.CompletedProcess[str]) -> None:
    check(done)
