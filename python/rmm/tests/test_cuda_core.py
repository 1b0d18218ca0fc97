# SPDX-License-Identifier: Apache-2.0
"""RMM below and above cuda.core, on the simulated driver and on a GPU. Each test is a program in another interpreter."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import librmm
from rmm._build_facts import cuda_backend

is_simulated = cuda_backend == "sim"
programs_share = True
driver = Path(librmm.__file__).parent / "lib" / "cudasim"  # the folder of the simulated one

begin = """
import gc, sys, threading
import rmm, rmm.mr
from cuda.core import LEGACY_DEFAULT_STREAM, Buffer, Device, DeviceMemoryResource, MemoryResource
from rmm._cuda import gpu
import rmm.allocators.cuda_core as door
from rmm.allocators.cuda_core import CudaCoreMemoryResource, RMMMemoryResource

device = Device(0)
try:
    device.set_current()
except Exception:
    sys.exit(77)
pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "8MiB")
counted = rmm.mr.StatisticsResourceAdaptor(pool)

def used(resource=counted):
    gc.collect()
    return resource.allocation_counts.current_bytes

class Recorder:  # the streams of all calls
    def __init__(self):
        self.source = rmm.mr.CudaMemoryResource()
        self.calls = []

    def allocate(self, nbytes, stream):
        self.calls.append(("allocate", stream.__cuda_stream__()[1]))
        return self.source.allocate(nbytes)

    def deallocate(self, address, nbytes, stream):
        self.calls.append(("free", stream.__cuda_stream__()[1]))
        self.source.deallocate(address, nbytes)

    def take(self):
        gc.collect()
        calls, self.calls = self.calls, []
        return calls

def recorded():
    recorder = Recorder()
    return recorder, RMMMemoryResource(rmm.mr.CallbackMemoryResource(recorder.allocate, recorder.deallocate))

def handle(stream):
    return int(stream.handle)
"""


def environment_of(_: pytest.Function) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(driver)} if is_simulated else {}


def reason_to_skip() -> str:
    """Why nothing here can be tested; empty if it can."""
    return "cuda.core is not installed" if find_spec("cuda") is None or find_spec("cuda.core") is None else ""


def check(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode == 77 and not is_simulated:
        pytest.skip("needs a GPU, or another one")
    if done.returncode == 78:
        pytest.skip("needs cuda-core 1.2")
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr  # cuda.core prints what was raised while it freed a buffer


@pytest.mark.program("""
    device.memory_resource = RMMMemoryResource(counted)
    stream = device.create_stream()
    buffer = device.allocate(1024, stream=stream)
    assert (buffer.size, used()) == (1024, 1024), used()
    assert buffer.memory_resource is device.memory_resource
    del buffer
    assert used() == 0
    with device.allocate(1000, stream=stream) as buffer:
        buffer.close()
        buffer.close()
    assert used() == 0
    nothing = device.allocate(0, stream=stream)
    assert (nothing.size, used()) == (0, 0)
""")
def test_buffers_come_from_the_resource_and_go_back(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program("""
    resource = RMMMemoryResource()
    rmm.mr.set_current_device_resource(counted)
    first = resource.allocate(1024, stream=device.default_stream)
    other = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(other)
    second = resource.allocate(2048, stream=device.default_stream)
    assert (used(), used(other)) == (1024, 2048)
    del first
    assert (used(), used(other)) == (0, 2048)
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
    del second
    assert used(other) == 0
""")
def test_the_current_resource_may_change_while_buffers_live(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program("""
    recorder, resource = recorded()
    device.memory_resource = resource
    buffer = device.allocate(1000, stream=device.default_stream)
    device.memory_resource = DeviceMemoryResource(0)
    del resource
    assert [name for name, _ in recorder.take()] == ["allocate"]
    del buffer
    assert [name for name, _ in recorder.take()] == ["free"]
""")
def test_the_last_buffer_keeps_the_resource(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program("""
    if not door._buffers_keep_streams:
        sys.exit(78)  # the next test covers older releases
    recorder, resource = recorded()
    one, two = device.create_stream(), device.create_stream()
    buffer = resource.allocate(1000, stream=one)
    del buffer
    assert recorder.take() == [("allocate", handle(one)), ("free", handle(one))]
    resource.allocate(1000, stream=one).close(two)
    assert recorder.take() == [("allocate", handle(one)), ("free", handle(two))]
    buffer = resource.allocate(1000, stream=one)
    buffer.set_deallocation_stream(two)
    del buffer
    assert recorder.take() == [("allocate", handle(one)), ("free", handle(two))]
""")
def test_memory_is_freed_on_the_stream_that_cuda_core_names(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program(
    """
    door._buffers_keep_streams = False
    recorder, resource = recorded()
    one, two = device.create_stream(), device.create_stream()
    buffer = resource.allocate(1000, stream=one)
    del buffer
    assert recorder.take() == [("allocate", handle(one)), ("free", handle(one))]
    resource.allocate(1000, stream=one).close(two)
    assert recorder.take()[1] == ("free", handle(two))
    resource.allocate(1000, stream=LEGACY_DEFAULT_STREAM).close()
    assert recorder.take()[1] == ("free", 1)
    buffer = resource.allocate(1000, stream=one)
    one.close()
    del buffer
    assert recorder.take()[1] == ("free", 1)
""",
    shares=False,
)
def test_before_release_1_2_dropped_memory_is_freed_after_its_own_stream(
    done: subprocess.CompletedProcess[str],
) -> None:
    check(done)


@pytest.mark.program("""
    try:
        RMMMemoryResource(counted).allocate(1 << 30, stream=device.default_stream)
    except rmm.ReportedMemoryError as error:
        assert "Maximum pool size exceeded" in str(error) and error.report is not None
    else:
        raise AssertionError
""")
def test_a_failed_allocation_is_a_memory_error_with_the_report(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program("""
    class Foreign:
        def __cuda_stream__(self):
            return (0, 1)

    resource = RMMMemoryResource(counted)
    for call in (
        lambda: RMMMemoryResource(object()),
        lambda: CudaCoreMemoryResource(counted),
        lambda: resource.allocate(1000, stream=None),
        lambda: resource.allocate(1000, stream=Foreign()),
        lambda: resource.allocate("x", stream=device.default_stream),
    ):
        try:
            call()
        except TypeError:
            continue
        raise AssertionError
    assert used() == 0 and not resource._live
    try:
        resource.deallocate(256, 1000, stream=device.default_stream)
    except ValueError as error:
        assert "0x100" in str(error)
    else:
        raise AssertionError
""")
def test_wrong_arguments_are_refused_and_leave_nothing(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program("""
    kinds = {
        rmm.mr.CudaMemoryResource(): (False, False),
        counted: (False, False),
        rmm.mr.ManagedMemoryResource(): (True, True),
        rmm.mr.PoolMemoryResource(rmm.mr.ManagedMemoryResource(), "1MiB"): (True, True),
        rmm.mr.PinnedHostMemoryResource(): (True, False),
        CudaCoreMemoryResource(DeviceMemoryResource(0)): (False, False),
        CudaCoreMemoryResource(RMMMemoryResource(rmm.mr.PinnedHostMemoryResource())): (True, False),
        rmm.mr.StatisticsResourceAdaptor(
            CudaCoreMemoryResource(RMMMemoryResource(rmm.mr.ManagedMemoryResource()))): (True, True),
    }
    for mr, expected in kinds.items():
        resource = RMMMemoryResource(mr)
        assert (resource.is_host_accessible, resource.is_managed) == expected, mr
        assert resource.is_device_accessible and resource.device_id == 0
    rmm.mr.set_current_device_resource(rmm.mr.ManagedMemoryResource())
    assert RMMMemoryResource().is_managed
    assert repr(RMMMemoryResource()) == "RMMMemoryResource(device_id=0)"
""")
def test_the_resource_reports_its_kind_of_memory(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program("""
    if gpu.getDeviceCount() < 2:
        sys.exit(77)
    recorders = [Recorder(), Recorder()]
    seen = []
    for number in (0, 1):
        def allocate(nbytes, stream, recorder=recorders[number]):
            seen.append(gpu.getDevice())
            return recorder.allocate(nbytes, stream)
        rmm.mr.set_per_device_resource(
            number, rmm.mr.CallbackMemoryResource(allocate, recorders[number].deallocate))
    second = RMMMemoryResource(device_id=1)
    buffer = second.allocate(1000, stream=LEGACY_DEFAULT_STREAM)
    assert (seen, gpu.getDevice(), second.device_id, buffer.device_id) == ([1], 0, 1, 1)
    buffer.close(LEGACY_DEFAULT_STREAM)
    assert len(recorders[1].take()) == 2 and not recorders[0].take() and gpu.getDevice() == 0
""")
def test_a_device_that_is_not_current_gets_its_own_memory(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program("""
    class Counting(MemoryResource):
        def __init__(self):
            self.source, self.live, self.streams = DeviceMemoryResource(0), 0, []

        def allocate(self, size, *, stream):
            self.live += size
            self.streams.append(stream)
            address = rmm.mr.CudaMemoryResource().allocate(size)
            return Buffer.from_handle(address, size, mr=self)

        def deallocate(self, ptr, size, *, stream):
            self.live -= size
            self.streams.append(stream)
            rmm.mr.CudaMemoryResource().deallocate(int(ptr), size)

        is_device_accessible, is_host_accessible, device_id = True, False, 0

    source = Counting()
    below = CudaCoreMemoryResource(source)
    assert below.cuda_core_resource is source and repr(source) in repr(below)
    pool = rmm.mr.PoolMemoryResource(below, "1MiB")
    buffer = rmm.DeviceBuffer(size=3, mr=rmm.mr.StatisticsResourceAdaptor(pool))
    buffer.copy_from_host(b"abc")
    assert (buffer.tobytes(), source.live) == (b"abc", 1 << 20)
    del buffer, pool
    gc.collect()
    assert source.live == 0
    stream = device.create_stream()
    ours = rmm.pylibrmm.stream.Stream(stream)
    source.streams.clear()
    below.deallocate(below.allocate(1000, ours), 1000, ours)
    assert [handle(each) for each in source.streams] == [handle(stream)] * 2
    assert below.allocate(0) == 0
""")
def test_a_pool_sits_on_a_resource_of_cuda_core(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program("""
    for source in (DeviceMemoryResource(0), RMMMemoryResource(counted)):
        buffer = rmm.DeviceBuffer(size=3, mr=CudaCoreMemoryResource(source))
        buffer.copy_from_host(b"abc")
        assert buffer.tobytes() == b"abc"
        threads = []
        def work():
            try:
                threads.append(rmm.DeviceBuffer(size=1000, mr=CudaCoreMemoryResource(source)).size)
            except BaseException as error:
                threads.append(error)
        thread = threading.Thread(target=work)  # which has no context
        thread.start()
        thread.join()
        assert threads == [1000], threads
    del buffer
    assert used() == 0
""")
def test_resources_of_cuda_core_serve_buffers(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program("""
    class Broken(MemoryResource):
        def allocate(self, size, *, stream):
            raise ValueError("broken")
        def deallocate(self, ptr, size, *, stream):
            pass
        is_device_accessible, is_host_accessible, device_id = True, False, 0

    full = CudaCoreMemoryResource(DeviceMemoryResource(0))
    try:
        full.allocate(1 << 45)
    except MemoryError as error:
        assert type(error.__cause__).__name__ == "CUDAError" and "OUT_OF_MEMORY" in str(error), error
    else:
        raise AssertionError
    try:
        rmm.mr.PoolMemoryResource(full, "1MiB").allocate(1 << 45)
    except MemoryError as error:
        assert type(error.__cause__.__cause__).__name__ == "CUDAError", error
    else:
        raise AssertionError
    try:
        CudaCoreMemoryResource(Broken()).allocate(1)
    except RuntimeError as error:
        assert isinstance(error.__cause__, ValueError) and "broken" in str(error)
    else:
        raise AssertionError
""")
def test_errors_of_cuda_core_are_causes(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program("""
    device.memory_resource = RMMMemoryResource(pool)
    builder = device.create_graph_builder()
    builder.begin_building()
    try:
        device.allocate(1000, stream=builder)
    except RuntimeError as error:
        assert "capture_scope" in str(error)
    else:
        raise AssertionError
    with rmm.capture_scope(builder.stream) as memory:
        buffer = device.allocate(1000, stream=builder)
        buffer.fill(7, stream=builder)
    builder.end_building()
    assert pool.figures()["live_bytes"] == 1024
    if rmm._build_facts.cuda_backend != "sim":  # which does not instantiate graphs of the driver
        graph = builder.complete()
        stream = device.create_stream()
        graph.launch(stream)
        stream.sync()
        assert rmm.DeviceBuffer.from_device(buffer).tobytes() == bytes([7]) * 1000
""")
def test_captures_have_to_be_announced(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program("""
    from cuda.core.utils import StridedMemoryView

    device.memory_resource = RMMMemoryResource(counted)
    stream = device.create_stream()
    ours = rmm.DeviceBuffer.to_device(b"abcd")
    view = StridedMemoryView.from_any_interface(ours, stream_ptr=handle(stream))
    assert (view.ptr, view.shape, view.device_id, view.readonly) == (ours.ptr, (4,), 0, False)
    theirs = device.allocate(4, stream=stream)
    theirs.copy_from(Buffer.from_handle(ours.ptr, 4, owner=ours), stream=stream)
    stream.sync()
    assert rmm.DeviceBuffer.from_device(theirs).tobytes() == b"abcd"
""")
def test_cuda_core_and_rmm_read_each_others_buffers(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.program("""
    from rmm._commands import doctor

    device.memory_resource = RMMMemoryResource(counted)
    text = "\\n".join(doctor.describe())
    assert "allocates by RMMMemoryResource, in this thread" in text, text
""")
def test_the_doctor_names_the_resource_of_the_thread(done: subprocess.CompletedProcess[str]) -> None:
    check(done)


@pytest.mark.skipif(find_spec("cuda") is None or find_spec("cuda.core") is None, reason="cuda.core is not installed")
@pytest.mark.filterwarnings("ignore")
def test_the_interface_of_cuda_core_is_the_one_that_is_implemented() -> None:
    theirs = importlib.import_module("cuda.core").MemoryResource
    ours = importlib.import_module("rmm.allocators.cuda_core").RMMMemoryResource
    for name in ("allocate", "deallocate"):
        parameters = [inspect.signature(getattr(each, name)).parameters.values() for each in (theirs, ours)]
        first, second = ([(each.name, each.kind, each.default) for each in some] for some in parameters)
        assert first == second
    is_public = {name for name in dir(theirs) if not name.startswith("_")}
    assert is_public <= set(vars(ours))


@pytest.mark.parametrize("release", ["0.3.2", "1.0.1", None])
def test_an_old_release_is_named(release: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    core = ModuleType("cuda.core")
    if release is not None:
        names = ("Buffer", "Device", "LEGACY_DEFAULT_STREAM", "MemoryResource", "PER_THREAD_DEFAULT_STREAM", "Stream")
        vars(core).update(dict.fromkeys(names, object), __version__=release)
    package = ModuleType("cuda")
    vars(package)["core"] = core
    bindings = ModuleType("cuda.bindings")
    vars(bindings)["driver"] = ModuleType("cuda.bindings.driver")
    monkeypatch.setitem(sys.modules, "cuda", package)
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.delitem(sys.modules, "rmm.allocators.cuda_core", raising=False)
    with pytest.raises(ImportError, match=f"needs cuda-core 1.1 or newer.*{release or 'cannot import name'}"):
        importlib.import_module("rmm.allocators.cuda_core")
