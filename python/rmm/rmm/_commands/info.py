# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
from collections.abc import Callable

import rmm
from rmm import _installation
from rmm._build_facts import cuda_backend
from rmm._commands.capabilities import allocates, has_managed_memory, version_text, yes_or_why_not
from rmm._cuda import gpu

MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(options: argparse.Namespace) -> int:
    print(f"rmm {rmm.__version__}, {'simulated' if cuda_backend == 'sim' else 'real'} CUDA runtime", end=" ")
    print(version_text(gpu.runtimeGetVersion()), end=", ")
    print(f"driver for CUDA {version_text(gpu.driverGetVersion())}")
    if advice := _installation.advice():
        print(f"mixed installation: {advice}")
    try:
        count = gpu.getDeviceCount()
    except gpu.CUDARuntimeError as error:
        print(f"no device: {error}")
        return 1
    before = gpu.getDevice()
    try:
        for device in range(count):
            gpu.setDevice(device)
            _print_device(device)
    finally:
        gpu.setDevice(before)
    return 0


def _print_device(device: int) -> None:
    properties = gpu.getDeviceProperties(device)
    free, total = rmm.mr.available_device_memory()
    print(f"\ndevice {device}: {properties.name.decode()}, compute capability {properties.major}.{properties.minor}")
    print(f"  memory             {free / MIB:,.0f} MiB free of {total / MIB:,.0f} MiB")
    print(f"  current resource   {rmm.mr.get_per_device_resource(device)!r}")
    for name, is_there in _resources.items():
        print(f"  {name:<18} {yes_or_why_not(is_there)}")


_resources: dict[str, Callable[[], bool]] = {
    "managed": has_managed_memory,
    "async pool": allocates(rmm.mr.CudaAsyncMemoryResource),
    "  shared by IPC": allocates(lambda: rmm.mr.CudaAsyncMemoryResource(enable_ipc=True)),
    "  shared by fabric": allocates(lambda: rmm.mr.CudaAsyncMemoryResource(enable_fabric=True)),
    "managed pool": allocates(rmm.mr.experimental.CudaAsyncManagedMemoryResource),
    "system": allocates(rmm.mr.SystemMemoryResource),
}
