# SPDX-License-Identifier: Apache-2.0
"""Programs that wait for their turn: each has run its `begin` before any of them has the device alone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

begin = "import os, sys, time; from pathlib import Path; Path('begun').write_text(str(os.getpid()))\n"


@pytest.fixture
def own_programs(programs: Any) -> Iterator[Any]:
    """Programs beside those of the tests."""
    own = type(programs)()
    yield own
    own.stop()


no_reason: Future[str] = Future()  # why a program is to be skipped
no_reason.set_result("")


def prepare(programs: Any, folder: Path, begin: str, text: str) -> Callable[[], subprocess.CompletedProcess[str]]:
    """Starts a program. Returns what runs the rest of it."""
    folder.mkdir()
    prepared = programs.prepare(["-c", begin + programs.wait_for_turn + text], folder, no_reason, {})
    finish: Callable[[], subprocess.CompletedProcess[str]] = prepared.result()
    return finish


def prepare_together(programs: Any, folder: Path, ends: Sequence[str]) -> Callable[[], list[tuple[int, str]]]:
    """Starts programs in one interpreter. Returns what runs the rest of them and returns their statuses and outputs."""
    texts = {str(number): f"print('ran')\n{end}" for number, end in enumerate(ends)}
    arguments = {number: ["-c", begin + programs.wait_for_turn + text] for number, text in texts.items()}
    finish = programs.prepare_together(arguments, folder, no_reason, {}).result()
    return lambda: [(done.returncode, done.stdout) for done in finish().values()]


def test_all_have_begun_before_the_first_turn(own_programs: Any, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    text = "Path('ran').touch(); print(len(os.listdir())); sys.exit(3)"
    rest = [prepare(own_programs, folder, begin, text) for folder in folders]
    own_programs.wait_for_begun()
    for folder, finish in zip(folders, rest, strict=True):
        assert all((each / "begun").exists() for each in folders)
        assert not (folder / "ran").exists()
        done = finish()
        assert (done.returncode, done.stdout, done.stderr) == (3, "2\n", "")
        own_programs.wait_for_begun()  # of those that have not had their turn


def test_a_program_that_ends_without_a_turn_is_not_waited_for(own_programs: Any, tmp_path: Path) -> None:
    ends = {"raise ValueError('on purpose')": 1, "os._exit(5)": 5, "os.abort()": -6}
    rest = {end: prepare(own_programs, tmp_path / str(ends[end]), f"{begin}{end}\n", "print('ran')") for end in ends}
    own_programs.wait_for_begun()
    done = {end: finish() for end, finish in rest.items()}
    assert {end: each.returncode for end, each in done.items()} == ends
    assert {each.stdout for each in done.values()} == {""}
    assert done["raise ValueError('on purpose')"].stderr.endswith("ValueError: on purpose\n")


def test_a_program_that_dies_while_it_waits_has_failed(own_programs: Any, tmp_path: Path) -> None:
    finish = prepare(own_programs, tmp_path / "dies", begin, "print('ran')")
    own_programs.wait_for_begun()
    os.kill(int((tmp_path / "dies" / "begun").read_text()), signal.SIGKILL)
    done = finish()
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def test_programs_that_share_an_interpreter_share_a_turn(own_programs: Any, tmp_path: Path) -> None:
    """The first one waits for it. The others begin in it, also those after one that ends the interpreter."""
    ends = ["", "raise ValueError('on purpose')", "sys.exit(3)", "", ""]
    finish = prepare_together(own_programs, tmp_path, ends)
    own_programs.wait_for_begun()
    assert [file.read_text() for file in tmp_path.glob("*.output")] == [""] * len(ends)
    assert sorted(tmp_path.glob("*/begun")) == [tmp_path / "0" / "begun"]
    results = finish()
    assert results == [(0, "ran\n"), (1, "ran\n"), (3, "ran\n"), (0, "ran\n"), (0, "ran\n")]
    begun = [(tmp_path / str(number) / "begun").read_text() for number in range(len(ends))]
    assert [begun.index(number) for number in begun] == [0, 0, 2, 3, 3]  # who shared an interpreter
    own_programs.wait_for_begun()
    assert finish() == results  # each test of theirs asks


def test_if_the_first_of_them_dies_while_it_waits_the_others_run(own_programs: Any, tmp_path: Path) -> None:
    finish = prepare_together(own_programs, tmp_path, ["", "", ""])
    own_programs.wait_for_begun()
    os.kill(int((tmp_path / "0" / "begun").read_text()), signal.SIGKILL)
    assert finish() == [(-signal.SIGKILL, ""), (0, "ran\n"), (0, "ran\n")]


def test_programs_that_wait_end_with_the_tests(own_programs: Any, tmp_path: Path) -> None:
    prepare(own_programs, tmp_path / "waits", begin, "Path('ran').touch()")
    own_programs.wait_for_begun()
    prepare(own_programs, tmp_path / "begins", begin + "time.sleep(900)\n", "Path('ran').touch()")
    own_programs.stop()
    assert not list(tmp_path.glob("*/ran"))
