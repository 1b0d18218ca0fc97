# SPDX-License-Identifier: Apache-2.0
"""How the engine becomes the current resource, and how a process with it ends."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import rmm

import rmm_engine_rapids
from rmm_engine_rapids import EngineMemoryResource

Runner = Callable[..., "subprocess.CompletedProcess[str]"]
MIB = 1 << 20

# RAPIDS asks the driver for the current device, and there is no driver.
ON_DEVICE_0 = """
import rmm, rmm.pylibrmm.memory_resource._memory_resource as resources
import rmm_engine_rapids._build_facts
if rmm_engine_rapids._build_facts.backend == "sim":
    resources.getDevice = lambda: 0
"""


def test_is_current() -> None:
    resource = rmm_engine_rapids.enable("elastic,max=1GiB")
    assert rmm.mr.get_current_device_resource() is resource
    assert rmm.mr.get_per_device_resource(0) is resource
    buffer = rmm.DeviceBuffer(size=1000)
    figures = resource.figures()
    assert figures is not None
    assert figures.live_blocks == 1
    assert buffer.size == 1000


def test_what_was_allocated_before_goes_back_where_it_came_from(free_memory: Callable[[], int]) -> None:
    before = free_memory()
    rmm_engine_rapids.enable("pool,initial=64MiB")
    old = rmm.DeviceBuffer(size=1000)
    second = rmm_engine_rapids.enable("pool,initial=16MiB")
    new = rmm.DeviceBuffer(size=1000)
    figures = second.figures()
    assert figures is not None
    assert figures.live_blocks == 1
    assert new.ptr != old.ptr
    assert before - free_memory() >= 80 * MIB
    del old
    gc.collect()
    assert 16 * MIB <= before - free_memory() < 80 * MIB


def test_takes_the_configuration_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMM_RESOURCE", "pool,initial=2MiB")
    assert EngineMemoryResource().configuration is None
    figures = EngineMemoryResource().figures()
    assert figures is not None
    assert figures.reserved_bytes == 2 * MIB
    monkeypatch.setenv("RMM_ENGINE_RAPIDS", "elastic,max=1GiB")
    assert EngineMemoryResource().configuration == "elastic,max=1GiB"


def test_the_variable_makes_the_import_enable_it(run_program: Runner) -> None:
    done = run_program(
        "import rmm, rmm_engine_rapids; print(rmm.mr.get_per_device_resource(0))", RMM_ENGINE_RAPIDS="elastic,max=1GiB"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "EngineMemoryResource('elastic,max=1GiB', device=0)\n"


def test_without_the_variable_the_import_changes_nothing(run_program: Runner) -> None:
    done = run_program("import rmm, rmm_engine_rapids; print(type(rmm.mr.get_per_device_resource(0)).__name__)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "CudaMemoryResource\n", "")


def test_a_mistake_in_the_variable_is_shown(run_program: Runner) -> None:
    done = run_program("import rmm_engine_rapids", RMM_ENGINE_RAPIDS="elastik")
    assert done.returncode == 1
    assert "unknown resource 'elastik'" in done.stderr


@pytest.mark.parametrize("options", [(), ("--configuration", "elastic,max=2GiB")])
def test_runs_programs(run_program: Runner, tmp_path: Path, options: tuple[str, ...]) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, rmm; print(rmm.mr.get_per_device_resource(0), sys.argv[1:], __name__)\n", encoding="utf-8"
    )
    start = "import runpy, sys; sys.argv[0] = 'x'; runpy.run_module('rmm_engine_rapids', run_name='__main__', alter_sys=True)"
    done = run_program(start, *options, str(program), "--one", "two", RMM_ENGINE_RAPIDS="elastic,max=1GiB")
    assert (done.returncode, done.stderr) == (0, "")
    size = 2 if options else 1
    assert done.stdout == f"EngineMemoryResource('elastic,max={size}GiB', device=0) ['--one', 'two'] __main__\n"


@pytest.mark.parametrize("leftover", ["", "held = rmm.DeviceBuffer(size=1000); import builtins; builtins.held = held"])
@pytest.mark.parametrize("configuration", ["elastic,max=1GiB", "pool,initial=16MiB", "cuda"])
def test_processes_end_in_peace(run_program: Runner, configuration: str, leftover: str) -> None:
    enable = f"rmm_engine_rapids.enable({configuration!r})\nrmm.DeviceBuffer(size=10)"
    done = run_program(f"{ON_DEVICE_0}\n{enable}\n{leftover}\nprint('end')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_buffers_may_outlive_the_interpreter(run_program: Runner) -> None:
    """They come back from an exit handler that runs when the interpreter is gone, and after CUDA is."""
    done = run_program(f"""{ON_DEVICE_0}
import sys
rmm_engine_rapids.enable("pool,initial=16MiB")
class Late:
    def __init__(self): self.buffer = rmm.DeviceBuffer(size=1000)
    def __del__(self): del self.buffer
sys.late = Late()
sys.late.cycle = sys.late
print("end")
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.mark.filterwarnings("ignore")  # of Dask
def test_dask_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    from rmm_engine_rapids.dask import EnginePlugin, dask_setup

    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        client.register_plugin(EnginePlugin("elastic,max=1GiB"))
        assert client.submit(lambda: repr(rmm.mr.get_per_device_resource(0)), pure=False).result() == (
            "EngineMemoryResource('elastic,max=1GiB', device=0)"
        )
    monkeypatch.setenv("RMM_RESOURCE", "pool,initial=2MiB")
    dask_setup(None)
    assert rmm.mr.get_per_device_resource(0).figures().reserved_bytes == 2 * MIB
