# SPDX-License-Identifier: Apache-2.0
"""Resources that allocate memory of the host."""

from libc.stddef cimport size_t
from libcpp cimport bool
from libcpp.optional cimport optional

from rmm.librmm._device_memory_resource cimport device_memory_resource
from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource, resource_ptr
from rmm.pylibrmm.memory_resource._conversions cimport optional_pool_size, pool_size_of, raise_error, size_of

from rmm.pylibrmm.memory_resource._capabilities import _Pool, _Trimmable

__all__ = [
    "PinnedHostMemoryResource", "PinnedPoolMemoryResource", "RegisteredHostMemoryResource", "SamHeadroomMemoryResource",
    "SystemMemoryResource",
]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "pylibrmm/memory_resource/_host_resources.hpp" namespace "rmm_python" nogil:
    resource_ptr make_system() except +
    resource_ptr make_pinned_host() except +
    resource_ptr make_sam_headroom(size_t) except +
    resource_ptr make_pinned_pool(size_t, optional[size_t], bool, int, unsigned, bool) except +raise_error
    resource_ptr make_registered_host(bool, int, unsigned) except +
    optional[int] numa_node_of(device_memory_resource*)
    size_t pageable_bytes_of(device_memory_resource*)


cdef class SystemMemoryResource(DeviceMemoryResource):
    """A resource that allocates ordinary memory of the host.

    Raises
    ------
    RuntimeError
        If the device cannot use such memory.

    Examples
    --------
    >>> import rmm
    >>> try:
    ...     resource = rmm.mr.SystemMemoryResource()
    ... except RuntimeError:
    ...     resource = rmm.mr.ManagedMemoryResource()
    """

    def __cinit__(self):
        self.c_obj = make_system()

    def __init__(self):
        """Takes no arguments. Without this method, `__init__` would ignore arguments."""


cdef class SamHeadroomMemoryResource(DeviceMemoryResource):
    """A resource that allocates ordinary memory of the host and keeps it on the device, except for a headroom.

    Parameters
    ----------
    headroom : int or str
        The bytes of the device to leave free.

    Raises
    ------
    RuntimeError
        If the device cannot use such memory.

    Examples
    --------
    >>> import rmm
    >>> try:
    ...     resource = rmm.mr.SamHeadroomMemoryResource(1 << 30)
    ... except RuntimeError:  # the device cannot use such memory
    ...     resource = rmm.mr.ManagedMemoryResource()
    """

    def __cinit__(self, headroom):
        self.c_obj = make_sam_headroom(size_of(headroom))


cdef class PinnedHostMemoryResource(DeviceMemoryResource):
    """A resource that allocates page-locked memory of the host, which devices can use.

    Examples
    --------
    >>> import rmm
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=rmm.mr.PinnedHostMemoryResource())
    """

    def __cinit__(self):
        self.c_obj = make_pinned_host()

    def __init__(self):
        """Takes no arguments. Without this method, `__init__` would ignore arguments."""


cdef class RegisteredHostMemoryResource(DeviceMemoryResource):
    """A resource that allocates large blocks of page-locked memory of the host, and creates their pages with several threads. Use it
    below a pool.

    Parameters
    ----------
    near_device : bool, optional
        Whether to use the NUMA node nearest to the current device.
    numa_node : int, optional
        The NUMA node to use; not together with `near_device`.
    threads : int, optional
        The most threads that make pages; 0 lets the library choose.

    Raises
    ------
    ValueError
        If `numa_node` is negative.
    RuntimeError
        If both `near_device` and `numa_node` are given.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.RegisteredHostMemoryResource(), "2MiB")
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
    """

    def __cinit__(self, *, bool near_device=False, numa_node=None, unsigned threads=0):
        self.c_obj = make_registered_host(near_device, checked_numa_node(numa_node), threads)

    @property
    def numa_node(self):
        """The NUMA node of the memory; None if the system chooses."""
        cdef optional[int] node = numa_node_of(self.usable())
        return node.value() if node.has_value() else None


cdef int checked_numa_node(node) except -2:
    """Returns the number of a NUMA node; -1 for None."""
    cdef int number = -1 if node is None else node
    if node is not None and number < 0:
        raise ValueError(f"there is no NUMA node {node}")
    return number


cdef class PinnedPoolMemoryResource(DeviceMemoryResource, _Pool, _Trimmable):
    """A pool of page-locked memory of the host, whose pages are created by several threads.

    Parameters
    ----------
    initial_pool_size : int or str
        The bytes to take when the pool is made. An int must be a multiple of 256. A str is rounded up to one.
    maximum_pool_size : int or str, optional
        The most bytes to take; no limit if None.
    near_device : bool, optional
        Whether to use the NUMA node nearest to the current device.
    numa_node : int, optional
        The NUMA node to use; not together with `near_device`.
    threads : int, optional
        The most threads that make pages; 0 lets the library choose.
    allow_pageable : bool, optional
        Whether to take pageable memory, and log a warning, if no more memory can be locked. Copies from and to it are slower.
        Kernels cannot use it, unless the device can use the host's ordinary memory.

    Raises
    ------
    ValueError
        If `numa_node` is negative.
    RuntimeError
        If both `near_device` and `numa_node` are given.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.PinnedPoolMemoryResource("2MiB")
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
    """

    def __cinit__(
        self,
        initial_pool_size,
        maximum_pool_size=None,
        *,
        bool near_device=False,
        numa_node=None,
        unsigned threads=0,
        bool allow_pageable=False,
    ):
        cdef size_t c_initial = pool_size_of(initial_pool_size)
        cdef optional[size_t] c_maximum = optional_pool_size(maximum_pool_size)
        cdef int c_node = checked_numa_node(numa_node)
        with nogil:
            self.c_obj = make_pinned_pool(c_initial, c_maximum, near_device, c_node, threads, allow_pageable)

    @property
    def pageable_bytes(self):
        """The bytes of the pool's blocks that are pageable, because no more memory could be locked."""
        return pageable_bytes_of(self.usable())
