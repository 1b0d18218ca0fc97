# SPDX-License-Identifier: Apache-2.0
"""How Dask's workers and ``python -m rmm_engine_rapids`` enable the engine in a process that has it already.

The device has no memory for two of these pools.
"""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import rmm

import rmm_engine_rapids

Runner = Callable[..., "subprocess.CompletedProcess[str]"]
FIRST = "pool,initial=60%"
SECOND = "pool,initial=70%"


def start(configuration: str | None = None) -> None:
    from rmm_engine_rapids._start import start

    start(configuration)


def current() -> str:
    return repr(rmm.mr.get_per_device_resource(0))


def shown(configuration: str) -> str:
    return f"EngineMemoryResource({configuration!r}, device=0)"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("EnginePlugin().setup(None)", FIRST),
        (f"EnginePlugin('{SECOND}').setup(None)", SECOND),
        ("dask_setup(None)", FIRST),
    ],
)
def test_workers_have_one_pool_at_a_time(run_program: Runner, call: str, expected: str) -> None:
    pytest.importorskip("distributed")
    program = f"""
import warnings
with warnings.catch_warnings(action="ignore"):  # of Dask
    from rmm_engine_rapids.dask import EnginePlugin, dask_setup
import rmm
{call}
print(rmm.mr.get_per_device_resource(0))
"""
    done = run_program(program, RMM_ENGINE_RAPIDS=FIRST)
    assert (done.returncode, done.stdout, done.stderr) == (0, shown(expected) + "\n", "")


@pytest.mark.parametrize(("options", "expected"), [((), FIRST), (("--configuration", SECOND), SECOND)])
def test_programs_have_one_pool_at_a_time(
    run_program: Runner, tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text("import rmm; print(rmm.mr.get_per_device_resource(0))\n", encoding="utf-8")
    run = "import runpy, sys; sys.argv[0] = 'x'; runpy.run_module('rmm_engine_rapids', run_name='__main__', alter_sys=True)"
    done = run_program(run, *options, str(program), RMM_ENGINE_RAPIDS=FIRST)
    assert (done.returncode, done.stdout, done.stderr) == (0, shown(expected) + "\n", "")


def test_enables_where_the_engine_is_not() -> None:
    start(FIRST)
    assert current() == shown(FIRST)


def test_keeps_what_has_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMM_ENGINE_RAPIDS", FIRST)
    kept = rmm_engine_rapids.enable(FIRST)
    for configuration in (None, FIRST):
        start(configuration)
        assert rmm.mr.get_per_device_resource(0) is kept


@pytest.mark.parametrize("configuration", [None, FIRST])
def test_keeps_what_adaptors_use(monkeypatch: pytest.MonkeyPatch, configuration: str | None) -> None:
    monkeypatch.setenv("RMM_ENGINE_RAPIDS", FIRST)
    adaptor = rmm.mr.StatisticsResourceAdaptor(rmm_engine_rapids.enable(FIRST))
    rmm.mr.set_per_device_resource(0, adaptor)
    start(configuration)
    assert rmm.mr.get_per_device_resource(0) is adaptor


def test_replaces_what_nothing_uses() -> None:
    rmm_engine_rapids.enable(FIRST)
    rmm.DeviceBuffer(size=1000)  # gone at once
    start(SECOND)
    assert current() == shown(SECOND)


def test_replaces_what_is_not_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    rmm_engine_rapids.enable(FIRST)
    monkeypatch.setenv("RMM_ENGINE_RAPIDS", SECOND)
    start()
    assert current() == shown(SECOND)


def test_refuses_while_blocks_are_live() -> None:
    rmm_engine_rapids.enable(FIRST)
    buffer = rmm.DeviceBuffer(size=1000)
    with pytest.raises(RuntimeError, match=r"cannot be replaced by 'pool,initial=70%': it has live blocks \(1\)"):
        start(SECOND)
    assert current() == shown(FIRST)
    del buffer
    start(SECOND)
    assert current() == shown(SECOND)


def test_refuses_while_an_object_refers_to_the_pool() -> None:
    held = rmm_engine_rapids.enable(FIRST)
    with pytest.raises(RuntimeError, match="other objects refer to it"):
        start(SECOND)
    assert current() == shown(FIRST)
    buffer = rmm.DeviceBuffer(size=1000)
    figures = held.figures()
    assert figures is not None
    assert figures.live_blocks == 1, "the same pool is current"
    del buffer, held
    start(SECOND)
    assert current() == shown(SECOND)


def test_refuses_while_an_adaptor_is_current() -> None:
    rmm.mr.set_per_device_resource(0, rmm.mr.StatisticsResourceAdaptor(rmm_engine_rapids.enable(FIRST)))
    with pytest.raises(RuntimeError, match="StatisticsResourceAdaptor allocates from it"):
        start(SECOND)
    assert isinstance(rmm.mr.get_per_device_resource(0), rmm.mr.StatisticsResourceAdaptor)


def test_what_cannot_be_made_changes_nothing(free_memory: Callable[[], int], slack: int) -> None:
    rmm_engine_rapids.enable(FIRST)
    before = free_memory()
    for configuration, error in (
        ("poool", ValueError),
        ("pool,initial=1000%", ValueError),
        ("pool,initial=100TiB", MemoryError),
    ):
        with pytest.raises(error):
            start(configuration)
        gc.collect()
        assert current() == shown(FIRST)
        assert before - free_memory() <= slack
