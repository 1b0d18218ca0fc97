# SPDX-License-Identifier: Apache-2.0
"""Resources that allocate memory of devices from the CUDA runtime."""

from cuda.bindings.cyruntime cimport cudaMemPool_t
from libc.stddef cimport size_t
from libc.stdint cimport uintptr_t
from libcpp cimport bool
from libcpp.optional cimport optional

from rmm.librmm._driver_pools cimport (
    allocation_handle_type,
    cuda_async_managed_memory_resource,
    cuda_async_memory_resource,
    cuda_async_view_memory_resource,
)
from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource, resource_ptr
from rmm.pylibrmm.memory_resource._conversions cimport optional_size, raise_error

from rmm.pylibrmm.memory_resource._capabilities import _Keeper, _Trimmable

__all__ = ["CudaAsyncMemoryResource", "CudaAsyncViewMemoryResource", "CudaMemoryResource", "ManagedMemoryResource"]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "rmm/mr/cuda_memory_resource.hpp":
    pass


cdef extern from "rmm/mr/managed_memory_resource.hpp":
    pass


cdef extern from "pylibrmm/memory_resource/_owned_resources.hpp" namespace "rmm_python" nogil:
    resource_ptr make_cuda "rmm_python::make_resource<rmm::mr::cuda_memory_resource>"() except +
    resource_ptr make_managed "rmm_python::make_resource<rmm::mr::managed_memory_resource>"() except +
    resource_ptr make_cuda_async "rmm_python::make_resource<rmm::mr::cuda_async_memory_resource>"(
        optional[size_t], optional[size_t], allocation_handle_type) except +raise_error
    resource_ptr make_cuda_async_view "rmm_python::make_resource<rmm::mr::cuda_async_view_memory_resource>"(
        cudaMemPool_t) except +
    resource_ptr make_cuda_async_managed "rmm_python::make_resource<rmm::mr::cuda_async_managed_memory_resource>"() except +


cdef extern from "rmm/detail/cuda/memory_pool.hpp" namespace "rmm::detail" nogil:
    void set_release_threshold(cudaMemPool_t, optional[size_t]) except +


cdef class CudaMemoryResource(DeviceMemoryResource):
    """A resource that allocates with `cudaMalloc`. Devices without another resource use it.

    Examples
    --------
    >>> import rmm
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=rmm.mr.CudaMemoryResource())
    """

    def __cinit__(self):
        self.c_obj = make_cuda()

    def __init__(self):
        """Takes no arguments. Without this method, `__init__` would ignore arguments."""


cdef class ManagedMemoryResource(DeviceMemoryResource):
    """A resource that allocates managed memory, whose pages migrate between host and devices.

    Examples
    --------
    >>> import rmm
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=rmm.mr.ManagedMemoryResource())
    """

    def __cinit__(self):
        self.c_obj = make_managed()

    def __init__(self):
        """Takes no arguments. Without this method, `__init__` would ignore arguments."""


cdef class CudaAsyncMemoryResource(DeviceMemoryResource, _Keeper, _Trimmable):
    """A resource that allocates from its own pool of the driver (`cudaMallocAsync`).

    UCX, as Dask uses it, sends this memory fast only with an option: see docs/dask.md.

    Parameters
    ----------
    initial_pool_size : int or str, optional
        The bytes that the pool takes when it is made.
    release_threshold : int or str, optional
        The bytes that the pool keeps when the program synchronises; all memory of the device if None.
    enable_ipc : bool, optional
        Whether memory can be exported by file descriptors.
    enable_fabric : bool, optional
        Whether memory can be exported by fabric handles.

    Raises
    ------
    RuntimeError
        If the device has no such pools, or the memory cannot be exported in the requested way.

    Examples
    --------
    >>> import rmm
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=rmm.mr.CudaAsyncMemoryResource())
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
            # the text of other releases of RMM lacks these words, and programs compare it
            text = str(error).removesuffix(" by the device")
            raise RuntimeError(text) from None

    def pool_handle(self):
        """Return the handle of the driver's pool.

        Returns
        -------
        int
            The handle.

        Examples
        --------
        >>> import rmm
        >>> rmm.mr.CudaAsyncMemoryResource().pool_handle() != 0
        True
        """
        return <uintptr_t>(<cuda_async_memory_resource*>self.usable())[0].pool_handle()


cdef class CudaAsyncViewMemoryResource(DeviceMemoryResource, _Keeper):
    """A resource that allocates from a pool of the driver. It does not own the pool: keep the pool alive as long as the resource.

    Parameters
    ----------
    pool_handle : cudaMemPool_t or CUmemoryPool of CUDA Python
        The pool.

    Raises
    ------
    ValueError
        If `pool_handle` has another type.

    Examples
    --------
    >>> import rmm
    >>> from cuda.bindings import runtime
    >>> owner = rmm.mr.CudaAsyncMemoryResource()
    >>> view = rmm.mr.CudaAsyncViewMemoryResource(runtime.cudaMemPool_t(owner.pool_handle()))
    >>> view.pool_handle() == owner.pool_handle()
    True
    """

    def __cinit__(self, pool_handle):
        if type(pool_handle).__name__ not in ("cudaMemPool_t", "CUmemoryPool"):
            raise ValueError(f"pool_handle must be a cudaMemPool_t or a CUmemoryPool of CUDA Python, not {type(pool_handle)}")
        cdef uintptr_t handle = pool_handle.__int__()
        self._owner = pool_handle
        self.c_obj = make_cuda_async_view(<cudaMemPool_t>handle)

    def pool_handle(self):
        """Return the handle of the driver's pool.

        Returns
        -------
        int
            The handle.

        Examples
        --------
        >>> import rmm
        >>> from cuda.bindings import runtime
        >>> pool = rmm.mr.CudaAsyncMemoryResource()
        >>> view = rmm.mr.CudaAsyncViewMemoryResource(runtime.cudaMemPool_t(pool.pool_handle()))
        >>> view.pool_handle() == pool.pool_handle()
        True
        """
        return <uintptr_t>(<cuda_async_view_memory_resource*>self.usable())[0].pool_handle()


cdef class CudaAsyncManagedMemoryResource(DeviceMemoryResource, _Keeper):
    """A resource that allocates managed memory from the driver's own pool, which the whole process shares.

    Parameters
    ----------
    release_threshold : int or str, optional
        The bytes that the pool keeps when the program synchronises; as much memory as the device has if None. Each new resource sets
        it for all users of the pool, so the last one counts.

    Raises
    ------
    RuntimeError
        If the device, the driver or the runtime does not support it. It needs CUDA 13.

    Examples
    --------
    >>> import rmm
    >>> try:
    ...     resource = rmm.mr.experimental.CudaAsyncManagedMemoryResource()
    ... except RuntimeError:
    ...     resource = rmm.mr.ManagedMemoryResource()
    """

    def __init__(self, release_threshold=None):
        """Sets the threshold. `__cinit__` cannot take it, because derived classes may have constructors with other arguments."""
        cdef optional[size_t] c_threshold = optional_size(release_threshold)
        if c_threshold.has_value():  # otherwise __cinit__ has set it
            set_release_threshold(
                (<cuda_async_managed_memory_resource*>self.usable())[0].pool_handle(), c_threshold)

    def __cinit__(self):
        self.c_obj = make_cuda_async_managed()

    def pool_handle(self):
        """Return the handle of the driver's pool.

        Returns
        -------
        int
            The handle.
        """
        return <uintptr_t>(<cuda_async_managed_memory_resource*>self.usable())[0].pool_handle()
