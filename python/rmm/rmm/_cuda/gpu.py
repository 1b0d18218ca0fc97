# SPDX-License-Identifier: Apache-2.0
"""CUDA devices: their number, their properties, and the current device."""

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
    """An error of a call of the CUDA runtime.

    Parameters
    ----------
    status : int
        The number of the error, a `cudaError_t`.

    Examples
    --------
    >>> from rmm._cuda.gpu import CUDARuntimeError
    >>> str(CUDARuntimeError(2))
    'cudaErrorMemoryAllocation: out of memory'
    """

    def __init__(self, status: SupportsInt) -> None:
        self.status = status
        super().__init__(f"{_runtime.error_name(int(status))}: {_runtime.error_string(int(status))}")

    def __reduce__(self) -> tuple[type[CUDARuntimeError], tuple[SupportsInt]]:
        return type(self), (self.status,)


class CUDADriverError(RuntimeError):
    """An error of a call of the CUDA driver.

    Parameters
    ----------
    status : int
        The number of the error, a `CUresult`.

    Examples
    --------
    >>> from rmm._cuda.gpu import CUDADriverError
    >>> CUDADriverError(2).status
    2
    """

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
    """Return the CUDA version that the driver supports.

    Returns
    -------
    int
        1000 * major + 10 * minor; 0 without a driver.

    Raises
    ------
    CUDARuntimeError
        If the call fails.

    Examples
    --------
    >>> from rmm._cuda import gpu
    >>> gpu.driverGetVersion() >= 11000
    True
    """
    return _value(_runtime.driver_version())


def runtimeGetVersion() -> int:
    """Return the version of the CUDA runtime.

    Returns
    -------
    int
        1000 * major + 10 * minor.

    Raises
    ------
    CUDARuntimeError
        If the call fails.

    Examples
    --------
    >>> from rmm._cuda import gpu
    >>> gpu.runtimeGetVersion() >= 11000
    True
    """
    return _value(_runtime.runtime_version())


def getDevice() -> int:
    """Return the current device.

    Returns
    -------
    int
        The number of the device.

    Raises
    ------
    CUDARuntimeError
        If the call fails, for example because there is no device.

    Examples
    --------
    >>> from rmm._cuda import gpu
    >>> gpu.getDevice()
    0
    """
    return _value(_runtime.get_device())


def setDevice(device: int) -> None:
    """Make a device the current one of this thread.

    Parameters
    ----------
    device : int
        The number of the device.

    Raises
    ------
    CUDARuntimeError
        If there is no such device.

    Examples
    --------
    >>> from rmm._cuda import gpu
    >>> gpu.setDevice(0)
    """
    _value(_runtime.set_device(device))


def getDeviceCount() -> int:
    """Return the number of devices.

    Returns
    -------
    int
        The number.

    Raises
    ------
    CUDARuntimeError
        If the call fails, for example because there is no device.

    Examples
    --------
    >>> from rmm._cuda import gpu
    >>> gpu.getDeviceCount() >= 1
    True
    """
    return _value(_runtime.device_count())


def getDeviceAttribute(attr: SupportsInt, device: int) -> int:
    """Return an attribute of a device.

    Parameters
    ----------
    attr : cudaDeviceAttr of CUDA Python or int
        The attribute.
    device : int
        The number of the device.

    Returns
    -------
    int
        The value.

    Raises
    ------
    CUDARuntimeError
        If there is no such attribute or device.

    Examples
    --------
    >>> from cuda.bindings.runtime import cudaDeviceAttr
    >>> from rmm._cuda import gpu
    >>> gpu.getDeviceAttribute(cudaDeviceAttr.cudaDevAttrComputeCapabilityMajor, 0) >= 1
    True
    """
    return _value(_runtime.device_attribute(int(attr), device))


def getDeviceProperties(device: int) -> SimpleNamespace:
    """Return the properties of a device.

    Parameters
    ----------
    device : int
        The number of the device.

    Returns
    -------
    types.SimpleNamespace
        The fields of `cudaDeviceProp` that `vars` lists, with their names and types in CUDA Python. Others are attributes of
        the device: see `getDeviceAttribute`.

    Raises
    ------
    CUDARuntimeError
        If there is no such device.

    Examples
    --------
    >>> from rmm._cuda import gpu
    >>> gpu.getDeviceProperties(0).totalGlobalMem > 0
    True
    """
    status, properties = _runtime.device_properties(device)
    if not isinstance(properties, dict):
        raise CUDARuntimeError(status)
    return SimpleNamespace(**properties)


def deviceGetName(device: int) -> str:
    """Return the name of a device.

    Parameters
    ----------
    device : int
        The number of the device.

    Returns
    -------
    str
        The name.

    Raises
    ------
    CUDARuntimeError
        If there is no such device.

    Examples
    --------
    >>> from rmm._cuda import gpu
    >>> name = gpu.deviceGetName(0)
    """
    name: bytes = getDeviceProperties(device).name
    return name.decode()
