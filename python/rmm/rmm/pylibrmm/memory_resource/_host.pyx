# SPDX-License-Identifier: Apache-2.0
"""Resources that take memory of the host."""

from libc.stddef cimport size_t
from libcpp cimport bool
from libcpp.optional cimport optional

from rmm.librmm._device_memory_resource cimport device_memory_resource
from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource, resource_ptr
from rmm.pylibrmm.memory_resource._conversions cimport optional_pool_size, pool_size_of, raise_error, size_of

from rmm.pylibrmm.memory_resource._capabilities import _Pool

__all__ = [
    "PinnedHostMemoryResource", "PinnedPoolMemoryResource", "RegisteredHostMemoryResource", "SamHeadroomMemoryResource",
    "SystemMemoryResource",
]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "rmm/mr/registered_host_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass registered_host_memory_resource(device_memory_resource):
        optional[int] numa_node()


cdef extern from "pylibrmm/memory_resource/_host_resources.hpp" namespace "rmm_python" nogil:
    resource_ptr make_system "rmm_python::make_resource<rmm::mr::system_memory_resource>"() except +
    resource_ptr make_pinned_host "rmm_python::make_resource<rmm::mr::pinned_host_memory_resource>"() except +
    resource_ptr make_sam_headroom "rmm_python::make_resource<rmm::mr::sam_headroom_memory_resource>"(size_t) except +
    resource_ptr make_pinned_pool(size_t, optional[size_t], bool, int, unsigned) except +raise_error
    resource_ptr make_registered_host(bool, int, unsigned) except +


cdef class SystemMemoryResource(DeviceMemoryResource):
    """Memory of the host's own allocator, on devices that can use it. RuntimeError on others."""

    def __cinit__(self):
        self.c_obj = make_system()


cdef class SamHeadroomMemoryResource(DeviceMemoryResource):
    """Memory of the host's own allocator, placed on the device as long as `headroom` bytes of its memory stay free."""

    def __cinit__(self, headroom):
        self.c_obj = make_sam_headroom(size_of(headroom))


cdef class PinnedHostMemoryResource(DeviceMemoryResource):
    """Page-locked memory of the host, which devices can use."""

    def __cinit__(self):
        self.c_obj = make_pinned_host()


cdef class RegisteredHostMemoryResource(DeviceMemoryResource):
    """Page-locked memory of the host in large blocks, ready soon: several threads make its pages. Meant for a pool over it.

    Parameters
    ----------
    near_device:
        Whether to take memory of the NUMA node that is nearest to the current device.
    numa_node:
        The node to take memory of instead.
    threads:
        How many threads make the pages at most; 0 is as many as is worth it.
    """

    def __cinit__(self, *, bool near_device=False, numa_node=None, unsigned threads=0):
        self.c_obj = make_registered_host(near_device, checked_numa_node(numa_node), threads)

    @property
    def numa_node(self):
        """The node that memory is taken from; None if that is left to the system."""
        cdef optional[int] node = (<registered_host_memory_resource*>self.usable())[0].numa_node()
        return node.value() if node.has_value() else None


cdef int checked_numa_node(node) except -2:
    """-1 for None."""
    cdef int number = -1 if node is None else node
    if node is not None and number < 0:
        raise ValueError(f"there is no NUMA node {node}")
    return number


cdef class PinnedPoolMemoryResource(DeviceMemoryResource, _Pool):
    """A pool of page-locked memory of the host that is ready soon: several threads make its pages.

    Parameters
    ----------
    initial_pool_size:
        Bytes that it takes at once, as int or string. A string is rounded up to a multiple of 256, which an int has to be.
    maximum_pool_size:
        Bytes that it takes at most, likewise; no limit if None.
    near_device:
        Whether to take memory of the NUMA node that is nearest to the current device.
    numa_node:
        The node to take memory of instead.
    threads:
        How many threads make the pages at most; 0 is as many as is worth it.
    """

    def __cinit__(
        self, initial_pool_size, maximum_pool_size=None, *, bool near_device=False, numa_node=None, unsigned threads=0
    ):
        cdef size_t c_initial = pool_size_of(initial_pool_size)
        cdef optional[size_t] c_maximum = optional_pool_size(maximum_pool_size)
        cdef int c_node = checked_numa_node(numa_node)
        with nogil:
            self.c_obj = make_pinned_pool(c_initial, c_maximum, near_device, c_node, threads)
