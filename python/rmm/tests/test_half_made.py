# SPDX-License-Identifier: Apache-2.0
"""Objects whose constructor failed or never ran, and methods called with the wrong object: they raise exceptions and never
crash.

Python can get at an object whose constructor raised an exception: the method `__del__` of a subclass is called with it. It can
make one without calling `__init__`, and call a method through its class with whatever it likes.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
from enum import Enum
from typing import Any

import pytest

import rmm

# Calls everything on such objects of one class. Prints each call before it, so that the last line shows where a crash was. At
# the end, prints the calls that raised no exception.
program = """
import importlib, itertools, json, sys

module, name = sys.argv[1:]
cls = getattr(importlib.import_module(module), name)
odd = [None, 0, -1, "x", b"x", object(), (), {}]
half_made, made = [], []

class Half(cls):
    def __init__(self, *arguments, **names):
        pass
    def __del__(self):
        half_made.append(self)

for count in range(4):
    for arguments in itertools.islice(itertools.product(odd, repeat=count), 80):
        for make in (Half, lambda *given: cls.__new__(cls, *given), lambda *given: cls.__new__(Half, *given)):
            try:
                made.append(make(*arguments))
            except Exception:
                continue

passed_over = {"__class__", "__del__", "__delattr__", "__dict__", "__dir__", "__doc__", "__getattribute__", "__getstate__",
    "__init__", "__init_subclass__", "__module__", "__new__", "__pyx_vtable__", "__setattr__", "__setstate__", "__slots__",
    "__subclasshook__", "__weakref__"}
members = [member for member in dir(cls) if member not in passed_over]
passed_on = ("method_descriptor", "wrapper_descriptor", "cython_function_or_method")
answers = {"half made": set(), "made": set(), "another": set()}

def ask(whom, member, *calls):
    for number, call in enumerate(calls):
        print(name, whom, member, number, flush=True)
        try:
            answer = call()
        except Exception:
            continue
        if number > 0 or not callable(answer):
            answers[whom].add(member)

def ask_object(whom, self):
    for member in members:
        calls = [lambda given=given: getattr(self, member)(*given) for given in ((), *((each,) for each in odd))]
        if hasattr(type(getattr(cls, member)), "__set__"):
            calls += [lambda each=each: setattr(self, member, each) for each in (None, 0, [])]
        ask(whom, member, lambda: getattr(self, member), *calls)

for self in half_made[::17]:
    ask_object("half made", self)
for self in made[:2]:
    ask_object("made", self)
for member in members:
    own = getattr(cls, member)
    if own is not getattr(object, member, None) and type(own).__name__ in passed_on:
        for another in (None, 5, object(), []):
            ask("another", member, lambda: print, lambda: own(another), lambda: own(another, None), lambda: own(another, 5))
    if hasattr(type(own), "__get__") and hasattr(type(own), "__set__"):
        ask("another", member, lambda: print, lambda: own.__get__(5, int))
print(json.dumps([bool(half_made), {whom: sorted(answered) for whom, answered in answers.items()}]))
"""

# What answers though nothing was made: what an object was made of, and what need not ask a resource.
harmless = {
    *("upstream_mr", "get_upstream", "mr", "stream", "memory", "from_device", "to_device", "source", "current"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__exit__", "__getattr__"),
    *("__repr__", "__str__", "__format__", "__sizeof__", "__reduce__", "__reduce_ex__", "__reduce_cython__"),
}
harmless_of = {"ConfiguredMemoryResource": {"configuration", "explanation"}, "tag": {"name", "__call__", "__enter__"}}


of_process = {"EnvironmentTrace", "GraphMemory", "capture_scope", "tag"}  # they change what others of the process see


def classes() -> list[tuple[str, str]]:
    """Each class of `rmm.mr` and `rmm.pylibrmm`: the first module that shows it, and its name."""
    found: dict[type, tuple[str, str]] = {rmm.mr.ExportedMemory: ("rmm.mr", "ExportedMemory")}
    for module in pkgutil.walk_packages(rmm.__path__, "rmm."):
        if module.name.startswith(("rmm.mr", "rmm.pylibrmm")) and not module.name.startswith("rmm.mr._"):
            for name, value in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if value.__module__.startswith("rmm.") and not issubclass(value, Enum):
                    found.setdefault(value, (module.name, name))
    return sorted(found.values())


def case(module: str, name: str) -> Any:
    return pytest.param(module, name, marks=pytest.mark.program(shares=name not in of_process))


def program_of(test: pytest.Function) -> list[str]:
    return ["-c", program, *(str(test.callspec.params[part]) for part in ("module", "name"))]


def test_all_classes_are_found() -> None:
    names = {name for _, name in classes()}
    assert {"DeviceBuffer", "Stream", "CudaStreamPool", "EnvironmentTrace", "capture_scope", "tag"} <= names
    assert {name for name in rmm.mr.__all__ if inspect.isclass(getattr(rmm.mr, name))} <= names


@pytest.mark.parametrize(("module", "name"), [case(*each) for each in classes()], ids=lambda part: part)
def test_half_made_objects_answer_with_exceptions(
    module: str, name: str, done: subprocess.CompletedProcess[str]
) -> None:
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"{done.returncode} after {last}: {done.stderr[-2000:]}"
    has_half_made, answers = json.loads(last[0])
    assert set(answers["half made"]) <= harmless | harmless_of.get(name, set())
    assert answers["another"] == []
    if name in ("BinningMemoryResource", "DeviceBuffer", "LoggingResourceAdaptor", "EnvironmentTrace", "capture_scope"):
        assert has_half_made
