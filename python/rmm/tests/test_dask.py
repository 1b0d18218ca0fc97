# SPDX-License-Identifier: Apache-2.0
"""The plug-in for Dask's workers, the calls that Dask and Dask-CUDA make on resources, and sending buffers between workers.

Dask-CUDA finds devices with NVML, which knows no simulated ones: simulated_nvml/pynvml.py answers in its place.
"""

from __future__ import annotations

import asyncio
import doctest
import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rmm
import rmm.mr
from rmm._build_facts import cuda_backend
from rmm._cuda import gpu

if find_spec("distributed") is None:
    pytest.skip("Dask is not installed", allow_module_level=True)

if cuda_backend == "sim":
    sys.path.insert(0, str(Path(__file__).with_name("simulated_nvml")))  # before Dask imports NVML

import dask.config
import distributed.diagnostics.rmm
from distributed.protocol.serialize import deserialize, merge_and_deserialize, serialize, serialize_and_split

import rmm.dask
from rmm.dask import RMMPlugin

MIB = 1 << 20
is_simulated = cuda_backend == "sim"
simulated_nvml = Path(__file__).with_name("simulated_nvml")
example = Path(__file__).resolve().parents[3] / "examples" / "dask" / "main.py"
needs_dask_cuda = pytest.mark.skipif(find_spec("dask_cuda") is None, reason="needs Dask-CUDA")


def worker(address: str = "tcp://127.0.0.1:1234") -> Any:
    """A stand-in with everything that plug-ins use of a worker."""
    return SimpleNamespace(name="tcp/3", address_safe=address, metrics={"rmm": rmm_metric_of_dask})


def rmm_metric_of_dask(worker: Any) -> dict[str, int]:
    memory: dict[str, int] = distributed.diagnostics.rmm.real_time()
    return memory


def memory_shown_of(worker: Any) -> tuple[int, int]:
    """Returns the used and total memory that a heartbeat reports to the dashboard."""
    memory = asyncio.run(worker.metrics["rmm"](worker))
    return memory["rmm-used"], memory["rmm-total"]


def current() -> Any:
    return rmm.mr.get_current_device_resource()


# --- the plug-in


def test_a_worker_gets_the_configured_resource_and_shows_it() -> None:
    first = worker()
    plugin: Any = pickle.loads(pickle.dumps(RMMPlugin("elastic,initial=8MiB")))
    assert (plugin.name, plugin.idempotent) == ("rmm", False)
    plugin.setup(worker=first)
    assert current().configuration == "elastic,initial=8MiB"
    assert memory_shown_of(first) == (0, 8 * MIB)
    buffer = rmm.DeviceBuffer(size=MIB)
    assert memory_shown_of(first) == (MIB, 8 * MIB)
    assert buffer.size == MIB


@pytest.mark.parametrize("text", ["pool,initial=8MiB", None])
def test_a_worker_shows_its_own_device(text: str | None, second_device: int) -> None:
    """The metric runs on a thread of its own, on which device 0 is current."""
    gpu.setDevice(second_device)
    if text is None:
        rmm.mr.set_current_device_resource(rmm.mr.ConfiguredMemoryResource("pool,initial=8MiB"))
    first, plugin = worker(), RMMPlugin(text)
    plugin.setup(first)
    buffer = rmm.DeviceBuffer(size=MIB)
    assert memory_shown_of(first) == (MIB, 8 * MIB)
    gpu.setDevice(0)
    assert memory_shown_of(first) == (MIB, 8 * MIB)
    plugin.teardown(first)
    assert first.metrics == {"rmm": rmm_metric_of_dask}
    assert buffer.size == MIB


@pytest.mark.program(
    """
    import asyncio
    from types import SimpleNamespace
    from rmm.dask import RMMPlugin
    worker = SimpleNamespace(address_safe="tcp://127.0.0.1:1", metrics={})
    plugin = RMMPlugin()
    plugin.setup(worker)
    plugin.teardown(worker)
    print(worker.metrics)
    """,
    begin="import os; os.environ.update(CUDA_VISIBLE_DEVICES='', CUDASIM_DEVICES='0'); os.environ.pop('RMM_RESOURCE', None)",
)
def test_a_worker_without_a_device_begins_and_ends(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{}\n"


def test_the_end_of_the_plug_in_leaves_live_memory_valid() -> None:
    before, first, plugin = current(), worker(), RMMPlugin("pool,initial=1MiB")
    free = rmm.mr.available_device_memory()[0]
    plugin.setup(first)
    buffer = rmm.DeviceBuffer.to_device(b"kept")
    plugin.teardown(first)
    assert current() is before
    assert first.metrics == {"rmm": rmm_metric_of_dask}
    assert buffer.tobytes() == b"kept"
    if is_simulated:
        assert rmm.mr.available_device_memory()[0] < free
        del buffer
        assert rmm.mr.available_device_memory()[0] == free


def test_the_end_of_the_plug_in_leaves_a_resource_that_was_set_since() -> None:
    plugin = RMMPlugin("pool,initial=1MiB")
    plugin.setup(worker())
    since = rmm.mr.StatisticsResourceAdaptor(current())
    rmm.mr.set_current_device_resource(since)
    plugin.teardown(worker())
    assert current() is since


def test_workers_of_one_process_share_its_resource_until_the_last_ends() -> None:
    before, workers = current(), [worker(), worker()]
    plugins = [RMMPlugin("pool,initial=1MiB"), RMMPlugin("pool,initial=1MiB")]
    for plugin, each in zip(plugins, workers, strict=True):
        plugin.setup(each)
    resource = current()
    plugins[0].teardown(workers[0])
    assert current() is resource
    plugins[1].teardown(workers[1])
    assert current() is before


def test_a_second_registration_replaces_the_resource_of_all_workers_of_a_process() -> None:
    before, workers = current(), [worker(), worker()]
    old, new = ([RMMPlugin(text), RMMPlugin(text)] for text in ("pool,initial=1MiB", "elastic"))
    for plugin, each in zip(old, workers, strict=True):
        plugin.setup(each)
    for number, each in enumerate(workers):
        old[number].teardown(each)
        new[number].setup(each)
    assert current().configuration == "elastic"
    for plugin, each in zip(new, workers, strict=True):
        plugin.teardown(each)
    assert current() is before


def test_without_a_text_the_environment_names_the_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMM_RESOURCE", "arena,size=1MiB")
    assert RMMPlugin().configuration == "arena,size=1MiB"
    assert RMMPlugin("pool").configuration == "pool"
    assert repr(RMMPlugin()) == "RMMPlugin('arena,size=1MiB')"


def test_without_any_text_workers_keep_their_resource_and_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RMM_RESOURCE", raising=False)
    pool, first = rmm.mr.ElasticPoolMemoryResource("8MiB"), worker()
    tracked = rmm.mr.TrackingResourceAdaptor(pool)
    rmm.mr.set_current_device_resource(tracked)
    plugin = RMMPlugin()
    plugin.setup(first)
    buffer = rmm.DeviceBuffer(size=1000)
    assert current() is tracked
    assert memory_shown_of(first) == (tracked.get_allocated_bytes(), pool.pool_size())
    plugin.teardown(first)
    assert current() is tracked
    assert buffer.size == 1000


def test_a_bad_text_is_refused_where_the_plug_in_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"unknown option 'maxx' of pool[\s\S]*\n  pool,maxx=80%\n       \^"):
        RMMPlugin("pool,maxx=80%")
    with pytest.raises(TypeError):
        RMMPlugin(80)  # type: ignore[arg-type]
    monkeypatch.setenv("RMM_RESOURCE", "pol")
    with pytest.raises(ValueError, match="pol"):
        RMMPlugin()


def test_a_resource_that_does_not_fit_changes_nothing() -> None:
    before, first, plugin = current(), worker(), RMMPlugin("pool,initial=1PB")
    with pytest.raises(MemoryError):
        plugin.setup(first)
    assert current() is before
    plugin.teardown(first)
    assert current() is before
    assert first.metrics == {"rmm": rmm_metric_of_dask}


@pytest.mark.parametrize(
    ("protocol", "text", "named"),
    [
        ("ucx", "elastic,max=64MiB", "elastic"),
        ("ucxx", "cuda_async", "cuda_async"),
        ("ucx", "cached", "cuda_async"),
        ("ucx", "pool,initial=1MiB", ""),
        ("ucx", "cuda", ""),
        ("tcp", "elastic,max=64MiB", ""),
    ],
)
def test_a_worker_warns_of_memory_that_ucx_sends_through_the_host(
    protocol: str, text: str, named: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("UCX_RNDV_PIPELINE_ERROR_HANDLING", raising=False)
    RMMPlugin(text).setup(worker(f"{protocol}://127.0.0.1:1234"))
    warnings = [record.getMessage() for record in caplog.records if record.name == "distributed.worker.rmm"]
    assert len(warnings) == bool(named)
    assert all(f"memory of '{named}' through the host" in warning for warning in warnings)
    assert all("Set UCX_RNDV_PIPELINE_ERROR_HANDLING=y in the environment" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("in_environment", "in_config", "is_set"),
    [
        ("y", {}, True),
        ("n", {}, False),
        ("n", {"rndv-pipeline-error-handling": "y"}, False),  # the environment counts more
        (None, {"rndv-pipeline-error-handling": "y"}, True),
        (None, {"RNDV_PIPELINE_ERROR_HANDLING": "y"}, True),
        (None, {"rndv-pipeline-error-handling": "n"}, False),
        (None, {"rndv-scheme": "y"}, False),
        (None, None, False),
    ],
)
def test_a_worker_does_not_warn_if_ucx_has_the_option(
    in_environment: str | None,
    in_config: dict[str, str] | None,
    is_set: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv("UCX_RNDV_PIPELINE_ERROR_HANDLING", raising=False)
    if in_environment is not None:
        monkeypatch.setenv("UCX_RNDV_PIPELINE_ERROR_HANDLING", in_environment)
    with dask.config.set({"distributed-ucxx.environment": in_config}):
        RMMPlugin("elastic").setup(worker("ucx://127.0.0.1:1234"))
    assert ("through the host" in caplog.text) == (not is_set)


def test_a_worker_warns_of_the_resource_that_it_had(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("RMM_RESOURCE", raising=False)
    monkeypatch.delenv("UCX_RNDV_PIPELINE_ERROR_HANDLING", raising=False)
    rmm.mr.set_current_device_resource(rmm.mr.StatisticsResourceAdaptor(rmm.mr.ElasticPoolMemoryResource()))
    RMMPlugin().setup(worker("ucx://127.0.0.1:1234"))
    assert "memory of 'elastic' through the host" in caplog.text


def test_the_examples_in_the_documentation_strings_do_what_they_say() -> None:
    results = doctest.testmod(rmm.dask)
    assert (results.failed, results.attempted > 0) == (0, True)


# --- what the dashboard shows


@pytest.mark.parametrize(
    "text",
    ["arena,size=8MiB", "binning,smallest=1MiB,largest=1MiB", "cached,initial=8MiB", "cuda_async", "elastic", "pool"],
)
def test_dask_itself_shows_what_is_in_use_of_every_pool(text: str) -> None:
    rmm.mr.set_current_device_resource(rmm.mr.ConfiguredMemoryResource(text))
    buffer = rmm.DeviceBuffer(size=MIB)
    assert distributed.diagnostics.rmm.real_time()["rmm-used"] >= MIB
    memory = rmm.dask._memory(0)
    assert memory["rmm-used"] == current().get_allocated_bytes()
    assert memory["rmm-total"] == current().pool_size() >= buffer.size


def test_a_resource_that_keeps_nothing_is_shown_as_empty() -> None:
    for resource in (rmm.mr.CudaMemoryResource(), rmm.mr.ConfiguredMemoryResource("cuda")):
        rmm.mr.set_current_device_resource(resource)
        buffer = rmm.DeviceBuffer(size=MIB)
        assert distributed.diagnostics.rmm.real_time() == rmm.dask._memory(0) == {"rmm-used": 0, "rmm-total": 0}
        assert buffer.size == MIB


# --- Dask-CUDA's options


def set_up(**options: Any) -> None:
    """Applies Dask-CUDA's options rmm_* as its workers do."""
    from dask_cuda.plugins import RMMSetup

    names = ["initial_pool_size", "maximum_pool_size", "release_threshold", "log_directory", "external_lib_list"]
    defaults = {**dict.fromkeys(names), **dict.fromkeys(["managed_memory", "async_alloc", "track_allocations"], False)}
    RMMSetup(**{**defaults, **options}).setup(worker=worker())


@needs_dask_cuda
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"initial_pool_size": "8MiB"}, "PoolMemoryResource(CudaMemoryResource())"),
        ({"managed_memory": True}, "ManagedMemoryResource()"),
        ({"initial_pool_size": "8MiB", "managed_memory": True}, "PoolMemoryResource(ManagedMemoryResource())"),
        ({"async_alloc": True}, "CudaAsyncMemoryResource()"),
        ({"async_alloc": True, "initial_pool_size": "8MiB", "release_threshold": "1MiB"}, "CudaAsyncMemoryResource()"),
        ({"async_alloc": True, "maximum_pool_size": "8MiB"}, "LimitingResourceAdaptor(CudaAsyncMemoryResource())"),
        ({"track_allocations": True}, "TrackingResourceAdaptor(CudaMemoryResource())"),
    ],
)
def test_options_of_dask_cuda_set_their_resource(options: dict[str, Any], expected: str) -> None:
    set_up(**options)
    assert repr(current()) == expected
    buffer = rmm.DeviceBuffer(size=MIB)
    shown = distributed.diagnostics.rmm.real_time()
    assert shown["rmm-used"] == (MIB if expected != "ManagedMemoryResource()" else 0)
    assert shown["rmm-total"] == (8 * MIB if "PoolMemoryResource" in expected else shown["rmm-used"])
    assert buffer.size == MIB


@needs_dask_cuda
@pytest.mark.parametrize("options", [{"initial_pool_size": "1MiB"}, {"async_alloc": True}])
def test_the_maximum_of_dask_cuda_limits_the_pool(options: dict[str, Any]) -> None:
    set_up(**options, maximum_pool_size="4MiB")
    buffer = rmm.DeviceBuffer(size=3 * MIB)
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=2 * MIB)
    assert buffer.size == 3 * MIB


@needs_dask_cuda
@pytest.mark.parametrize("options", [{"initial_pool_size": "1MiB"}, {"managed_memory": True}, {"async_alloc": True}])
def test_the_log_directory_of_dask_cuda_gets_a_log_of_each_worker(options: dict[str, Any], tmp_path: Path) -> None:
    set_up(**options, log_directory=str(tmp_path))
    rmm.DeviceBuffer(size=1024)
    rmm.mr._flush_logs()
    text = (tmp_path / "rmm_log_3.dev0.txt").read_text()
    assert ",allocate,0x" in text
    assert ",1024," in text


@needs_dask_cuda
def test_dask_cuda_tracks_a_pool() -> None:
    set_up(initial_pool_size="8MiB", track_allocations=True)
    buffer = rmm.DeviceBuffer(size=1000)
    assert current().get_allocated_bytes() == 1008  # a multiple of 16
    assert current().get_outstanding_allocations_str().count("\n") == 1
    assert distributed.diagnostics.rmm.real_time() == {"rmm-used": 1008, "rmm-total": 8 * MIB}
    assert buffer.size == 1000


@needs_dask_cuda
def test_dask_cuda_makes_cupy_and_torch_use_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    import rmm.allocators.torch
    from rmm.allocators.cupy import rmm_cupy_allocator

    torch_allocator = object()
    given: list[object] = []
    memory = SimpleNamespace(change_current_allocator=given.append)
    torch: Any = SimpleNamespace(cuda=SimpleNamespace(memory=memory))
    cupy: Any = SimpleNamespace(cuda=SimpleNamespace(set_allocator=given.append))
    monkeypatch.setitem(vars(rmm.allocators.torch), "rmm_torch_allocator", torch_allocator)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    set_up(initial_pool_size="1MiB", external_lib_list=["cupy", "torch"])
    assert given == [rmm_cupy_allocator, torch_allocator]


def filled(text: str) -> rmm.DeviceBuffer:
    return rmm.DeviceBuffer.to_device(text.encode().ljust(2 * MIB))


@needs_dask_cuda
def test_dask_cuda_spills_buffers_to_the_host_and_back(tmp_path: Path) -> None:
    from dask_cuda.device_host_file import DeviceHostFile

    rmm.mr.set_current_device_resource(rmm.mr.ElasticPoolMemoryResource())
    data = DeviceHostFile(str(tmp_path), device_memory_limit=3 * MIB, memory_limit=16 * MIB)
    for name in ("first", "second"):
        data[name] = filled(name)
    assert current().get_allocated_bytes() == 2 * MIB
    assert data["first"].tobytes() == filled("first").tobytes()
    assert current().get_allocated_bytes() == 2 * MIB


# --- buffers between workers


@pytest.mark.parametrize("size", [0, 1, 1000, 65 * MIB])
def test_a_buffer_is_sent_through_host_memory(size: int) -> None:
    content = os.urandom(1000)[:size].ljust(size, b"x")
    header, frames = serialize_and_split(rmm.DeviceBuffer.to_device(content))
    assert header["serializer"] == "dask"
    pool = rmm.mr.ElasticPoolMemoryResource()
    rmm.mr.set_current_device_resource(pool)
    received = merge_and_deserialize(header, [bytes(frame) for frame in frames])
    assert received.tobytes() == content
    assert received.mr is pool


def test_buffers_in_collections_are_sent() -> None:
    buffers = [rmm.DeviceBuffer.to_device(b"first"), {"second": rmm.DeviceBuffer.to_device(b"second")}]
    first, rest = deserialize(*serialize(buffers))
    assert (first.tobytes(), rest["second"].tobytes()) == (b"first", b"second")


def test_a_buffer_is_sent_from_device_to_device_as_it_is() -> None:
    buffer = rmm.DeviceBuffer.to_device(b"as it is")
    header, frames = serialize(buffer, serializers=("cuda", "dask"))  # those of UCX
    assert header["serializer"] == "cuda"
    assert frames == [buffer]
    assert deserialize(header, frames) is buffer


def test_dask_can_read_what_the_plug_in_sends_and_the_other_way_round() -> None:
    pytest.importorskip("numba.cuda", reason="Dask imports Numba for this")
    from distributed.protocol import rmm as functions_of_dask

    rmm.dask._register_serializers()  # again, because the import has replaced them
    buffer = rmm.DeviceBuffer.to_device(b"sent")
    assert functions_of_dask.dask_deserialize_rmm_device_buffer(*rmm.dask._to_host(buffer)).tobytes() == b"sent"
    assert functions_of_dask.cuda_deserialize_rmm_device_buffer(*rmm.dask._as_it_is(buffer)) is buffer
    header, frames = functions_of_dask.cuda_serialize_rmm_device_buffer(buffer)
    assert rmm.dask._as_received(header, frames) is buffer
    assert rmm.dask._from_host(header, [memoryview(b"sent")]).tobytes() == b"sent"


@pytest.mark.program(
    """
    import sys

    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "numba":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Missing())
    import rmm, rmm.dask
    from distributed.protocol.serialize import deserialize, serialize

    print(deserialize(*serialize([rmm.DeviceBuffer.to_device(b"without Numba"), rmm.RMMError(1, "one")]))[0].tobytes())
    """
)
def test_buffers_are_sent_without_numba(done: subprocess.CompletedProcess[str]) -> None:
    assert done.stdout == "b'without Numba'\n", done.stderr


# --- workers in processes of their own

needs_simulated_devices = pytest.mark.skipif(not is_simulated, reason="all workers would use one device")


@needs_simulated_devices
@pytest.mark.program(
    """
    import time
    from distributed import Client, LocalCluster
    import rmm
    from rmm.dask import RMMPlugin

    MIB = 1 << 20

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        try:
            client.register_plugin(RMMPlugin("pool,initial=1PB"))
        except MemoryError as error:
            print("refused:", "1000000000000000 bytes" in str(error))
        client.register_plugin(RMMPlugin("elastic,initial=64MiB"))
        cluster.scale(2)
        client.wait_for_workers(2)
        first, second = client.scheduler_info()["workers"]
        print(*client.run(lambda: rmm.mr.get_current_device_resource().configuration).values())
        made = client.submit(rmm.DeviceBuffer.to_device, b"sent" * MIB, workers=[first])
        received = client.submit(lambda buffer: buffer, made, workers=[second])
        print(received.result().tobytes() == b"sent" * MIB)
        while cluster.scheduler.workers[second].metrics["rmm"] != {"rmm-used": 4 * MIB, "rmm-total": 64 * MIB}:
            time.sleep(0.01)
        client.unregister_worker_plugin("rmm")
        print(*client.run(lambda: repr(rmm.mr.get_current_device_resource())).values())
    """
)
def test_workers_that_start_later_get_the_resource_and_buffers_move(done: subprocess.CompletedProcess[str]) -> None:
    assert done.stdout.splitlines() == [
        "refused: True",
        "elastic,initial=64MiB elastic,initial=64MiB",
        "True",
        "CudaMemoryResource() CudaMemoryResource()",
    ], done.stderr


@needs_simulated_devices
@needs_dask_cuda
@pytest.mark.program(
    f"""
    import glob, os, sys, time
    os.environ.update(PYTHONPATH={str(simulated_nvml)!r}, DASK_CUDA_TEST_SINGLE_GPU="1")  # it makes no context then
    sys.path.insert(0, {str(simulated_nvml)!r})

    from dask_cuda import LocalCUDACluster
    from distributed import Client
    import rmm
    from rmm.dask import RMMPlugin

    MIB = 1 << 20
    options = dict(rmm_pool_size="64MiB", rmm_maximum_pool_size="128MiB", rmm_track_allocations=True, rmm_log_directory=".")
    with LocalCUDACluster(dashboard_address=None, **options) as cluster, Client(cluster) as client:
        client.register_plugin(RMMPlugin())
        print(sorted(client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"]).values()))
        print(*client.run(lambda: repr(rmm.mr.get_current_device_resource())).values(), sep="\\n")
        first, second = cluster.scheduler.workers
        made = client.submit(rmm.DeviceBuffer.to_device, b"sent" * MIB, workers=[first])
        received = client.submit(lambda buffer: buffer, made, workers=[second])
        print(received.result().tobytes() == b"sent" * MIB)
        while cluster.scheduler.workers[second].metrics["rmm"] != {{"rmm-used": 4 * MIB, "rmm-total": 64 * MIB}}:
            time.sleep(0.01)
        client.run(rmm.mr._flush_logs)
        print(sorted(glob.glob("rmm_log_*")))
    """
)
def test_a_cluster_of_dask_cuda_takes_its_memory_from_this_package(done: subprocess.CompletedProcess[str]) -> None:
    resource = "TrackingResourceAdaptor(LoggingResourceAdaptor(PoolMemoryResource(CudaMemoryResource())))"
    assert done.stdout.splitlines() == [
        "['0,1', '1,0']",
        resource,
        resource,
        "True",
        "['rmm_log_0.dev0.txt', 'rmm_log_1.dev0.txt']",
    ], done.stderr


def program_of(test: pytest.Function) -> list[str]:
    return [str(example), "--simulated"]


@needs_simulated_devices
@pytest.mark.skipif(not example.exists(), reason="the package is without its repository")
def test_the_example_runs(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "from one worker to the other",
        "after the transfer: worker 0 uses 0 MiB of 64 MiB in its pool",
        "after the transfer: worker 1 uses 64 MiB of 64 MiB in its pool",
        "at the end: worker 0 uses 0 MiB of 0 MiB in its pool",
        "at the end: worker 1 uses 64 MiB of 64 MiB in its pool",
    ]
