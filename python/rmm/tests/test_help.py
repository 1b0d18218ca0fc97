# SPDX-License-Identifier: Apache-2.0
"""The help that users see: help(), pydoc, dir(), completion, signatures and docstrings, without any framework installed."""

from __future__ import annotations

import inspect
import subprocess

import pytest

import rmm
import rmm.pylibrmm.stream

# Makes importing a framework fail, as if it was not installed.
without_frameworks = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cupy", "dask", "distributed", "jax", "numba", "torch", "warp"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""

# All that rmm.allocators.numba, which is a plug-in of Numba and so imports it, needs to be imported.
stand_in_for_numba = """
import types

numba, cuda = types.ModuleType("numba"), types.ModuleType("numba.cuda")
numba.cuda = cuda
for name in ("GetIpcHandleMixin", "HostOnlyCUDAMemoryManager", "MemoryInfo", "MemoryPointer"):
    setattr(cuda, name, type(name, (), {}))
sys.modules.update({"numba": numba, "numba.cuda": cuda})
"""

# All that rmm.allocators.cuda_core needs to be imported.
stand_in_for_cuda_core = """
bindings, core = types.ModuleType("cuda.bindings"), types.ModuleType("cuda.core")
core.__version__ = "1.2.2"
bindings.driver = None
for name in ("Buffer", "LEGACY_DEFAULT_STREAM", "MemoryResource", "PER_THREAD_DEFAULT_STREAM", "Stream"):
    setattr(core, name, type(name, (), {"from_handle": lambda: None}))
parent = types.ModuleType("cuda")
parent.bindings, parent.core = bindings, core
sys.modules.update({"cuda": parent, "cuda.bindings": bindings, "cuda.core": core})
"""

# All that rmm.dask, a plug-in of Dask's workers, needs to be imported.
stand_in_for_dask = """
class Registry:
    def register(self, cls):
        return lambda function: function

    def register_lazy(self, package, function):
        pass

distributed = types.ModuleType("distributed")
distributed.WorkerPlugin = type("WorkerPlugin", (), {"__module__": "distributed"})
contents = {
    "distributed.protocol": {"dask_deserialize": Registry(), "dask_serialize": Registry()},
    "distributed.protocol.cuda": {"cuda_deserialize": Registry(), "cuda_serialize": Registry()},
    "distributed.utils": {"offload": None},
}
sys.modules["distributed"] = distributed
for name, attributes in contents.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(attributes)
"""

walk = """
import enum, importlib, inspect, pkgutil, re, typing
import librmm, rmm

ours = ("rmm", "librmm")
modules = ["rmm", "librmm"] + [
    found.name
    for package in (rmm, librmm)
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if not any(part.startswith("_") for part in found.name.split(".")) and not found.name.startswith("librmm.share")
]
looked_at = 0

def is_ours(thing, module):
    return str(getattr(thing, "__module__", None) or module).partition(".")[0] in ours

def look_at(name, thing, docstring):
    global looked_at
    looked_at += 1
    if not docstring or docstring.startswith("Alias for field"):
        print(name, "has no docstring")
    elif "\\n--\\n" in docstring:
        print(name, "shows the end of its signature in its docstring")
    if callable(thing):
        try:
            inspect.signature(thing)
        except ValueError as error:
            print(name, "has no signature:", error)

def section(docstring, title):
    found = re.search(title + r"\\n-+\\n(.*?)(?=\\n\\n\\w+\\n---|\\Z)", docstring, re.DOTALL)
    return found[1] if found else ""

def look_at_sections(name, thing, docstring, wants_example):
    docstring = inspect.cleandoc(docstring or "")
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = inspect.signature(thing).parameters.values()
    names = [marks.get(each.kind, "") + each.name for each in parameters if each.name not in ("self", "cls")]
    described = re.findall(r"^(\\*{0,2}\\w+) : \\S", section(docstring, "Parameters"), re.MULTILINE)
    if described not in (names, [each for each in names if each not in ("*args", "**kwargs")]):
        print(name, "has the parameters", names, "and describes", described)
    returned = inspect.signature(thing).return_annotation
    if returned not in (inspect.Signature.empty, None, "None") and not section(docstring, "Returns"):
        if not inspect.isclass(thing) and not re.match("Iterator|Any", str(returned)):
            print(name, "does not describe what it returns")
    if wants_example and ">>> " not in section(docstring, "Examples"):
        print(name, "has no example")

for module_name in modules:
    module = importlib.import_module(module_name)
    look_at(module_name, module, module.__doc__)
    for name in {*dir(module), *getattr(module, "__all__", ())}:
        thing = getattr(module, name)
        if name.startswith("_") or inspect.ismodule(thing) or not is_ours(thing, module_name) or not callable(thing):
            continue
        docstring = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
        look_at(f"{module_name}.{name}", thing, docstring)
        is_exported = module_name.startswith("rmm") and name in getattr(module, "__all__", ())
        if is_exported and not (inspect.isclass(thing) and issubclass(thing, enum.Enum)):
            look_at_sections(f"{module_name}.{name}", thing, docstring, True)
        if not inspect.isclass(thing) or issubclass(thing, enum.Enum):
            continue
        for attribute in dir(thing):
            owner = next(owner for owner in thing.__mro__ if attribute in vars(owner))
            if attribute.startswith("_") or not is_ours(owner, ""):
                continue
            member = getattr(thing, attribute)
            if isinstance(member, (int, str, float, type(None))) and not isinstance(vars(owner)[attribute], property):
                continue  # the default of a field
            look_at(f"{module_name}.{name}.{attribute}", member, inspect.getdoc(member))
            if module_name.startswith("rmm") and inspect.isroutine(member):
                look_at_sections(f"{module_name}.{name}.{attribute}", member, inspect.getdoc(member), False)
print("modules", len(modules), "names", looked_at)
"""


@pytest.mark.program(
    without_frameworks + stand_in_for_numba + stand_in_for_cuda_core + stand_in_for_dask + walk, options=["-W", "error"]
)
def test_docstrings_of_public_names_match_their_signatures(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    *complaints, sums = done.stdout.splitlines()
    assert complaints == []
    words = sums.split()
    assert int(words[1]) > 20
    assert int(words[3]) > 300


@pytest.mark.program(
    without_frameworks + "import pydoc, rmm; print(pydoc.plain(pydoc.render_doc(rmm)))", options=["-W", "error"]
)
def test_help_works_without_a_framework(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    assert "reinitialize(pool_allocator" in done.stdout
    assert "class DeviceBuffer" in done.stdout


def program_of(test: pytest.Function) -> list[str]:
    pydoc = f"{without_frameworks}\nimport pydoc\npydoc.cli()"
    return ["-W", "error", "-c", pydoc, str(test.callspec.params["name"])]


@pytest.mark.parametrize("name", ["rmm", "rmm.mr", "rmm.allocators", "rmm.statistics", "librmm"])
def test_the_program_pydoc_works_without_a_framework(name: str, done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    text = done.stdout
    assert f"{name}" in text
    assert "problem in" not in text
    assert "NAME" in text


@pytest.mark.program(
    without_frameworks
    + """
import inspect, rlcompleter, rmm
members = dict(inspect.getmembers(rmm))
assert {"DeviceBuffer", "allocators", "mr", "reinitialize", "statistics"} <= set(members), members
completer = rlcompleter.Completer({"rmm": rmm})
completions = [completer.complete("rmm.", number) for number in range(20)]
assert any(each.startswith("rmm.DeviceBuffer") for each in completions), completions
assert completer.complete("rmm.rein", 0).startswith("rmm.reinitialize(")
try:
    rmm.RMMNumbaManager
except ModuleNotFoundError as error:
    print(error)
""",
    options=["-W", "error"],
)
def test_listed_names_need_no_framework(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout, done.stderr) == (0, "No module named 'numba'\n", "")


@pytest.mark.program(
    without_frameworks
    + """
import rmm
try:
    import rmm.dask
except ModuleNotFoundError as error:
    print(error)
""",
    options=["-W", "error"],
)
def test_the_plug_in_for_dask_says_that_dask_is_missing(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout, done.stderr) == (0, "No module named 'distributed'\n", "")


def test_signatures_are_those_of_the_calls() -> None:
    def text(function: object) -> str:
        return str(inspect.signature(function))  # type: ignore[arg-type]

    assert text(rmm.DeviceBuffer) == "(*, ptr=0, size=0, stream=Ellipsis, mr=None)"
    assert text(rmm.DeviceBuffer.to_device) == "(b, stream=Stream(0x0))"
    assert text(rmm.DeviceBuffer.resize) == "(self, /, new_size, stream=Ellipsis)"
    assert text(rmm.DeviceBuffer(size=1).resize) == "(new_size, stream=Ellipsis)"
    assert text(rmm.mr.PoolMemoryResource) == "(upstream_mr, initial_pool_size=None, maximum_pool_size=None)"
    assert text(rmm.mr.FixedSizeMemoryResource) == "(upstream_mr, block_size=1048576, blocks_to_preallocate=128)"
    assert text(rmm.mr.experimental.CudaAsyncManagedMemoryResource) == "(release_threshold=None)"
    assert text(rmm.mr.DeviceMemoryResource.allocate) == "(self, /, nbytes, stream=Ellipsis)"
    assert text(rmm.mr.get_per_device_resource) == "(device)"
    assert text(rmm.pylibrmm.stream.Stream) == "(obj=None, flags=None)"


def test_a_subclass_has_the_signature_of_its_own_constructor() -> None:
    class Mine(rmm.mr.DeviceMemoryResource):
        def __init__(self, limit: int) -> None:
            self.limit = limit

    assert list(inspect.signature(Mine).parameters) == ["limit"]


def test_help_shows_attributes() -> None:
    assert "came from" in (inspect.getdoc(rmm.DeviceBuffer.mr) or "")
    assert inspect.getdoc(rmm.DeviceBuffer) is not None
    assert (inspect.getdoc(rmm.DeviceBuffer) or "").startswith("A block of device memory")
