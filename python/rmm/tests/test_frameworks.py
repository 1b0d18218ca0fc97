# SPDX-License-Identifier: Apache-2.0
"""CuPy, Numba and PyTorch on one pool, on a GPU. Each test is a program in another interpreter."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import textwrap
from functools import cache
from importlib.util import find_spec

import pytest

from rmm._build_facts import cuda_backend

frameworks = ("cupy", "numba", "torch")
orders_of_import = list(itertools.permutations(("rmm", *frameworks)))

begin = """
    import gc, os, sys, threading, warnings
    import cupy as cp, numpy as np, torch
    from numba import cuda
    import rmm, rmm.allocators, rmm.mr, rmm.statistics
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "256MiB", "4GiB")
    counted = rmm.mr.StatisticsResourceAdaptor(pool)
    rmm.mr.set_current_device_resource(counted)
    if not hasattr(torch, "enabled_by_tests"):  # else an earlier program in this interpreter has changed the allocators
        assert rmm.allocators.enable() == ("cupy", "numba", "torch")
        torch.enabled_by_tests = True

    def used():
        gc.collect()
        return counted.allocation_counts.current_bytes
"""

probe = """
    import cupy, torch
    from numba import cuda
    ok = torch.cuda.is_available() and cuda.is_available() and cupy.cuda.runtime.getDeviceCount() > 0
    raise SystemExit(0 if ok else 1)
"""


Done = subprocess.CompletedProcess[str]


@cache
def reason_to_skip() -> str:
    """Why this cannot be tested here; empty if it can."""
    if cuda_backend == "sim":
        return "needs a GPU: the simulator runs no kernels"
    missing = [name for name in frameworks if find_spec(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(probe)], check=False, capture_output=True)
    return "" if found.returncode == 0 else "not all of CuPy, Numba and PyTorch find a GPU"


@pytest.mark.program(
    """
    buffer = rmm.DeviceBuffer(size=1024)
    a = cp.empty(1000, dtype="f8")
    b = cuda.device_array(1000, dtype="f8")
    c = torch.empty(1000, dtype=torch.float64, device="cuda")
    assert used() == 1024 + 3 * 8000, used()
    addresses = sorted([buffer.ptr, a.data.ptr, b.device_ctypes_pointer.value, c.data_ptr()])
    assert addresses[-1] - addresses[0] < pool.pool_size()
    del buffer, a, b, c
    assert used() == 0, used()
""",
    shares=True,
)
def test_one_pool_serves_all_and_statistics_show_every_byte(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("kernels_of_numba")
@pytest.mark.program(
    """
    a = cp.arange(1000, dtype="f4")
    b = cuda.as_cuda_array(a)
    c = torch.as_tensor(a, device="cuda")
    d = torch.from_dlpack(a)
    e = cp.from_dlpack(d)
    before = used()
    assert c.data_ptr() == d.data_ptr() == e.data.ptr == a.data.ptr == b.device_ctypes_pointer.value
    @cuda.jit
    def add(x, y):
        i = cuda.grid(1)
        if i < x.size: x[i] += y
    add[8, 128](b, 1)
    cuda.synchronize()
    c *= 2
    torch.cuda.synchronize()
    assert (cp.asnumpy(a) == 2 * (np.arange(1000) + 1)).all()
    assert used() == before == 4000
    del a, b, c, d
    assert used() == 4000
    del e
    assert used() == 0
""",
    shares=True,
)
def test_views_share_memory_and_values(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    buffer = rmm.DeviceBuffer.to_device(bytes(range(240)))
    a = cp.asarray(buffer)
    b = cuda.as_cuda_array(buffer)
    c = torch.as_tensor(buffer, device="cuda")
    d = torch.from_dlpack(buffer)
    assert a.data.ptr == b.device_ctypes_pointer.value == c.data_ptr() == d.data_ptr() == buffer.ptr
    for values in (a.get(), b.copy_to_host(), c.cpu().numpy(), d.cpu().numpy()):
        assert (values.view("u1") == np.arange(240, dtype="u1")).all()
    assert rmm.DeviceBuffer.from_device(c).tobytes() == bytes(range(240))
""",
    shares=True,
)
def test_a_device_buffer_is_seen_by_all_without_a_copy(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    def make():
        return [cp.empty(1000), cuda.device_array(1000), torch.empty(1000, device="cuda"), rmm.DeviceBuffer(size=1024)]
    first = make()
    other = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaAsyncMemoryResource())
    rmm.mr.set_current_device_resource(other)
    second = make()
    assert other.allocation_counts.current_count == 4
    del first
    assert used() == 0
    assert other.allocation_counts.current_count == 4
    rmm.reinitialize()
    del second
    gc.collect()
    assert other.allocation_counts.current_count == 0
""",
    shares=True,
)
def test_the_resource_is_changed_mid_way(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("kernels_of_numba")
@pytest.mark.program(
    """
    @cuda.jit
    def fill(x, y):
        i = cuda.grid(1)
        if i < x.size: x[i] = y
    fill[1, 1](cuda.device_array(1, dtype="f4"), 0)
    wrong = []
    def work(number):
        stream = torch.cuda.Stream()
        for i in range(200):
            with torch.cuda.stream(stream):
                c = torch.full((1000 + i,), float(number), device="cuda")
                mean = c.sum().item() / c.numel()
            with cp.cuda.ExternalStream(stream.cuda_stream):
                a = cp.full(1000 + i, number, dtype="f4")
                if not bool((a == mean).all()): wrong.append(i)
            b = cuda.device_array(1000 + i, dtype="f4")
            fill[16, 128](b, number)
            if not (b.copy_to_host() == number).all(): wrong.append(i)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong
    assert used() == 0
""",
    shares=True,
)
def test_threads_use_all_at_a_time(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    for allocate, error in [
        (lambda: cp.empty(8 << 30, dtype="u1"), cp.cuda.memory.OutOfMemoryError),
        (lambda: cuda.device_array(8 << 30, dtype="u1"), MemoryError),
        (lambda: torch.empty(8 << 30, dtype=torch.uint8, device="cuda"), torch.OutOfMemoryError),
        (lambda: rmm.DeviceBuffer(size=8 << 30), MemoryError),
    ]:
        try: allocate()
        except error as raised: assert "Maximum pool size exceeded" in str(raised), raised
        else: raise AssertionError("there is no such memory")
        x = [cp.ones(1000), cuda.device_array(1000), torch.ones(1000, device="cuda"), rmm.DeviceBuffer(size=1000)]
        assert float(x[0].sum()) == float(x[2].sum()) == 1000
""",
    shares=True,
)
def test_out_of_memory_in_one_leaves_all_usable(done: Done) -> None:
    assert done.returncode == 0, done.stderr


# The parent does not use CUDA: no process that is forked after that can.
@pytest.mark.program(
    """
    import os
    import rmm, rmm.mr, rmm.allocators.cupy, rmm.allocators.torch
    child = os.fork()
    if child == 0:
        rmm.reinitialize(pool_allocator=True, initial_pool_size="16MiB")
        import cupy
        cupy.cuda.set_allocator(rmm.allocators.cupy.rmm_cupy_allocator)
        os._exit(0 if float(cupy.ones(1000).sum()) == 1000 else 1)
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """,
    begin="",
)
def test_a_child_that_is_forked_before_cuda_is_used_uses_it(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    tensor = torch.ones(1000, device="cuda")
    array = cp.ones(1000)
    sys.stdout.flush()
    child = os.fork()
    if child == 0: os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert float(tensor.sum()) == float(array.sum()) == 1000
""",
    shares=True,
)
def test_a_child_that_is_forked_later_ends_without_harm(done: Done) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    import subprocess
    tensor = torch.ones(1000, device="cuda")
    code = "import rmm, rmm.allocators; rmm.allocators.enable('cupy'); import cupy; assert cupy.ones(10).sum() == 10"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert float(tensor.sum()) == 1000
""",
    shares=True,
)
def test_a_child_that_is_spawned_has_a_pool_of_its_own(done: Done) -> None:
    assert done.returncode == 0, done.stderr


def program_that_exits(seed: int) -> str:
    """What is alive at exit, and the order of imports and of first uses, differ from seed to seed."""
    order = random.Random(seed)
    uses = [
        "kept.append(cupy.ones(1000))",
        "kept.append(numba.cuda.to_device(range(1000)))",
        "kept.append(torch.ones(1000, device='cuda'))",
        "kept.append(rmm.DeviceBuffer(size=1000))",
        "rmm.statistics.enable_statistics()",
    ]
    order.shuffle(uses)
    lines = [
        *(f"import {name}" for name in orders_of_import[seed]),
        "import numba.cuda, rmm.allocators, rmm.statistics",
        "rmm.reinitialize(pool_allocator=True, initial_pool_size='64MiB')",
        "rmm.allocators.enable()",
        "kept = []",
        *uses,
        order.choice(["pass", "del kept", "rmm.reinitialize()", "kept.append(kept)", "import gc; gc.disable()"]),
        "print('end')",
    ]
    return "\n".join(lines)


def program_of(test: pytest.Function) -> list[str]:
    return ["-W", "ignore", "-c", program_that_exits(int(str(test.callspec.params["seed"])))]


@pytest.mark.parametrize("seed", range(len(orders_of_import)))
@pytest.mark.program(takes_long=True)
def test_the_interpreter_exits_well_whatever_was_imported_first(seed: int, done: Done) -> None:
    assert done.returncode == 0, f"{done.returncode} after:\n{program_that_exits(seed)}\n{done.stderr}"
    assert done.stdout == "end\n"
