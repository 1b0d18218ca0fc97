# SPDX-License-Identifier: Apache-2.0
"""Makes each call of CUDA fail once while the package is used. Allowed: an exception or none. Not allowed: crashes, leaks."""

from __future__ import annotations

import subprocess

import pytest

from rmm._build_facts import cuda_backend

if cuda_backend != "sim":
    pytest.skip("needs faults, which the simulator makes", allow_module_level=True)

takes_long = True

# The parent calls no CUDA, so each forked child is like a fresh process but starts in milliseconds. A child exits with 0 if all
# exceptions were expected, and with 66 if the simulator finds a leak.
begin = """
import faulthandler, gc, os, re, sys, types
import rmm, rmm.mr, rmm.statistics
from rmm.allocators.cupy import rmm_cupy_allocator
from rmm.pylibrmm.stream import DEFAULT_STREAM, Stream

faulthandler.enable()

class Unowned:
    def __init__(self, ptr, size, owner, device):
        self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device

class Pointer:
    def __init__(self, mem, offset):
        self.mem = mem

class OutOfMemory(MemoryError):
    def __init__(self, size, total):
        pass

cupy, cuda = types.ModuleType("cupy"), types.ModuleType("cupy.cuda")
cupy.cuda = cuda
cuda.UnownedMemory, cuda.MemoryPointer = Unowned, Pointer
cuda.memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemory)
cuda.get_current_stream = lambda: cuda.stream
sys.modules.update({"cupy": cupy, "cupy.cuda": cuda})
expected = (MemoryError, RuntimeError)  # rmm._cuda.gpu's own errors are RuntimeErrors

def attempt(step):
    try:
        return step()
    except expected as error:
        assert str(error), repr(error)

"""

end = """
# These fail only where the process has come to harm: destructors call them, and the package is built with assertions for tests.
giving_back = re.compile(r"GetDevice$|Free|Destroy|Unmap|Release|Synchronize|EventQuery|EventRecord|WaitEvent|Trim")

def run(fault):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        if fault is not None:
            os.environ["CUDASIM_FAULT"] = fault
        use()
        gc.collect()
        attempt(rmm.reinitialize)
        gc.collect()
        sys.exit()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(f"report.{child}", errors="replace") as report:
        return status, report.read()

status, report = run(None)
assert status == 0, report
calls = [(name, int(count)) for name, count in re.findall(r"^  (\\w+) +(\\d+)$", report, re.MULTILINE)]
assert sum(count for _, count in calls) > 20, report
wrong = 0
for name, count in calls:
    if giving_back.search(name):
        continue
    # Each call fails once. Calls that every allocation makes, such as those about captures, fail ten times at most.
    for number in range(1, min(count, 10 if "Capture" in name else 1000) + 1):
        fault = f"{name}:{number}:{('cudaErrorMemoryAllocation', 'cudaErrorUnknown')[(number - 1) % 2]}"
        status, report = run(fault)
        if status != 0:
            wrong += 1
            print(f"CUDASIM_FAULT={fault} ended with {status}:", report, sep="\\n")
assert wrong == 0
"""

scenarios = {
    "buffers": """
def use():
    stream = attempt(Stream) or DEFAULT_STREAM
    buffer = attempt(lambda: rmm.DeviceBuffer.to_device(bytes(1000), stream))
    if buffer is not None:
        copy = attempt(buffer.copy)
        attempt(lambda: buffer.resize(5000, stream))
        attempt(lambda: buffer.copy_to_host(stream=stream))
        attempt(lambda: buffer.copy_from_host(b"abc"))
        attempt(lambda: rmm.DeviceBuffer.from_device(buffer))
        attempt(lambda: buffer.prefetch(0))
    attempt(stream.synchronize)
""",
    "resources": """
def use():
    cuda = rmm.mr.CudaMemoryResource()
    for make in (
        lambda: rmm.mr.CudaAsyncMemoryResource(),
        lambda: rmm.mr.ManagedMemoryResource(),
        lambda: rmm.mr.PoolMemoryResource(cuda, "1MiB", "8MiB"),
        lambda: rmm.mr.ArenaMemoryResource(cuda, "8MiB"),
        lambda: rmm.mr.BinningMemoryResource(cuda, 12, 14),
        lambda: rmm.mr.ElasticPoolMemoryResource("2MiB"),
        lambda: rmm.mr.TrackingResourceAdaptor(rmm.mr.FixedSizeMemoryResource(cuda, 1 << 16, 2)),
    ):
        resource = attempt(make)
        if resource is not None:
            attempt(lambda: rmm.mr.set_current_device_resource(resource))
            kept = [attempt(lambda: rmm.DeviceBuffer(size=size)) for size in (1, 3000, 60000)]
            attempt(lambda: rmm.DeviceBuffer(size=1 << 40))
""",
    "statistics and CuPy": """
def use():
    attempt(lambda: rmm.reinitialize(pool_allocator=True, initial_pool_size="1MiB", maximum_pool_size="8MiB"))
    attempt(rmm.statistics.enable_statistics)
    stream = attempt(Stream)
    for each in (DEFAULT_STREAM, stream or DEFAULT_STREAM):
        cuda.stream = types.SimpleNamespace(ptr=each.__cuda_stream__()[1], __cuda_stream__=each.__cuda_stream__)
        arrays = [attempt(lambda: rmm_cupy_allocator(size)) for size in (0, 100, 2 << 20)]
        attempt(lambda: rmm_cupy_allocator(1 << 40))
    del arrays
    counts = rmm.statistics.get_statistics()
    assert counts is None or counts.current_bytes == 0, counts
    attempt(rmm.mr.available_device_memory)
""",
}


def program_of(test: pytest.Function) -> list[str]:
    return ["-W", "ignore", "-c", begin + scenarios[str(test.callspec.params["scenario"])] + end]


def environment_of(_: pytest.Function) -> dict[str, str]:
    return {"CUDASIM_QUIET": "1", "CUDASIM_REPORT": "report.%p"}


@pytest.mark.parametrize("scenario", scenarios)
def test_any_call_may_fail_once(scenario: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
