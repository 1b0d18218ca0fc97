# SPDX-License-Identifier: Apache-2.0
"""rmm.sleep and rmm.allocators.torch_memory_saver, with buffers and a stand-in for PyTorch."""

from __future__ import annotations

import gc
import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rmm
import rmm.mr
import rmm.sleep
from rmm._build_facts import cuda_backend
from rmm._cuda import gpu
from rmm.allocators import torch_memory_saver as saver_module
from rmm.allocators._torch_segments import SegmentSource
from rmm.allocators.torch_memory_saver import TorchMemorySaver
from rmm.sleep import Sleeper

MiB = 1 << 20

needs_simulator = pytest.mark.skipif(cuda_backend != "sim", reason="the stand-in for PyTorch needs the simulator")


def buffer_of(content: bytes, pool: rmm.mr.DeviceMemoryResource) -> rmm.DeviceBuffer:
    buffer = rmm.DeviceBuffer(size=len(content), mr=pool)
    buffer.copy_from_host(content)
    return buffer


def free_bytes() -> int:
    return rmm.mr.available_device_memory()[0]


def fill_device() -> list[rmm.DeviceBuffer]:
    """Allocates all memory of the device. This can exceed the free memory, because the driver empties its own pools first."""
    cuda = rmm.mr.CudaMemoryResource()
    taken = []
    nbytes = free_bytes()
    while nbytes >= 2 * MiB:
        try:
            taken.append(rmm.DeviceBuffer(size=nbytes, mr=cuda))
        except MemoryError:
            nbytes //= 2
    return taken


def has_free(nbytes: int) -> bool:
    """Returns whether the device has so many free bytes, except for a little that a GPU takes itself."""
    slack = 0 if cuda_backend == "sim" else 8 * MiB
    return abs(free_bytes() - nbytes) <= slack


@pytest.fixture
def sleeper() -> Sleeper:
    made = Sleeper(chunk_size="2MiB")
    made.pool()  # so that memory the device needs itself is not attributed to a tag
    return made


def stand_in() -> Any:
    spec = importlib.util.spec_from_file_location("torch_stand_in", Path(__file__).with_name("torch_stand_in.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made = stand_in().Torch()
    monkeypatch.setattr(rmm.sleep, "_torch", lambda: made)
    yield made
    gc.collect()
    made.cuda.empty_cache()


# --- buffers


@pytest.mark.parametrize("keep", [True, "pinned", "pageable"])
def test_kept_contents_come_back_to_the_same_address(sleeper: Sleeper, keep: rmm.sleep.Keep) -> None:
    with sleeper.region("weights", keep=keep) as pool:
        buffer = buffer_of(b"weights", pool)
    address = buffer.ptr
    assert not sleeper.is_asleep("weights")
    sleeper.pause("weights")
    assert sleeper.is_asleep("weights")
    sleeper.resume("weights")
    assert not sleeper.is_asleep("weights")
    assert buffer.ptr == address
    assert buffer.tobytes() == b"weights"


@pytest.mark.usefixtures("device_alone")
def test_a_pause_returns_what_the_device_got_back(sleeper: Sleeper) -> None:
    before = free_bytes()
    with sleeper.region("cache") as pool:
        buffer = rmm.DeviceBuffer(size=40 * MiB, mr=pool)
    assert has_free(before - 40 * MiB)
    assert sleeper.pause() == 40 * MiB
    assert has_free(before)
    sleeper.resume()
    assert has_free(before - 40 * MiB)
    del buffer


def test_the_memory_of_the_host_is_retained_on_request(sleeper: Sleeper) -> None:
    def address_of_copy() -> int:
        sleeper.pause("weights")
        view = sleeper.kept_contents(buffer.ptr, buffer.size)
        assert view is not None
        address: int = np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0]
        sleeper.resume("weights")
        return address

    saver = TorchMemorySaver(sleeper)
    saver.retain_cpu_backup = True
    assert sleeper.retain_host_memory
    with sleeper.region("weights", keep=True) as pool:
        buffer = rmm.DeviceBuffer(size=4 * MiB, mr=pool)
    first = address_of_copy()
    others = rmm.mr.PinnedHostMemoryResource()
    taken = rmm.DeviceBuffer(size=4 * MiB, mr=others)  # would get that memory if it was free
    assert address_of_copy() == first
    saver.retain_cpu_backup = False
    assert not saver.retain_cpu_backup
    address_of_copy()
    del taken


@pytest.mark.usefixtures("device_alone")
def test_nothing_is_released_or_mapped_twice(sleeper: Sleeper) -> None:
    with sleeper.region("cache", keep=True) as pool:
        buffer = buffer_of(b"cache", pool)
    assert sleeper.pause("cache") == 2 * MiB
    free = free_bytes()
    assert sleeper.pause("cache") == 0
    assert sleeper.pause() == 0
    assert sleeper.pause("cache", keep=False) == 0  # keeps the contents, as the first call said
    assert has_free(free)
    sleeper.resume()
    free = free_bytes()
    sleeper.resume()
    assert has_free(free)
    assert buffer.tobytes() == b"cache"


def test_tags_sleep_and_wake_up_by_themselves(sleeper: Sleeper) -> None:
    buffers = {}
    for tag in ("weights", "cache", "graph"):
        with sleeper.region(tag, keep=True) as pool:
            buffers[tag] = buffer_of(tag.encode(), pool)
    sleeper.pause("weights")
    assert buffers["cache"].tobytes() == b"cache"
    sleeper.pause()
    sleeper.resume("cache")
    assert sleeper.is_asleep("weights")
    assert sleeper.is_asleep("graph")
    assert buffers["cache"].tobytes() == b"cache"
    sleeper.resume()
    assert [buffers[tag].tobytes().decode() for tag in sleeper.tags()] == ["weights", "cache", "graph"]


def test_a_tag_has_memory_that_is_kept_and_memory_that_is_dropped(sleeper: Sleeper) -> None:
    with sleeper.region("model", keep=True) as pool:
        kept = buffer_of(b"kept", pool)
    with sleeper.region("model", keep=False) as pool:
        dropped = buffer_of(b"drop", pool)
    assert sleeper.pause("model") == 4 * MiB
    assert sleeper.kept_contents(dropped.ptr, 4) is None
    view = sleeper.kept_contents(kept.ptr, 4)
    assert view is not None
    assert bytes(view) == b"kept"
    sleeper.resume("model")
    assert kept.tobytes() == b"kept"
    assert sleeper.kept_contents(kept.ptr, 4) is None


@pytest.mark.parametrize("keep", [False, True])
def test_a_pause_may_decide_about_the_contents(sleeper: Sleeper, keep: bool) -> None:
    with sleeper.region("model", keep=not keep) as pool:
        buffer = buffer_of(b"model", pool)
    sleeper.pause("model", keep=keep)
    assert (sleeper.kept_contents(buffer.ptr, 5) is not None) == keep
    sleeper.resume("model")


@pytest.mark.usefixtures("device_alone")
def test_memory_can_be_freed_while_it_sleeps(sleeper: Sleeper) -> None:
    before = free_bytes()
    with sleeper.region("cache", keep=True) as pool:
        buffers = [buffer_of(bytes([i]) * 5, pool) for i in range(3)]
    sleeper.pause("cache")
    del buffers[1]
    assert has_free(before)
    sleeper.resume("cache")
    assert [buffer.tobytes() for buffer in buffers] == [bytes(5), bytes([2]) * 5]
    buffers.clear()
    sleeper.release_unused()
    assert has_free(before)


@pytest.mark.usefixtures("device_alone")
def test_unused_memory_of_the_pool_goes_back_with_a_pause(sleeper: Sleeper) -> None:
    before = free_bytes()
    for tag in ("awake", "asleep"):
        with sleeper.region(tag) as pool:
            used = rmm.DeviceBuffer(size=4 * MiB, mr=pool)
            rmm.DeviceBuffer(size=8 * MiB, mr=pool)
        if tag == "awake":
            del used
    sleeper.pause("asleep")
    assert has_free(before)
    sleeper.resume()
    del used


def test_a_region_of_a_tag_that_sleeps_is_refused(sleeper: Sleeper) -> None:
    with sleeper.region("cache"):
        pass
    sleeper.pause("cache")
    with pytest.raises(RuntimeError, match=r"asleep: call resume\('cache'\) first"), sleeper.region("cache"):
        pass
    with sleeper.region("weights"):
        pass
    sleeper.resume("cache")
    with sleeper.region("cache"):
        pass


def test_a_tag_is_not_paused_before_its_regions_end(sleeper: Sleeper) -> None:
    with sleeper.region("weights") as pool:
        buffer = buffer_of(b"weights", pool)
    entered, end = threading.Event(), threading.Event()

    def work() -> None:
        with sleeper.region("cache"):
            entered.set()
            end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    try:
        for tag in ("cache", None):
            with pytest.raises(RuntimeError, match="a region with the tag 'cache' has not ended"):
                sleeper.pause(tag)
        assert buffer.tobytes() == b"weights"  # nothing was paused
        assert sleeper.pause("weights", keep=True) == 2 * MiB
    finally:
        end.set()
        thread.join()
    sleeper.pause()
    sleeper.resume()
    assert buffer.tobytes() == b"weights"


def test_unknown_tags_are_named(sleeper: Sleeper) -> None:
    with sleeper.region("weights"):
        pass
    for call in (sleeper.pause, sleeper.resume):
        with pytest.raises(ValueError, match=r"no region with the tag 'wheights'; the tags are \['weights'\]"):
            call("wheights")
    assert not sleeper.is_asleep("wheights")
    with pytest.raises(ValueError, match="keep is 'disk'"), sleeper.region("weights", keep="disk"):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize("tag", ["weights (pinned)", "weights (pageable)"])
def test_a_tag_must_not_end_like_tags_of_the_pool(sleeper: Sleeper, tag: str) -> None:
    with pytest.raises(ValueError, match="choose another tag"), sleeper.region(tag):
        pass


def test_a_tag_has_to_be_a_str(sleeper: Sleeper) -> None:
    with pytest.raises(TypeError, match="a tag is a str, not NoneType"), sleeper.region(None, keep=True):  # type: ignore[arg-type]
        pass


def test_kept_contents_keep_their_pool() -> None:
    own = Sleeper(chunk_size="2MiB")
    with own.region("weights", keep="pageable") as pool:
        buffer = buffer_of(b"weights", pool)
    own.pause()
    kept = own.kept_contents(buffer.ptr, buffer.size)
    assert kept is not None
    del own, pool, buffer
    gc.collect()
    assert bytes(kept) == b"weights"
    assert kept.readonly


@pytest.mark.usefixtures("device_alone")
def test_memory_that_woke_up_before_a_failure_stays_awake() -> None:
    sleeper = Sleeper(chunk_size="2MiB")
    with sleeper.region("first", keep=True) as pool:
        first = buffer_of(b"first", pool)
    with sleeper.region("second", keep=True) as pool:
        second = rmm.DeviceBuffer(size=64 * MiB, mr=pool)
    sleeper.pause()
    rmm.sleep._empty_cache()  # resume() empties this cache before it fails
    room = rmm.DeviceBuffer(size=16 * MiB, mr=rmm.mr.CudaMemoryResource())
    rest = fill_device()
    del room
    with pytest.raises(MemoryError):
        sleeper.resume()
    assert first.tobytes() == b"first"
    assert sleeper.is_asleep("second")
    rest.clear()
    sleeper.resume()
    assert not sleeper.is_asleep("second")
    del second


def test_regions_of_several_devices_sleep_together(second_device: int) -> None:
    sleeper = Sleeper(chunk_size="2MiB")
    buffers = []
    for device in (0, second_device):
        gpu.setDevice(device)
        with sleeper.region("weights", keep=True) as pool:
            buffers.append(buffer_of(b"device %d" % device, pool))
    assert sleeper.pause("weights") == 4 * MiB
    sleeper.resume("weights")
    for device, buffer in enumerate(buffers):
        gpu.setDevice(device)
        assert buffer.tobytes() == b"device %d" % device
    buffers.clear()
    gpu.setDevice(0)


def test_the_module_has_one_sleeper() -> None:
    with rmm.sleep.region("module", keep=True) as pool:
        buffer = buffer_of(b"module", pool)
    assert rmm.sleep.pause("module") > 0
    assert rmm.sleep.is_asleep("module")
    rmm.sleep.resume("module")
    assert buffer.tobytes() == b"module"


# --- PyTorch's part, with a stand-in


@needs_simulator
def test_tensors_of_a_region_sleep(sleeper: Sleeper, torch: Any) -> None:
    before = free_bytes()
    with sleeper.region("weights", keep=True):
        tensor = torch.empty(4 * MiB)
    assert torch.empty(MiB) is None
    assert sleeper.used_bytes() == 4 * MiB
    assert sleeper.pause("weights") == 4 * MiB
    assert has_free(before)
    sleeper.resume("weights")
    del tensor
    assert sleeper.release_unused() == 4 * MiB
    assert has_free(before)


@needs_simulator
def test_memory_cached_by_pytorch_is_neither_copied_nor_mapped_again(sleeper: Sleeper, torch: Any) -> None:
    with sleeper.region("weights", keep=True):
        kept, freed = torch.empty(4 * MiB), torch.empty(8 * MiB)
    address = freed.ptr
    del freed
    assert sleeper.used_bytes() == 12 * MiB
    sleeper.pause("weights")
    assert sleeper.used_bytes() == 4 * MiB
    assert sleeper.kept_contents(address, 1) is None
    sleeper.resume("weights")
    del kept


@needs_simulator
def test_segments_have_the_tag_of_their_source_on_every_thread(sleeper: Sleeper, torch: Any) -> None:
    with sleeper.region("cache"):
        tensors = []
        with sleeper.region("weights"):
            thread = threading.Thread(target=lambda: tensors.append(torch.empty(4 * MiB)))
            thread.start()
            thread.join()
    assert sleeper.pause("cache") == 0
    assert sleeper.pause("weights") == 4 * MiB
    sleeper.resume()
    tensors.clear()


@needs_simulator
def test_the_innermost_region_counts(sleeper: Sleeper, torch: Any) -> None:
    def put(into: str, nbytes: int) -> None:
        tensors.append(torch.empty(nbytes))
        expected[into] = expected.get(into, 0) + nbytes

    tensors: list[Any] = []
    expected: dict[str, int] = {}
    with sleeper.region("outer"):
        put("outer", 2 * MiB)
        with sleeper.region("inner"):
            put("inner", 4 * MiB)
            with sleeper.region("outer"):
                put("outer", 8 * MiB)
            put("inner", 16 * MiB)
            with sleeper.outside():
                assert torch.empty(MiB) is None
                assert rmm.tag.current() == ""
                with sleeper.region("outer"):
                    put("outer", 32 * MiB)
        put("outer", 64 * MiB)
        assert len(torch.pools) == 1
    assert not torch.pools
    assert {tag: sleeper.pause(tag) for tag in expected} == expected
    sleeper.resume()
    tensors.clear()


@needs_simulator
def test_a_graph_has_memory_of_its_own_as_long_as_it_lives(sleeper: Sleeper, torch: Any) -> None:
    graph_class = stand_in().CUDAGraph
    first, second, sharing = graph_class(), graph_class(), graph_class()
    with sleeper.region("other"):
        with sleeper.cuda_graph(first, tag="graph", keep=True):
            tensor = torch.empty(4 * MiB)
        with sleeper.cuda_graph(second, tag="graph", keep=True):
            pass
        with sleeper.cuda_graph(sharing, pool=first.pool.id, tag="graph", keep=True):
            pass
    assert first.pool is not second.pool
    assert first.pool is sharing.pool
    with sleeper.cuda_graph(second, pool="handle", tag="graph"):
        handle = second.pool
    with sleeper.cuda_graph(sharing, pool="handle", tag="graph"):
        assert sharing.pool is handle
    with sleeper.cuda_graph(sharing, pool="handle", tag="graph", keep=True):
        assert sharing.pool is not handle  # memory with other contents
    assert sleeper.pause("graph") == 4 * MiB
    view = sleeper.kept_contents(tensor.ptr, 1)
    assert view is not None
    sleeper.resume("graph")
    del tensor
    assert sleeper.release_unused() == 0  # the graph still needs it
    del first, second, sharing, handle
    gc.collect()
    assert sleeper.release_unused() == 4 * MiB


@needs_simulator
def test_graphs_captured_by_others_share_one_pool(sleeper: Sleeper, torch: Any) -> None:
    pools = []
    for _ in range(2):
        with sleeper.graph_pool("graph", keep=True) as pool:
            pools.append(pool)
    assert pools[0] == pools[1]


def test_graphs_need_pytorch(sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for scope in (sleeper.cuda_graph(object()), sleeper.graph_pool("graph")):
        with pytest.raises(RuntimeError, match="has not imported PyTorch"), scope:
            pass


@needs_simulator
@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_expandable_segments_are_refused(
    sleeper: Sleeper, torch: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "max_split_size_mb:64,expandable_segments:True")
    with pytest.raises(RuntimeError, match=f"{name} has expandable_segments:True"), sleeper.region("weights"):
        pass
    monkeypatch.delenv(name)
    with sleeper.region("weights"):
        pass
    assert sleeper.pause("weights") == 0  # the refused region has ended


@needs_simulator
def test_a_resume_that_lacks_memory_empties_the_cache_of_pytorch(
    sleeper: Sleeper, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sleeper.region("weights"):
        tensor = torch.empty(64 * MiB)
    sleeper.pause("weights")
    rest: list[rmm.DeviceBuffer] = []
    rest.append(rmm.DeviceBuffer(size=free_bytes() - 32 * MiB, mr=rmm.mr.CudaMemoryResource()))
    with monkeypatch.context() as patched:
        patched.setattr(torch.cuda, "empty_cache", rest.clear)
        sleeper.resume("weights")
    assert not rest
    del tensor


def test_sources_of_segments_are_found_again_when_they_are_gone() -> None:
    pool = rmm.mr.ElasticPoolMemoryResource()
    for _ in range(300):  # more than the largest number of sources
        source = SegmentSource(pool, rmm.tag("weights"))
        assert source.allocate_address
        del source
    sources = [SegmentSource(pool, rmm.tag("weights")) for _ in range(250)]
    assert len({source.allocate_address for source in sources}) == 250
    with pytest.raises(RuntimeError, match="too many memory pools"):
        sources.extend(SegmentSource(pool, rmm.tag("weights")) for _ in range(7))


# --- the interface of torch_memory_saver


@needs_simulator
def test_torch_memory_saver_keeps_contents_with_a_backup(sleeper: Sleeper, torch: Any) -> None:
    saver = TorchMemorySaver(sleeper)
    saver.hook_mode = "preload"
    assert saver.hook_mode == "preload"
    assert saver.enabled
    with saver.region(tag="weights", enable_cpu_backup=True):
        kept = torch.empty(2 * MiB)
    with saver.region(tag="cache"):
        dropped = torch.empty(2 * MiB)
        with saver.disable():
            assert torch.empty(MiB) is None
    saver.pause("weights")
    saver.pause("cache")
    saver.pause("unknown")
    assert sleeper.kept_contents(kept.ptr, 1) is not None
    assert sleeper.kept_contents(dropped.ptr, 1) is None
    saver.resume("unknown")
    saver.resume()
    assert not sleeper.is_asleep("weights")
    with saver.cuda_graph(stand_in().CUDAGraph(), tag="graph", enable_cpu_backup=True, cpu_backup_backend="mmap"):
        captured = torch.empty(2 * MiB)
    saver.pause()
    assert sleeper.kept_contents(captured.ptr, 1) is not None
    saver.resume()
    with saver_module.configure_subprocess():
        pass


def test_torch_memory_saver_refuses_unsupported_options(sleeper: Sleeper) -> None:
    saver = TorchMemorySaver(sleeper)
    scopes: list[tuple[type[Exception], Callable[[], Any]]] = [
        (NotImplementedError, lambda: saver.region(enable_disk_backup=True)),
        (ValueError, lambda: saver.region(cpu_backup_backend="pinned")),
        (ValueError, lambda: saver.region(enable_cpu_backup=True, cpu_backup_backend="disk")),  # type: ignore[arg-type]
    ]
    for error, make in scopes:
        with pytest.raises(error), make():
            pass
    with pytest.raises(ValueError, match="hook_mode"):
        saver.hook_mode = "other"
    for x in (
        SimpleNamespace(is_cuda=False, is_contiguous=lambda: True),
        SimpleNamespace(is_cuda=True, is_contiguous=lambda: False),
    ):
        with pytest.raises(ValueError, match="contiguous"):
            saver.get_cpu_backup(x)


@pytest.mark.program(
    "import rmm, sys; print([m for m in sys.modules if 'sleep' in m or 'segments' in m or m == 'torch'])"
)
def test_nothing_of_it_is_imported_with_rmm(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
