# SPDX-License-Identifier: Apache-2.0

from rmm.pylibrmm.memory_resource._device cimport CudaAsyncManagedMemoryResource
