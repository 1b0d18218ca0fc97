# SPDX-License-Identifier: Apache-2.0
"""Devices: which there are, what they can do, and which one is current."""

from __future__ import annotations

from types import SimpleNamespace
from typing import SupportsInt

from rmm._cuda import _runtime

__all__ = [
    "CUDADriverError",
    "CUDARuntimeError",
    "deviceGetName",
    "driverGetVersion",
    "getDevice",
    "getDeviceAttribute",
    "getDeviceCount",
    "getDeviceProperties",
    "runtimeGetVersion",
    "setDevice",
]


class CUDARuntimeError(RuntimeError):
    """A call of the CUDA runtime failed with `status`."""

    def __init__(self, status: SupportsInt) -> None:
        self.status = status
        super().__init__(f"{_runtime.error_name(int(status))}: {_runtime.error_string(int(status))}")

    def __reduce__(self) -> tuple[type[CUDARuntimeError], tuple[SupportsInt]]:
        return type(self), (self.status,)


class CUDADriverError(RuntimeError):
    """A call of the CUDA driver failed with `status`."""

    def __init__(self, status: SupportsInt) -> None:
        self.status = status
        super().__init__("{}: {}".format(*_runtime.driver_error(int(status))))

    def __reduce__(self) -> tuple[type[CUDADriverError], tuple[SupportsInt]]:
        return type(self), (self.status,)


def _value(answer: tuple[int, int]) -> int:
    status, value = answer
    if status != 0:
        raise CUDARuntimeError(status)
    return value


def driverGetVersion() -> int:
    """CUDA version that the driver supports, as 1000 * major + 10 * minor; 0 if there is no driver."""
    return _value(_runtime.driver_version())


def runtimeGetVersion() -> int:
    """Version of the CUDA runtime, as 1000 * major + 10 * minor."""
    return _value(_runtime.runtime_version())


def getDevice() -> int:
    """Number of the current device."""
    return _value(_runtime.get_device())


def setDevice(device: int) -> None:
    """Makes `device` the current one of this thread."""
    _value(_runtime.set_device(device))


def getDeviceCount() -> int:
    """Number of devices."""
    return _value(_runtime.device_count())


def getDeviceAttribute(attr: SupportsInt, device: int) -> int:
    """An attribute of `device`.

    Parameters
    ----------
    attr:
        A `cudaDeviceAttr` of CUDA Python, or its number.
    device:
        Number of the device.
    """
    return _value(_runtime.device_attribute(int(attr), device))


def getDeviceProperties(device: int) -> SimpleNamespace:
    """What `device` is and can do: attributes with the names and types that `cudaDeviceProp` has in CUDA Python."""
    status, properties = _runtime.device_properties(device)
    if not isinstance(properties, dict):
        raise CUDARuntimeError(status)
    return SimpleNamespace(**properties)


def deviceGetName(device: int) -> str:
    """Name of `device`."""
    name: bytes = getDeviceProperties(device).name
    return name.decode()
