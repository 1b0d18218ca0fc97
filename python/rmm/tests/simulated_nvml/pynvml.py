# SPDX-License-Identifier: Apache-2.0
"""Answers Dask's questions to NVML for simulated devices, which the real NVML does not know.

A process imports it in place of the package nvidia-ml-py if its folder comes first in PYTHONPATH.
"""

from __future__ import annotations

from types import SimpleNamespace

from rmm._cuda import gpu

NVML_DEVICE_MIG_DISABLE, NVML_DEVICE_MIG_ENABLE = 0, 1


class NVMLError(Exception):
    pass


class NVMLError_DriverNotLoaded(NVMLError):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_NotFound(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_Unknown(NVMLError):
    pass


def nvmlInit() -> None:
    pass


def nvmlSystemGetDriverVersion() -> str:
    return "580.65.06"


def nvmlDeviceGetCount() -> int:
    return gpu.getDeviceCount()


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetIndex(handle: int) -> int:
    return handle


def nvmlDeviceGetUUID(handle: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{handle:012}"


def nvmlDeviceGetName(handle: int) -> str:
    return gpu.deviceGetName(handle)


def nvmlDeviceGetMigMode(handle: int) -> list[int]:
    raise NVMLError_NotSupported


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[object]:
    return []


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=0)


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    """Returns the memory of a device. It is all free: each process simulates its own devices."""
    return SimpleNamespace(total=int(gpu.getDeviceProperties(handle).totalGlobalMem), used=0)


def nvmlDeviceGetCpuAffinity(handle: int, words: int) -> list[int]:
    return [2**64 - 1] * words
