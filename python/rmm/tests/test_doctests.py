# SPDX-License-Identifier: Apache-2.0
"""The examples in the documentation strings"""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest

import rmm

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


@pytest.mark.parametrize("name", modules)
def test_examples_do_what_they_say(name: str) -> None:
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    found = finder.find(module, name, module=module)
    for own, thing in vars(module).items():  # the finder skips objects that it takes for those of another module
        is_own = inspect.isclass(thing) or inspect.isroutine(thing)
        if is_own and thing.__module__ == name and ">>> " in str(thing.__doc__):
            assert f"{name}.{own}" in {test.name for test in found}
    for test in found:
        rmm.reinitialize()
        runner.run(test)
    assert runner.failures == 0
    assert runner.tries > 0
