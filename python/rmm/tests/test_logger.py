# SPDX-License-Identifier: Apache-2.0
"""The debug log"""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmm


@pytest.fixture(autouse=True)
def same_levels_afterwards() -> Iterator[None]:
    level, flush_level = rmm.get_logging_level(), rmm.get_flush_level()
    yield
    rmm.set_logging_level(level)
    rmm.set_flush_level(flush_level)


def test_the_level_is_info() -> None:
    assert rmm.get_logging_level() == rmm.logging_level.INFO
    assert rmm.should_log(rmm.logging_level.INFO)
    assert not rmm.should_log(rmm.logging_level.DEBUG)


members = [*rmm.logging_level, *rmm.level_enum]


@pytest.mark.parametrize("level", members, ids=str)
def test_levels_come_back_as_they_were_set(level: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rmm.set_logging_level(level)
        rmm.set_flush_level(level)
    assert rmm.get_logging_level() is level
    assert rmm.get_flush_level() is level


@pytest.mark.parametrize("level", [rmm.logging_level.TRACE, rmm.level_enum.debug])
def test_levels_that_are_not_compiled_in_warn(level: Any) -> None:
    text = f"RMM will not log {type(level).__name__}.{level.name}."
    with pytest.warns(UserWarning, match=text):
        rmm.set_logging_level(level)
    assert not rmm.should_log(level)
    with pytest.warns(UserWarning, match=text):
        rmm.set_flush_level(level)


def test_the_level_decides_what_is_logged() -> None:
    rmm.set_logging_level(rmm.logging_level.ERR)
    assert rmm.should_log(rmm.logging_level.ERR)
    assert rmm.should_log(rmm.level_enum.critical)
    assert not rmm.should_log(rmm.logging_level.WARN)


@pytest.mark.parametrize("level", ["INFO", "info", 2, 2.0, None, [], rmm.logging_level])
def test_other_types_are_not_levels(level: Any) -> None:
    for function in (rmm.should_log, rmm.set_logging_level, rmm.set_flush_level):
        with pytest.raises(TypeError):
            function(level)


def test_nothing_is_logged_at_the_number_of_levels() -> None:
    assert not rmm.should_log(rmm.level_enum.n_levels)
    rmm.set_logging_level(rmm.level_enum.n_levels)
    assert not any(rmm.should_log(level) for level in members)
    rmm.set_flush_level(rmm.logging_level.WARN)
    assert rmm.get_logging_level() is rmm.logging_level.OFF  # logging_level has no n_levels, so it returns OFF


@pytest.mark.program(
    """
    import os, rmm
    rmm.flush_logger()
    assert not os.path.exists("debug.log")
    resource = rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource())
    resource.deallocate(rmm.mr.CudaMemoryResource().allocate(256), 256)
    rmm.flush_logger()
    """,
    environment={"RMM_DEBUG_LOG_FILE": "debug.log"},
)
def test_messages_of_the_library_go_to_a_file(done: subprocess.CompletedProcess[str], folder_of_program: Path) -> None:
    assert done.returncode == 0, done.stderr
    assert "not allocated by this adaptor" in (folder_of_program / "debug.log").read_text()


@pytest.mark.program(
    "import rmm; rmm.DeviceBuffer(size=1); rmm.flush_logger()", environment={"RMM_DEBUG_LOG_FILE": None}
)
def test_an_import_makes_no_file(done: subprocess.CompletedProcess[str], folder_of_program: Path) -> None:
    assert done.returncode == 0, done.stderr
    assert list(folder_of_program.iterdir()) == []
