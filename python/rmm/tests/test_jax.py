# SPDX-License-Identifier: Apache-2.0
"""JAX beside RMM's pool, and arrays of one in the memory of the other. On a GPU, except for arrays on the host."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import pytest

from rmm._build_facts import cuda_backend

begin = """
    import gc, os
    os.environ.setdefault("XLA_PYTHON_CLIENT_ALLOCATOR", "platform")
    import numpy as np
    import rmm, rmm.mr
    import jax, jax.numpy as jnp
    from rmm.pylibrmm.stream import Stream

    counted = rmm.mr.StatisticsResourceAdaptor(
        rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "64MiB", "1GiB"))
    rmm.mr.set_current_device_resource(counted)

    def used():
        gc.collect()
        return counted.allocation_counts.current_bytes

    def free_bytes():
        gc.collect()
        return rmm.mr.available_device_memory()[0]
"""

start_jax = """
    jnp.zeros(1000).block_until_ready()  # takes the memory that JAX needs for itself
"""


@cache
def reason_to_skip() -> str:
    """Why this cannot be tested here; empty if it can."""
    if cuda_backend == "sim":
        return "needs a GPU: JAX has the static CUDA runtime, which accepts NVIDIA's driver alone"
    if find_spec("jax") is None:
        return "JAX is not installed"
    probe = "import jax; raise SystemExit(0 if jax.default_backend() == 'gpu' else 1)"
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    found = subprocess.run([sys.executable, "-c", probe], env=environment, check=False, capture_output=True)
    return "" if found.returncode == 0 else "JAX finds no GPU"


@pytest.mark.program(
    """
    values = np.arange(24, dtype="u1")
    for stream in (rmm.pylibrmm.stream.DEFAULT_STREAM, Stream()):
        buffer = rmm.DeviceBuffer.to_device(values, stream=stream)
        array = jax.dlpack.from_dlpack(buffer)
        assert array.unsafe_buffer_pointer() == buffer.ptr
        assert (np.asarray(array) == values).all()
        floats = jax.lax.bitcast_convert_type(array.reshape(2, 3, 4), jnp.float32)
        assert (np.asarray(floats) == values.view("f4").reshape(2, 3)).all()
        del buffer
        assert used() > 0  # the array keeps the memory
        del array, floats
        assert used() == 0, used()
""",
    shares=True,
)
def test_jax_computes_on_the_memory_of_buffers(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    work = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda _, y: (y @ y) / 2048, x))
    for stream in (rmm.pylibrmm.stream.DEFAULT_STREAM, Stream()):
        x = work(jnp.ones((2048, 2048), jnp.float32))  # is not done yet
        copy = rmm.DeviceBuffer.from_device(x, stream=stream)
        assert (np.frombuffer(copy.tobytes(), dtype="f4") == 1).all()
    for dtype in (jnp.bfloat16, jnp.int8, jnp.complex64):
        x = jnp.arange(6, dtype=dtype).reshape(2, 3)
        assert rmm.DeviceBuffer.from_device(x).tobytes() == np.asarray(x).tobytes()
""",
    shares=True,
)
def test_arrays_of_jax_become_buffers(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    import cupy
    from rmm.allocators.cupy import rmm_cupy_allocator
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    x = cupy.arange(1000, dtype="f4").reshape(10, 100)
    array = jax.dlpack.from_dlpack(x)
    assert array.unsafe_buffer_pointer() == x.data.ptr and array.shape == (10, 100)
    total = float(array.sum())
    assert total == 499500, total
    back = cupy.from_dlpack(array + 1)
    assert float(back.sum()) == 500500
""",
    shares=True,
)
def test_arrays_keep_their_type_by_way_of_cupy(done: subprocess.CompletedProcess[str]) -> None:
    if "No module named 'cupy'" in done.stderr:
        pytest.skip("CuPy is not installed")
    assert done.returncode == 0, done.stderr


measure_an_array = """
    before = free_bytes()
    x = jnp.zeros(256 << 20, jnp.uint8).block_until_ready()
    with_array = free_bytes()
    del x
    without_array = free_bytes()
"""


@pytest.mark.usefixtures("device_alone")
@pytest.mark.program(
    f"""{measure_an_array}
    assert before - with_array >= 256 << 20, (before, with_array)
    assert without_array - with_array >= 256 << 20, (with_array, without_array)
    """,
    begin=begin + start_jax,
)
def test_the_platform_allocator_gives_memory_back(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("device_alone")
@pytest.mark.program(
    f"""{measure_an_array}
    total = rmm.mr.available_device_memory()[1]
    assert before > total * 0.5, (before, total)
    assert without_array - with_array < 256 << 20, (with_array, without_array)
    """,
    begin=begin + start_jax,
    environment={"XLA_PYTHON_CLIENT_ALLOCATOR": "default", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
)
def test_without_preallocation_jax_takes_what_it_needs_and_keeps_it(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("device_alone")
@pytest.mark.program(
    """
    total = rmm.mr.available_device_memory()[1]
    before = free_bytes()
    jnp.zeros(1000).block_until_ready()
    taken = before - free_bytes()
    assert 0.15 * total < taken < 0.35 * total, (taken, total)
    """,
    environment={"XLA_PYTHON_CLIENT_ALLOCATOR": "default", "XLA_CLIENT_MEM_FRACTION": "0.2"},
)
def test_a_share_of_the_memory_is_set_aside_for_jax(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("device_alone")
@pytest.mark.program(
    """
    error, pool = runtime.cudaDeviceGetDefaultMemPool(0)
    assert error == runtime.cudaError_t.cudaSuccess

    def in_use():
        gc.collect()
        jax.effects_barrier()
        error, value = runtime.cudaMemPoolGetAttribute(pool, runtime.cudaMemPoolAttr.cudaMemPoolAttrUsedMemCurrent)
        assert error == runtime.cudaError_t.cudaSuccess
        return int(value)

    before = in_use()
    x = jnp.zeros(64 << 20, jnp.uint8).block_until_ready()
    assert in_use() - before >= 64 << 20, (before, in_use())
    shared = rmm.mr.CudaAsyncViewMemoryResource(pool)
    before = in_use()
    buffer = rmm.DeviceBuffer(size=1 << 20, mr=shared)
    assert in_use() - before >= 1 << 20
    """,
    begin=f"{begin}{start_jax}    from cuda.bindings import runtime\n",
    environment={"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
)
def test_cuda_async_of_jax_and_ours_share_the_pool_of_the_driver(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
@pytest.mark.program(
    """
    for array in (jnp.arange(6.0).reshape(2, 3), jnp.arange(6, dtype=jnp.bfloat16), jnp.zeros((0, 3))):
        assert rmm.DeviceBuffer.from_device(array).tobytes() == np.asarray(array).tobytes()
    """,
    environment={"JAX_PLATFORMS": "cpu"},
    always=True,
)
def test_arrays_of_jax_on_the_host_become_buffers(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
