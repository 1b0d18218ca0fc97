# SPDX-License-Identifier: Apache-2.0
"""The examples in the documentation strings"""

from __future__ import annotations

import doctest
import importlib

import pytest

import rmm

modules = [
    "rmm",
    "rmm._memory_limit",
    "rmm.pylibrmm.device_buffer",
    "rmm.pylibrmm.memory_resource._capabilities",
    "rmm.pylibrmm.scopes",
    "rmm.statistics",
]


@pytest.mark.parametrize("name", modules)
def test_examples_do_what_they_say(name: str) -> None:
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in finder.find(module, name, module=module):
        rmm.reinitialize()
        runner.run(test)
    assert runner.failures == 0
    assert runner.tries > 0
