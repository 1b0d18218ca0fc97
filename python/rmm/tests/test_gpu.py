# SPDX-License-Identifier: Apache-2.0
"""rmm._cuda.gpu"""

from __future__ import annotations

import pickle

import pytest

from rmm._cuda import gpu


def test_versions_have_the_form_of_cuda() -> None:
    assert gpu.runtimeGetVersion() >= 12000
    assert gpu.driverGetVersion() >= gpu.runtimeGetVersion() // 1000 * 1000


def test_the_current_device_can_be_changed(second_device: int) -> None:
    gpu.setDevice(second_device)
    assert gpu.getDevice() == second_device
    gpu.setDevice(0)
    assert gpu.getDevice() == 0


def test_devices_have_names_attributes_and_properties() -> None:
    assert gpu.getDeviceCount() >= 1
    properties = gpu.getDeviceProperties(0)
    assert gpu.deviceGetName(0) == properties.name.decode()
    assert gpu.getDeviceAttribute(75, 0) == properties.major  # cudaDevAttrComputeCapabilityMajor
    assert properties.totalGlobalMem > 0


def test_failures_are_exceptions_of_the_runtime(capfd: pytest.CaptureFixture[str]) -> None:
    for call in (lambda: gpu.setDevice(1000), lambda: gpu.getDeviceProperties(1000), lambda: gpu.deviceGetName(-1)):
        with pytest.raises(gpu.CUDARuntimeError, match="cudaErrorInvalidDevice: invalid device ordinal") as caught:
            call()
        assert caught.value.status == 101
    with pytest.raises(gpu.CUDARuntimeError):
        gpu.getDeviceAttribute(100_000, 0)
    assert gpu.getDevice() == 0
    capfd.readouterr()


@pytest.mark.parametrize("cls", [gpu.CUDARuntimeError, gpu.CUDADriverError])
def test_exceptions_are_runtime_errors_and_can_be_pickled(cls: type[gpu.CUDARuntimeError]) -> None:
    error = cls(2)
    assert isinstance(error, RuntimeError)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.status, str(again)) == (cls, 2, str(error))


def test_texts_have_a_name_and_a_message() -> None:
    assert str(gpu.CUDARuntimeError(2)) == "cudaErrorMemoryAllocation: out of memory"
    assert str(gpu.CUDADriverError(2)) == "CUDA_ERROR_OUT_OF_MEMORY: out of memory"
