# SPDX-License-Identifier: Apache-2.0
"""`rmm doctor`: describes the machine and the process, times allocations, and gives advice."""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import os
import sys
import time
from collections.abc import Callable, Iterator

import rmm
import rmm.allocators
from rmm import _installation, _ucx
from rmm._build_facts import cuda_backend
from rmm._commands.capabilities import allocates, has_managed_memory, is_made, reason_of, version_text, yes_or_why_not
from rmm._cuda import _runtime, gpu

MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=1.0,
        help="how long each resource is measured; 0 measures nothing (%(default)s)",
    )


def _seconds(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or number < 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 0 up")
    return number


def run(options: argparse.Namespace) -> int:
    print("\n".join(describe()))
    has_device = _device_count() > 0
    if options.seconds > 0 and has_device:
        print("\n".join(("", *measure(options.seconds))))
    print("\nadvice")
    for line in advise() or ["Nothing to change was found."]:
        print(f"  {line}")
    return 0 if has_device else 1


def describe() -> Iterator[str]:
    """Yields lines that describe the machine and this process."""
    yield f"rmm {rmm.__version__} in {os.path.dirname(rmm.__file__)}, Python {sys.version.split()[0]}"
    runtime = "simulated CUDA runtime" if cuda_backend == "sim" else "CUDA runtime"
    yield f"{runtime} {version_text(gpu.runtimeGetVersion())}, driver for CUDA {version_text(gpu.driverGetVersion())}"
    for device in range(_device_count()):
        yield ""
        yield from _describe_device(device)
    yield "\nenvironment"
    names = sorted(name for name in os.environ if name.startswith(_prefixes) or name in _variables)
    yield from (f"  {name}={os.environ[name]}" for name in names)
    if not names:
        yield "  no variable that concerns memory is set"
    yield "\nframeworks in this process"
    for name, (distributions, find_allocator) in _frameworks.items():
        yield f"  {name:<9} {_version_of(distributions) or 'not installed':<16} {_allocator(name, find_allocator)}".rstrip()


def _device_count() -> int:
    try:
        return gpu.getDeviceCount()
    except gpu.CUDARuntimeError:
        return 0


def _describe_device(device: int) -> Iterator[str]:
    before = gpu.getDevice()
    gpu.setDevice(device)
    try:
        properties = gpu.getDeviceProperties(device)
        free, total = rmm.mr.available_device_memory()
        yield f"device {device}: {properties.name.decode()}, compute capability {properties.major}.{properties.minor}"
        yield f"  memory             {free / MIB:,.0f} MiB free of {total / MIB:,.0f} MiB"
        yield f"  current resource   {rmm.mr.get_per_device_resource(device)!r}"
        yield f"  recommended        {rmm.mr.ConfiguredMemoryResource('recommended').explanation.splitlines()[-1]}"
        for name, is_there in _capabilities:
            yield f"  {name:<18} {yes_or_why_not(is_there)}"
        peers = [str(peer) for peer in range(gpu.getDeviceCount()) if peer != device and _can_access(device, peer)]
        yield f"  peers              {', '.join(peers) or 'none'}"
    finally:
        gpu.setDevice(before)


def _can_access(device: int, peer: int) -> bool:
    status, can = _runtime.can_access_peer(device, peer)
    return status == 0 and bool(can)


def _has_virtual_memory() -> bool:
    return rmm.mr.ElasticPoolMemoryResource().has_virtual_memory


_capabilities: tuple[tuple[str, Callable[[], bool]], ...] = (
    ("virtual memory", _has_virtual_memory),
    ("  shared by fd", allocates(lambda: rmm.mr.ElasticPoolMemoryResource(share_descriptors=True))),
    ("  shared by fabric", allocates(lambda: rmm.mr.ElasticPoolMemoryResource(share_fabric=True))),
    ("  for adapters", allocates(lambda: rmm.mr.ElasticPoolMemoryResource(gpu_direct_rdma=True))),
    ("driver's pools", is_made(rmm.mr.CudaAsyncMemoryResource)),
    ("  shared by IPC", allocates(lambda: rmm.mr.CudaAsyncMemoryResource(enable_ipc=True))),
    ("  shared by fabric", allocates(lambda: rmm.mr.CudaAsyncMemoryResource(enable_fabric=True))),
    ("managed memory", has_managed_memory),
    ("host's memory", is_made(rmm.mr.SystemMemoryResource)),
)


_prefixes = ("RMM_", "PYTORCH_", "NUMBA_CUDA_", "CUPY_", "XLA_PYTHON_CLIENT_", "XLA_CLIENT_MEM_")
_variables = {"CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "LD_PRELOAD"}


def _cupy_allocator() -> str:
    cupy = sys.modules["cupy"]
    allocator = cupy.cuda.get_allocator()
    return getattr(allocator, "__qualname__", repr(allocator))


def _numba_allocator() -> str:
    manager = sys.modules["numba.cuda"].cudadrv.driver._memory_manager
    return "not chosen yet" if manager is None else manager.__name__


def _torch_allocator() -> str:
    memory = sys.modules["torch"].cuda.memory
    backend: str = memory.get_allocator_backend()
    if backend != "pluggable":
        return backend
    return "rmm_torch_allocator" if _torch_uses_rmm() else backend


def _torch_uses_rmm() -> bool:
    ours = getattr(sys.modules.get("rmm.allocators.torch"), "rmm_torch_allocator", None)
    return ours is not None and sys.modules["torch"]._C._cuda_getAllocator() is ours.allocator()


def _cuda_core_allocator() -> str:
    resource = sys.modules["cuda.core"].Device(gpu.getDevice()).memory_resource
    return f"{type(resource).__name__}, in this thread"


def _jax_allocator() -> str:
    return f"XLA's {os.environ.get('XLA_PYTHON_CLIENT_ALLOCATOR', 'default')}, which cannot be replaced"


def _warp_allocator() -> str:
    warp = sys.modules["warp"]
    return type(warp.get_device_allocator(warp.get_cuda_device())).__name__


_frameworks: dict[str, tuple[tuple[str, ...], Callable[[], str]]] = {
    "cupy": (("cupy-cuda13x", "cupy-cuda12x", "cupy"), _cupy_allocator),
    "numba": (("numba-cuda", "numba"), _numba_allocator),
    "torch": (("torch",), _torch_allocator),
    "warp": (("warp-lang",), _warp_allocator),
    "cuda.core": (("cuda-core",), _cuda_core_allocator),
    "jax": (("jax",), _jax_allocator),
}
_modules = {
    "cupy": "cupy",
    "numba": "numba.cuda",
    "torch": "torch",
    "warp": "warp",
    "cuda.core": "cuda.core",
    "jax": "jax",
}
_jax_settings = {"XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PYTHON_CLIENT_PREALLOCATE"}
_switched_at_once = ("cupy", "numba", "torch", "warp")  # rmm.allocators.enable() can switch these


def _version_of(distributions: tuple[str, ...]) -> str:
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _allocator(name: str, find: Callable[[], str]) -> str:
    if _modules[name] not in sys.modules:
        return ""
    try:
        return f"allocates by {find()}"
    except Exception as error:  # an unknown release of the framework
        return f"has an allocator that RMM does not know ({type(error).__name__}: {error})"


def measure(seconds: float) -> Iterator[str]:
    """Times making and dropping buffers of 256 bytes and 1 MiB, for `seconds` with each resource. Yields lines of a table."""
    yield f"{'ns a buffer, made and dropped':<31} {'256 B':>10} {'1 MiB':>10}"
    for name, make in _measured.items():
        try:
            resource = make()
            times = [_nanoseconds(resource, size, seconds / 2) for size in (256, MIB)]
        except Exception as error:
            yield f"  {name:<29} {reason_of(error)}"
        else:
            yield f"  {name:<29} {times[0]:>10,.0f} {times[1]:>10,.0f}"


_measured: dict[str, Callable[[], rmm.mr.DeviceMemoryResource]] = {
    "cuda (cudaMalloc)": rmm.mr.CudaMemoryResource,
    "cuda_async (driver's pool)": lambda: rmm.mr.CudaAsyncMemoryResource(initial_pool_size="16MiB"),
    "cached,upstream=cuda_async": lambda: rmm.mr.CachedMemoryResource(rmm.mr.CudaAsyncMemoryResource()),
    "pool": lambda: rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "16MiB"),
    "elastic": rmm.mr.ElasticPoolMemoryResource,
}


def _nanoseconds(resource: rmm.mr.DeviceMemoryResource, size: int, seconds: float) -> float:
    buffer = rmm.DeviceBuffer
    buffer(size=size, mr=resource)
    begin = time.perf_counter()
    end, calls = begin, 0
    while end - begin < seconds or calls == 0:
        for _ in range(100):
            buffer(size=size, mr=resource)
        calls += 100
        end = time.perf_counter()
    return (end - begin) / calls * 1e9


def advise() -> list[str]:
    """Returns lines of advice, with commands to paste."""
    found: list[str] = []
    if mixed := _installation.advice():
        found.append(mixed)
    if _device_count() == 0:
        found.append("No CUDA device can be used: install a driver, or look at CUDA_VISIBLE_DEVICES.")
        return found
    driver, runtime = gpu.driverGetVersion(), gpu.runtimeGetVersion()
    if driver < runtime // 1000 * 1000:
        found.append(f"The driver is for CUDA {version_text(driver)}; CUDA {version_text(runtime)} needs a newer one.")
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        found.append("Each kernel is waited for, which hides what allocation costs:  unset CUDA_LAUNCH_BLOCKING")
    if isinstance(rmm.mr.get_current_device_resource(), rmm.mr.CudaMemoryResource):
        found.append("Each allocation calls cudaMalloc. To allocate from a pool, without a change of the program:")
        found.append('  export RMM_RESOURCE="recommended"')
    found += _advise_about_ucx()
    installed = [name for name in _switched_at_once if _version_of(_frameworks[name][0])]
    if installed:
        names = ", ".join(f'"{name}"' for name in installed)
        found.append("To let the frameworks draw from the same pool, before they allocate anything:")
        found.append(f"  import rmm.allocators; rmm.allocators.enable({names})")
    if _version_of(("jax-cuda13-plugin", "jax-cuda12-plugin")) and not _jax_settings & set(os.environ):
        found.append("JAX takes 75 % of the device's memory when it starts. To leave it to the pool:")
        found.append("  export XLA_PYTHON_CLIENT_PREALLOCATE=false")
    return found


def _advise_about_ucx() -> list[str]:
    """Returns advice if UCX is installed, and would send memory of the current or recommended resource through the host."""
    if not _ucx.is_installed() or _ucx.option_is_set():
        return []
    resource = rmm.mr.get_current_device_resource()
    if isinstance(resource, rmm.mr.CudaMemoryResource):
        resource = rmm.mr.ConfiguredMemoryResource("recommended")  # what the advice above names
    name = _ucx.mapped_memory(resource)
    if not name:
        return []
    return [
        f"UCX sends memory of {name} through the host, at 0.4 GB/s (two H200s). To send it from device to device:",
        f"  export {_ucx.OPTION}=y",
        "  With it, UCX says, a transfer that fails may corrupt data. Memory of 'pool' needs no option: docs/dask.md.",
    ]
