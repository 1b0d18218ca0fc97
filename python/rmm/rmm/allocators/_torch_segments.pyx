# SPDX-License-Identifier: Apache-2.0
"""Sources of memory segments for PyTorch's own allocator."""

from libc.stddef cimport size_t
from libc.stdint cimport uintptr_t

from rmm.librmm.tag_scope cimport tag as cpp_tag
from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource, resource_ptr
from rmm.pylibrmm.memory_resource._conversions cimport raise_error
from rmm.pylibrmm.scopes cimport tag

__all__ = ["SegmentSource"]


cdef extern from "librmm/_torch_segments.hpp" namespace "rmm_python" nogil:
    size_t add_segment_source(resource_ptr, cpp_tag) except +raise_error
    void remove_segment_source(size_t) noexcept
    uintptr_t segment_allocation_function(size_t) noexcept
    uintptr_t segment_deallocation_function() noexcept


cdef class SegmentSource:
    """A source of segments: a resource, and the tag of the segments. Any thread may allocate them.

    Segments stay valid when the source is gone, and keep the resource alive.

    Parameters
    ----------
    resource : DeviceMemoryResource
        The resource.
    tag : rmm.tag
        The tag.
    """

    cdef size_t _number
    cdef bint _is_made

    def __cinit__(self, DeviceMemoryResource resource not None, tag tag not None):
        resource.usable()
        self._number = add_segment_source(resource.c_obj, tag._tag)
        self._is_made = True

    def __dealloc__(self):
        if self._is_made:
            remove_segment_source(self._number)

    @property
    def allocate_address(self):
        """The address of the allocation function `void* (size_t bytes, int device, cudaStream_t)`."""
        return segment_allocation_function(self._number)

    @property
    def deallocate_address(self):
        """The address of the deallocation function `void (void*, size_t bytes, int device, cudaStream_t)`."""
        return segment_deallocation_function()
