# SPDX-License-Identifier: Apache-2.0
"""The base classes of all resources."""

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport uintptr_t

from rmm.librmm._device_memory_resource cimport device_memory_resource
from rmm.librmm.cuda_stream_view cimport cuda_stream_view
from rmm.pylibrmm.logger cimport connect_log
from rmm.pylibrmm.memory_resource._conversions cimport raise_error
from rmm.pylibrmm.stream cimport Stream
from rmm.pylibrmm.utils cimport as_stream

from rmm.pylibrmm._attributes import describe_attribute
from rmm.pylibrmm.stream import DEFAULT_STREAM

__all__ = ["DeviceMemoryResource", "UpstreamResourceAdaptor"]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "pylibrmm/memory_resource/_lent_callables.hpp" namespace "rmm_python":
    cdef cppclass lent_functions "rmm_python::lent_callables":
        void own()


cdef extern from "pylibrmm/_static_types.hpp" namespace "rmm_python":
    void reference_static_type(object value)


class _Finalizer:
    """Calls `action` when the garbage collector finalizes the owner of this object, before it clears the functions of a cycle.

    A Python class, because with the stable ABI Cython does not call `__del__` of extension classes. `action` must not refer to the
    owner.
    """

    __slots__ = ("action",)

    def __init__(self, action):
        self.action = action

    def __del__(self):
        self.action()


cdef extern from *:
    immediate_resource* as_immediate "dynamic_cast<rmm::mr::detail::immediate_resource*>"(device_memory_resource*)


cdef extern from "rmm/mr/device_memory_resource.hpp" namespace "rmm::mr" nogil:
    # The public declaration of device_memory_resource cannot raise errors with reports.
    cdef cppclass reporting_resource "rmm::mr::device_memory_resource":
        void* allocate(size_t bytes, cuda_stream_view stream) except +raise_error


connect_log()


# The garbage collector must not clear resources: C++ calls the functions that they hold, and collected buffers still need their
# resource. Cycles are broken without that, because functions, lists and dictionaries are cleared.
@cython.no_gc_clear
cdef class DeviceMemoryResource:
    """The base class of resources that allocate device memory.

    A resource lives as long as any `DeviceBuffer` from it, any memory of a framework from it (`rmm.allocators`), and any resource
    over it. An address from `allocate` does not keep it alive: keep the resource until you have deallocated the address.

    Examples
    --------
    >>> import rmm
    >>> resource = rmm.mr.CudaMemoryResource()
    >>> isinstance(resource, rmm.mr.DeviceMemoryResource)
    True
    >>> ptr = resource.allocate(1000)
    >>> resource.deallocate(ptr, 1000)
    """

    def __dealloc__(self):
        reference_static_type(self)
        self.keep_lent()
        with nogil:
            self.c_obj.reset()

    cdef void keep_lent(self) noexcept:
        """Makes C++ hold its lent functions if the C++ resource lives longer than this object, for example below an adaptor."""
        if self._lent.get() != NULL and self.c_obj.use_count() > 1:
            (<lent_functions*>self._lent.get()).own()

    cdef void lend_from_now(self, lent_ptr lent) noexcept:
        """Replaces the functions lent to C++. C++ holds the old ones, because threads may be about to call them."""
        if self._lent.get() != NULL:
            (<lent_functions*>self._lent.get()).own()
        self._lent = lent

    cdef device_memory_resource* get_mr(self) noexcept nogil:
        return self.c_obj.get()

    def allocate(self, size_t nbytes, Stream stream=DEFAULT_STREAM):
        """Allocate memory that work on `stream` may use immediately.

        Parameters
        ----------
        nbytes : int
            The bytes to allocate.
        stream : rmm.pylibrmm.stream.Stream, optional
            The stream.

        Returns
        -------
        int
            The address.

        Raises
        ------
        MemoryError
            If there is not enough memory. A pool raises `rmm.ReportedMemoryError`, whose `report` is a
            `rmm.memory_report.MemoryReport`.

        Examples
        --------
        >>> import rmm
        >>> resource = rmm.mr.CudaMemoryResource()
        >>> ptr = resource.allocate(1000)
        >>> resource.deallocate(ptr, 1000)
        """
        cdef cuda_stream_view c_stream = as_stream(stream).view()
        cdef void* ptr
        with nogil:
            ptr = (<reporting_resource*>self.usable())[0].allocate(nbytes, c_stream)
        return <uintptr_t>ptr

    def deallocate(self, uintptr_t ptr, size_t nbytes, Stream stream=DEFAULT_STREAM):
        """Free memory in the order of `stream`.

        Parameters
        ----------
        ptr : int
            The address that `allocate` returned.
        nbytes : int
            The bytes that were allocated.
        stream : rmm.pylibrmm.stream.Stream, optional
            A stream that is ordered after the work that uses the memory.

        Examples
        --------
        >>> import rmm
        >>> resource = rmm.mr.CudaMemoryResource()
        >>> pointer = resource.allocate(1000)
        >>> resource.deallocate(pointer, 1000)
        """
        cdef cuda_stream_view c_stream = as_stream(stream).view()
        with nogil:
            self.usable()[0].deallocate(<void*>ptr, nbytes, c_stream)

    cdef device_memory_resource* usable(self) except NULL nogil:
        """Returns the C++ resource. Raises TypeError if there is none, as in the base class, or if the constructor failed."""
        if self.c_obj.get() == NULL:
            with gil:
                raise TypeError(f"{type(self).__name__} is not a resource: use one of the classes derived from it")
        return self.c_obj.get()

    cdef immediate_resource* immediate(self) noexcept:
        """Returns the interface for calls that do not wait, for which the GIL may be held; NULL if there is none. Cached."""
        cdef device_memory_resource* mr = self.c_obj.get()
        if self._asked != mr:
            self._immediate = as_immediate(mr)
            self._asked = mr
        return self._immediate

    def __repr__(self):
        return f"{type(self).__name__}()"


@cython.no_gc_clear
cdef class UpstreamResourceAdaptor(DeviceMemoryResource):
    """The base class of resources that take their memory from another resource, which they keep alive.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.

    Examples
    --------
    >>> import rmm
    >>> upstream = rmm.mr.CudaMemoryResource()
    >>> adaptor = rmm.mr.StatisticsResourceAdaptor(upstream)
    >>> isinstance(adaptor, rmm.mr.UpstreamResourceAdaptor), adaptor.get_upstream() is upstream
    (True, True)
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, *args, **kwargs):
        if upstream_mr is None:
            raise Exception("Argument `upstream_mr` must not be None")
        upstream_mr.usable()
        self.upstream_mr = upstream_mr

    def __dealloc__(self):
        self.keep_lent()  # C++ would find no resource any more when the base class does this
        with nogil:
            self.c_obj.reset()  # before `upstream_mr`, because this may be the last owner of it

    cpdef DeviceMemoryResource get_upstream(self):
        """Return the resource that memory is taken from.

        Returns
        -------
        DeviceMemoryResource
            The resource.

        Examples
        --------
        >>> import rmm
        >>> upstream = rmm.mr.CudaMemoryResource()
        >>> rmm.mr.LimitingResourceAdaptor(upstream, "1MiB").get_upstream() is upstream
        True
        """
        return self.upstream_mr

    def __repr__(self):
        return f"{type(self).__name__}({self.upstream_mr!r})"


describe_attribute(UpstreamResourceAdaptor, "upstream_mr", "The resource that memory is taken from.")
