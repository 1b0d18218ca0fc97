# SPDX-License-Identifier: Apache-2.0
"""The examples in the documentation strings"""

from __future__ import annotations

import json
import subprocess

import pytest

modules = [
    "rmm",
    "rmm._cuda.gpu",
    "rmm._memory_limit",
    "rmm._ucx",
    "rmm.allocators.torch",
    "rmm.allocators.torch_memory_saver",
    "rmm.allocators.vllm",
    "rmm.memory_report",
    "rmm.memory_snapshot",
    "rmm.mr._exported_memory",
    "rmm.mr._registry",
    "rmm.pylibrmm._log_levels",
    "rmm.pylibrmm._stream_flags",
    "rmm.pylibrmm.cuda_stream",
    "rmm.pylibrmm.cuda_stream_pool",
    "rmm.pylibrmm.device_buffer",
    "rmm.pylibrmm.helper",
    "rmm.pylibrmm.logger",
    "rmm.pylibrmm.memory_resource._adaptors",
    "rmm.pylibrmm.memory_resource._base",
    "rmm.pylibrmm.memory_resource._callbacks",
    "rmm.pylibrmm.memory_resource._capabilities",
    "rmm.pylibrmm.memory_resource._device",
    "rmm.pylibrmm.memory_resource._host",
    "rmm.pylibrmm.memory_resource._pools",
    "rmm.pylibrmm.memory_resource._registry",
    "rmm.pylibrmm.scopes",
    "rmm.pylibrmm.stream",
    "rmm.pylibrmm.utils",
    "rmm.rmm",
    "rmm.sleep",
    "rmm.statistics",
]


# Prints what is wrong with the examples of each module in its arguments. They share an interpreter, which imports PyTorch.
program = """
import doctest, gc, importlib, inspect, json, os, sys, threading, warnings
import rmm, rmm.mr
from rmm._build_facts import cuda_backend

def run(name, report):
    module = importlib.import_module(name)
    found = doctest.DocTestFinder(exclude_empty=True).find(module, name, module=module)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for own, thing in vars(module).items():  # the finder skips objects that it takes for those of another module
        is_own = inspect.isclass(thing) or inspect.isroutine(thing)
        if is_own and thing.__module__ == name and ">>> " in str(thing.__doc__):
            if f"{name}.{own}" not in {test.name for test in found}:
                report(f"not found: {name}.{own}")
    for test in found:
        rmm.reinitialize()
        runner.run(test, out=report)
    if runner.tries == 0:
        report("no example")

warnings.simplefilter("error")
problems = {name: [] for name in sys.argv[1:]}
for name, wrong in problems.items():
    sys.unraisablehook = threading.excepthook = lambda lost: wrong.append(repr(lost))
    os.mkdir(name)
    os.chdir(name)
    free_before = rmm.mr.available_device_memory()[0]
    run(name, wrong.append)
    os.chdir("..")
    rmm.reinitialize()
    gc.collect()
    if "rmm.sleep" in sys.modules:
        sys.modules["rmm.sleep"]._sleeper.release_unused()
    if cuda_backend == "sim" and rmm.mr.available_device_memory()[0] != free_before:
        wrong.append("memory is left behind")
print(json.dumps(problems))
"""


def program_of_module() -> list[str]:
    return ["-c", program, *modules]


@pytest.mark.parametrize("name", modules)
def test_examples_do_what_they_say(name: str, done_for_module: subprocess.CompletedProcess[str]) -> None:
    assert done_for_module.returncode == 0, done_for_module.stderr
    problems: list[str] = json.loads(done_for_module.stdout.splitlines()[-1])[name]
    assert not problems, "".join(problems)
