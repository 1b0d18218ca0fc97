# SPDX-License-Identifier: Apache-2.0
"""Resources that take memory of devices from the runtime."""

from cuda.bindings.cyruntime cimport cudaMemPool_t
from libc.stddef cimport size_t
from libc.stdint cimport uintptr_t
from libcpp cimport bool
from libcpp.optional cimport optional

from rmm.librmm.memory_resource cimport (
    allocation_handle_type,
    cuda_async_managed_memory_resource,
    cuda_async_memory_resource,
    cuda_async_view_memory_resource,
)
from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource, resource_ptr
from rmm.pylibrmm.memory_resource._conversions cimport optional_size, raise_error

from rmm.pylibrmm.memory_resource._capabilities import _Trimmable

__all__ = ["CudaAsyncMemoryResource", "CudaAsyncViewMemoryResource", "CudaMemoryResource", "ManagedMemoryResource"]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "pylibrmm/memory_resource/_owned_resources.hpp" namespace "rmm_python" nogil:
    resource_ptr make_cuda "rmm_python::make_resource<rmm::mr::cuda_memory_resource>"() except +
    resource_ptr make_managed "rmm_python::make_resource<rmm::mr::managed_memory_resource>"() except +
    resource_ptr make_cuda_async "rmm_python::make_resource<rmm::mr::cuda_async_memory_resource>"(
        optional[size_t], optional[size_t], allocation_handle_type) except +raise_error
    resource_ptr make_cuda_async_view "rmm_python::make_resource<rmm::mr::cuda_async_view_memory_resource>"(
        cudaMemPool_t) except +
    resource_ptr make_cuda_async_managed "rmm_python::make_resource<rmm::mr::cuda_async_managed_memory_resource>"() except +


cdef class CudaMemoryResource(DeviceMemoryResource):
    """Memory of `cudaMalloc`. What a device has if nothing else is set."""

    def __cinit__(self):
        self.c_obj = make_cuda()


cdef class ManagedMemoryResource(DeviceMemoryResource):
    """Managed memory: host and devices use the same addresses, and pages migrate to who touches them."""

    def __cinit__(self):
        self.c_obj = make_managed()


cdef class CudaAsyncMemoryResource(DeviceMemoryResource, _Trimmable):
    """A pool of the driver's (`cudaMallocAsync`), made for this resource.

    Parameters
    ----------
    initial_pool_size:
        Bytes that the pool takes at once, as int or string.
    release_threshold:
        Bytes that it keeps when it is synchronised; all of the device's if None.
    enable_ipc:
        Whether its memory can be exported by file descriptor. RuntimeError where that is not supported.
    enable_fabric:
        Whether it can be exported by fabric handle.
    """

    def __cinit__(self, initial_pool_size=None, release_threshold=None, bool enable_ipc=False, bool enable_fabric=False):
        cdef optional[size_t] c_initial = optional_size(initial_pool_size)
        cdef optional[size_t] c_threshold = optional_size(release_threshold)
        cdef int handles = 0
        if enable_ipc:
            handles |= <int>allocation_handle_type.posix_file_descriptor
        if enable_fabric:
            handles |= <int>allocation_handle_type.fabric
        try:
            self.c_obj = make_cuda_async(c_initial, c_threshold, <allocation_handle_type>handles)
        except RuntimeError as error:
            # the texts of several releases: callers look at the end of it
            text = str(error).removesuffix(" by the device")
            raise RuntimeError(text) from None

    def pool_handle(self):
        """Handle of the driver's pool."""
        return <uintptr_t>(<cuda_async_memory_resource*>self.usable())[0].pool_handle()


cdef class CudaAsyncViewMemoryResource(DeviceMemoryResource):
    """A pool of the driver's that someone else owns.

    Parameters
    ----------
    pool_handle:
        A `cudaMemPool_t` or `CUmemoryPool` of CUDA Python. ValueError for anything else.
    """

    def __cinit__(self, pool_handle):
        if type(pool_handle).__name__ not in ("cudaMemPool_t", "CUmemoryPool"):
            raise ValueError(f"pool_handle must be a cudaMemPool_t or a CUmemoryPool of CUDA Python, not {type(pool_handle)}")
        cdef uintptr_t handle = pool_handle.__int__()
        self._owner = pool_handle
        self.c_obj = make_cuda_async_view(<cudaMemPool_t>handle)

    def pool_handle(self):
        """Handle of the driver's pool."""
        return <uintptr_t>(<cuda_async_view_memory_resource*>self.usable())[0].pool_handle()


cdef class CudaAsyncManagedMemoryResource(DeviceMemoryResource):
    """The driver's pool of managed memory. RuntimeError where there is none (it needs CUDA 13)."""

    def __cinit__(self):
        self.c_obj = make_cuda_async_managed()

    def pool_handle(self):
        """Handle of the driver's pool."""
        return <uintptr_t>(<cuda_async_managed_memory_resource*>self.usable())[0].pool_handle()
