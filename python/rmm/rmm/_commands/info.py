# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
from collections.abc import Callable

import rmm
from rmm import _installation
from rmm._build_facts import cuda_backend
from rmm._cuda import gpu

MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(options: argparse.Namespace) -> int:
    print(f"rmm {rmm.__version__}, {'simulated' if cuda_backend == 'sim' else 'real'} CUDA runtime", end=" ")
    print(_version(gpu.runtimeGetVersion()), end=", ")
    print(f"driver for CUDA {_version(gpu.driverGetVersion())}")
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


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _print_device(device: int) -> None:
    properties = gpu.getDeviceProperties(device)
    free, total = rmm.mr.available_device_memory()
    print(f"\ndevice {device}: {properties.name.decode()}, compute capability {properties.major}.{properties.minor}")
    print(f"  memory             {free / MIB:,.0f} MiB free of {total / MIB:,.0f} MiB")
    print(f"  current resource   {rmm.mr.get_per_device_resource(device)!r}")
    for name, make in _resources.items():
        try:  # the driver may refuse memory of a kind that the device's attributes promise
            rmm.DeviceBuffer(size=1, mr=make())
        except Exception as error:
            print(f"  {name:<18} no: {str(error).splitlines()[0]}")
        else:
            print(f"  {name:<18} yes")


_resources: dict[str, Callable[[], rmm.mr.DeviceMemoryResource]] = {
    "managed": rmm.mr.ManagedMemoryResource,
    "async pool": rmm.mr.CudaAsyncMemoryResource,
    "  shared by IPC": lambda: rmm.mr.CudaAsyncMemoryResource(enable_ipc=True),
    "  shared by fabric": lambda: rmm.mr.CudaAsyncMemoryResource(enable_fabric=True),
    "managed pool": rmm.mr.experimental.CudaAsyncManagedMemoryResource,
    "system": rmm.mr.SystemMemoryResource,
}
