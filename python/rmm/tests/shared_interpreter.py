# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of several tests in one interpreter, each after the one before it.

The argument is the path of a JSON file with a list of programs: the `code` and `arguments` of each, the `folder` that it runs
in, and the files for its `output` and `errors`. The standard output gets a dot after each program but the last. The interpreter
ends with the first program that fails, or else with the last one, as if that program had run alone. If programs wait for a
turn, only the first one does: the others run in its turn.
"""

from __future__ import annotations

import builtins
import gc
import json
import os
import sys
import threading
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any


def run(program: dict[str, Any]) -> None:
    for descriptor, name in ((1, "output"), (2, "errors")):
        file = os.open(program[name], os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(program["folder"])
    sys.argv = ["-c", *program["arguments"]]
    sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(program["code"], "<string>", "exec", dont_inherit=True), vars(sys.modules["__main__"]))


def wait_for_turn(sign: object = "", /) -> str:
    """Takes the place of `input`, by which a program waits for its turn. Prints the sign where the dots go."""
    builtins.input = str  # does not wait
    os.write(dots, str(sign).encode())
    return sys.stdin.readline()


def end() -> None:
    """Ends the threads of a program, and drops its objects and resources, as the end of its interpreter would."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    sys.modules["__main__"] = runner
    gc.collect()
    if "rmm" in sys.modules:
        rmm: Any = sys.modules["rmm"]
        rmm._cuda.gpu.setDevice(0)
        rmm.reinitialize()
        gc.collect()
    gc.freeze()  # what is left is mostly modules, which the collections of later programs can skip
    sys.stdout.flush()
    sys.stderr.flush()


runner = sys.modules["__main__"]
dots = os.dup(1)
builtins.input = wait_for_turn
environment, path, hooks = dict(os.environ), list(sys.path), list(sys.meta_path)
*programs, last = json.loads(Path(sys.argv[1]).read_text())
for each in programs:
    with warnings.catch_warnings():
        run(each)
    end()
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:], sys.meta_path[:] = path, hooks
    os.write(dots, b".")
run(last)
