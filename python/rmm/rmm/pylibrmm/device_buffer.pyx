# SPDX-License-Identifier: Apache-2.0
"""Buffers of device memory."""

cimport cython
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_Clear, PyErr_Occurred
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GetItem, PyTuple_Size
from cuda.bindings.cyruntime cimport cudaStream_t
from cython.operator cimport dereference
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libcpp cimport bool
from libcpp.memory cimport unique_ptr
from libcpp.string cimport string
from libcpp.utility cimport move
from libcpp.vector cimport vector

from rmm.librmm._device_memory_resource cimport device_memory_resource
from rmm.librmm.cuda_stream_view cimport cuda_stream_view
from rmm.librmm.device_buffer cimport device_buffer, prefetch as cpp_prefetch
from rmm.librmm.per_device_resource cimport cuda_device_id
from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource, immediate_resource
from rmm.pylibrmm.memory_resource._conversions cimport raise_error
from rmm.pylibrmm.memory_resource._registry cimport get_current_device_resource, get_per_device_resource
from rmm.pylibrmm.stream cimport Stream, keep_if_unused
from rmm.pylibrmm.utils cimport as_stream

from operator import index

from rmm.pylibrmm._attributes import describe_attribute
from rmm.pylibrmm.stream import DEFAULT_STREAM

__all__ = ["DeviceBuffer", "ImportedMemory", "copy_device_to_ptr", "copy_host_to_ptr", "copy_ptr_to_host", "to_device"]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "pylibrmm/_static_types.hpp" namespace "rmm_python":
    void reference_static_type(object value)


cdef extern from "pylibrmm/_direct_calls.hpp" namespace "rmm_python":
    size_t positional_arguments(size_t count)
    bool is_changed(PyObject* cls)
    object call_with_dict(PyObject* cls, PyObject* const* arguments, size_t count, PyObject* names)
    bool set_direct_call(object cls, object (*function)(PyObject*, PyObject* const*, size_t, PyObject*)) noexcept


cdef extern from "Python.h":
    size_t PyLong_AsSize_t(PyObject*)  # Cython's declaration would raise exceptions


cdef extern from "rmm/detail/cuda/device.hpp" namespace "rmm::detail" nogil:
    int c_current_device "rmm::detail::current_device"() noexcept


cdef extern from "pylibrmm/memory_resource/_registry.hpp" namespace "rmm_python" nogil:
    int c_known_current_device "rmm_python::current_device"() except +


cdef extern from "pylibrmm/_buffer_location.hpp" namespace "rmm_python" nogil:
    int device_of(const void* ptr) except +
    void make_wait(cudaStream_t waiting, int waiting_device, cudaStream_t awaited, int awaited_device) except +
    void copy_in_order(
        void* destination, const void* source, size_t size, cuda_stream_view stream, int device, bool waits) except +
    unique_ptr[device_buffer] copy_of(
        const device_buffer& source, cuda_stream_view stream, device_memory_resource* resource) except +raise_error


cdef extern from "rmm/mr/shared_memory.hpp" namespace "rmm::mr" nogil:
    cdef struct shared_block:
        size_t offset_bytes
        size_t bytes
        size_t chunk_bytes


cdef extern from "pylibrmm/_imported_memory.hpp" namespace "rmm_python" nogil:
    cdef cppclass mapped_memory:
        void* data()
        size_t size()
        int device()

    unique_ptr[mapped_memory] import_memory(
        int device, const shared_block& block, const vector[int]& descriptors, const vector[string]& fabric_handles) except +


cdef extern from "rmm/detail/stream/identified_stream.hpp" namespace "rmm::detail" nogil:
    cdef cppclass identified_stream:
        identified_stream(cuda_stream_view stream, uint64_t identity, int current_device)


cdef extern from "rmm/device_buffer.hpp" namespace "rmm" nogil:
    # The public declaration of device_buffer cannot raise errors with reports.
    cdef cppclass reporting_buffer "rmm::device_buffer":
        reporting_buffer(cuda_device_id device, cuda_stream_view stream, device_memory_resource* mr) except +raise_error
        reporting_buffer(
            const void* source, size_t size, cuda_stream_view stream, device_memory_resource* mr) except +raise_error
        void reserve(size_t new_capacity, cuda_stream_view stream) except +raise_error
        void resize(size_t new_size, cuda_stream_view stream) except +raise_error
        bool try_allocate_nonblocking(size_t size, identified_stream stream, immediate_resource& source)
        bool try_deallocate_nonblocking(device_memory_resource* resource, immediate_resource& to)


cdef extern from "pylibrmm/_dlpack.hpp" namespace "rmm_python":
    cdef struct dl_device:
        int32_t type
        int32_t id

    cdef struct dl_tensor:
        void* data
        dl_device device
        uint64_t byte_offset

    const int32_t dl_cpu
    const int32_t dl_cuda
    object export_bytes(object owner, void* data, size_t size, int device, bool versioned, bool is_copy) except +
    const dl_tensor* tensor_in(object capsule)
    int64_t contiguous_bytes(const dl_tensor& tensor)


# A C variable, which needs no look-up.
cdef Stream _default_stream = DEFAULT_STREAM


cdef void copy(
    void* destination, const void* source, size_t size, Stream stream, int device=-1, bool waits=False) except *:
    """Copies between any two places, in the order of `stream`. If that is a default stream, `device` says of which device.

    Returns without waiting, unless `waits` is set or the stream is the legacy default stream.
    """
    cdef cuda_stream_view c_stream = stream.view()
    try:
        with nogil:
            copy_in_order(destination, source, size, c_stream, device, waits)
    except RuntimeError as error:
        raise RuntimeError(f"Memcpy failed with error: {error}") from None


cdef tuple integers_of(object value, str name):
    try:
        return tuple([index(each) for each in value])
    except TypeError:
        raise TypeError(f"{name} of __cuda_array_interface__ has to be a tuple of ints, and is {value!r}") from None


cdef object item_size_of(object type_text):
    """Returns the bytes of an element of a NumPy type such as "<f4"."""
    if not isinstance(type_text, str):
        raise TypeError(f"typestr of __cuda_array_interface__ has to be a str, and is {type_text!r}")
    kind, digits = type_text[1:2], type_text[2:].partition("[")[0]  # a time type has its unit in brackets
    if type_text[:1] not in tuple("<>|=") or kind not in tuple("biufcmMSUV") or not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"typestr of __cuda_array_interface__ is {type_text!r}, which is no type of elements in memory")
    size = 0
    for digit in digits:  # int() of a str does not compile here: see _exact_integers.hpp
        size = 10 * size + ord(digit) - ord("0")
    return size * (4 if kind == "U" else 1)


cdef void expect_interface(object interface) except *:
    """Raises TypeError or ValueError unless `interface` has the keys of `__cuda_array_interface__` that this module reads."""
    if not isinstance(interface, dict):
        raise TypeError(f"__cuda_array_interface__ has to be a dict, and is {interface!r}")
    for name in ("shape", "typestr", "data"):
        if name not in interface:
            raise ValueError(f"__cuda_array_interface__ has no {name!r}")


cdef object address_of(object interface):
    data = interface["data"]
    if not isinstance(data, tuple) or len(data) != 2:
        raise TypeError(f"data of __cuda_array_interface__ has to be an address and whether it is read-only, and is {data!r}")
    return 0 if data[0] is None else integers_of(data[:1], "data")[0]


cdef object contiguous_size(object interface):
    """Returns the bytes of the array that `__cuda_array_interface__` describes. Raises ValueError unless it is contiguous."""
    shape = integers_of(interface["shape"], "shape")
    if any([extent < 0 for extent in shape]):
        raise ValueError(f"shape of __cuda_array_interface__ is {shape}: below 0")
    size = item_size_of(interface["typestr"])
    strides = interface.get("strides")
    if strides is not None:
        strides = integers_of(strides, "strides")
        if len(strides) != len(shape):
            raise ValueError(f"__cuda_array_interface__ has the shape {shape} and not as many strides: {strides}")
    is_contiguous = True
    for i in range(len(shape) - 1, -1, -1):
        if strides is not None and shape[i] != 1 and strides[i] != size:
            is_contiguous = False
        size *= shape[i]
    if size != 0 and not is_contiguous:
        raise ValueError(f"the array has to be contiguous, but has the shape {shape} and the strides {strides}")
    if size != 0 and address_of(interface) == 0:
        raise ValueError(f"the array has {size} bytes and no address")
    return size


@cython.no_gc_clear
cdef class DeviceBuffer:
    """A block of device memory. When the last reference to it is gone, it is freed in the order of `stream`.

    Parameters
    ----------
    ptr : int, optional
        The address of `size` bytes of host or device memory to copy. Without it, the memory is uninitialised. If `stream` is the
        default stream, the copy is complete on return. Otherwise, keep the source, unchanged, until the copy on `stream` is done.
    size : int, optional
        The bytes.
    stream : rmm.pylibrmm.stream.Stream, optional
        The stream. Work on it may use the memory immediately. The buffer keeps it alive.
    mr : rmm.mr.DeviceMemoryResource, optional
        The resource to allocate from; that of the current device if None. The buffer keeps it alive.

    Raises
    ------
    MemoryError
        If there is not enough memory. A pool raises `rmm.ReportedMemoryError`.

    Examples
    --------
    >>> import rmm
    >>> buffer = rmm.DeviceBuffer(size=5)
    >>> buffer.copy_from_host(b"Hello")
    >>> buffer.tobytes()
    b'Hello'
    """

    def __cinit__(
        self,
        *,
        uintptr_t ptr=0,
        size_t size=0,
        Stream stream=DEFAULT_STREAM,
        DeviceMemoryResource mr=None,
    ):
        cdef const void* source = <const void*>ptr
        self.stream = as_stream(stream)
        cdef int device = c_known_current_device() if mr is None else c_current_device()
        self.mr = get_per_device_resource(device) if mr is None else mr
        self.mr.usable()
        cdef cuda_stream_view c_stream = stream.view()
        if source == NULL or size == 0:
            self.c_obj.reset(  # needs no wait
                <device_buffer*>new reporting_buffer(cuda_device_id(device), c_stream, self.mr.get_mr()))
            if size != 0 and not fill_at_once(self, size, 0):
                fill_with(self, size)
            return
        with nogil:
            self.c_obj.reset(<device_buffer*>new reporting_buffer(source, size, c_stream, self.mr.get_mr()))
            if c_stream.is_default():
                c_stream.synchronize()

    def __dealloc__(self):
        reference_static_type(self)
        if self.c_obj.get() != NULL:
            if free_at_once(self):
                self.c_obj.reset()
            else:
                with nogil:
                    self.c_obj.reset()
        if self.stream is not _default_stream:
            keep_if_unused(<PyObject*>self.stream)

    def __len__(self):
        return self.c_size()

    def __sizeof__(self):
        return self.c_size()

    def __bytes__(self):
        return self.tobytes()

    def __repr__(self):
        return f"DeviceBuffer(size={self.c_size()}, ptr=0x{self.ptr:x}, stream={self.stream!r}, mr={self.mr!r})"

    @property
    def size(self):
        """Size in bytes."""
        return self.c_size()

    @property
    def nbytes(self):
        """Size in bytes."""
        return self.c_size()

    @property
    def ptr(self):
        """Address of the memory; 0 if there is none."""
        return <uintptr_t>self.c_data()

    @property
    def __cuda_array_interface__(self):
        return interface_of(<uintptr_t>self.c_data(), self.c_size())

    def __dlpack_device__(self):
        """Return the DLPack numbers of the kind of memory and of the device."""
        return (dl_cuda, device_of(self.c_data()))

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Return the memory as a DLPack capsule, which keeps the buffer alive.

        Parameters
        ----------
        stream : int, optional
            The handle of the stream that will use the memory. It waits for the stream of the buffer. 1 or None is the legacy default
            stream, 2 the default stream of the thread. With -1, no stream waits, and the caller orders the work.
        max_version : tuple of int, optional
            See the protocol.
        dl_device : tuple of int, optional
            See the protocol.
        copy : bool, optional
            See the protocol.

        Raises
        ------
        BufferError
            If `dl_device` is another device.
        ValueError
            If `stream` is not a handle of the protocol, such as 0.
        """
        cdef DeviceBuffer source = self
        cdef uintptr_t consumer
        cdef int c_device
        device = self.__dlpack_device__()
        c_device = device[1]
        if dl_device is not None and tuple(dl_device) != device:
            raise BufferError(f"the memory is on device {device}, and is not copied to {tuple(dl_device)}")
        if stream is not None and (stream == 0 or stream < -1):
            raise ValueError(f"{stream} is not the handle of a stream: 1 is the legacy default stream, 2 that of the thread")
        if copy:
            source = self.copy()
        if stream != -1:
            consumer = 1 if stream is None else stream
            wait_for(<cudaStream_t>consumer, c_device, source.stream.view().value(), device_of_buffer(source))
        return export_bytes(
            source, source.c_data(), source.c_size(), c_device, max_version is not None and max_version[0] >= 1, source is not self)

    def __copy__(self):
        return self.copy()

    def copy(self):
        """Return a new buffer with the same content, resource and stream.

        Returns
        -------
        DeviceBuffer
            The copy.

        Examples
        --------
        >>> import rmm
        >>> buffer = rmm.DeviceBuffer.to_device(b"abc")
        >>> buffer.copy().tobytes()
        b'abc'
        """
        cdef device_buffer* source = self.contents()
        cdef DeviceBuffer made = DeviceBuffer.__new__(DeviceBuffer, stream=self.stream, mr=self.mr)
        cdef cuda_stream_view c_stream = self.stream.view()
        cdef device_memory_resource* resource = self.mr.get_mr()
        with nogil:
            made.c_obj = copy_of(source[0], c_stream, resource)
        return made

    def __reduce__(self):
        return to_device, (self.copy_to_host(),)

    def prefetch(self, device=None, stream=None):
        """Start to move the memory to a device. Does nothing for memory that cannot migrate.

        Parameters
        ----------
        device : int, optional
            The number of the device; the current one if None.
        stream : rmm.pylibrmm.stream.Stream, optional
            The stream that orders the move; that of the buffer if None.

        Examples
        --------
        >>> import rmm
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=rmm.mr.ManagedMemoryResource())
        >>> buffer.prefetch()
        """
        cdef cuda_device_id destination = cuda_device_id(c_current_device() if device is None else <int>device)
        cdef void* ptr = self.c_data()
        cdef cuda_stream_view c_stream = (self.stream if stream is None else <Stream?>stream).view()
        cdef size_t size = self.c_size()
        with nogil:
            cpp_prefetch(ptr, size, destination, c_stream)

    @staticmethod
    cdef DeviceBuffer c_from_unique_ptr(
        unique_ptr[device_buffer] ptr,
        Stream stream=_default_stream,
        DeviceMemoryResource mr=None,
    ):
        """Wraps a C++ buffer from `mr`, or from the current device's resource. Waits if `stream` is the default stream."""
        cdef DeviceBuffer buffer = DeviceBuffer.__new__(
            DeviceBuffer, stream=stream, mr=get_current_device_resource() if mr is None else mr)
        buffer.c_obj = move(ptr)
        if stream.c_is_default():
            with nogil:
                stream.c_synchronize()
        return buffer

    @staticmethod
    cdef DeviceBuffer c_to_device(const unsigned char[::1] b, Stream stream=_default_stream):
        return to_device(b, stream)

    @staticmethod
    @cython.binding(True)  # otherwise it could not be pickled
    def to_device(const unsigned char[::1] b, Stream stream=DEFAULT_STREAM):
        """Make a buffer with a copy of host memory.

        Parameters
        ----------
        b : bytes-like
            A contiguous host buffer of bytes.
        stream : rmm.pylibrmm.stream.Stream, optional
            The stream of the copy and of the buffer. If it is the default stream, the copy is complete on return. Otherwise, keep
            page-locked `b`, unchanged, until the copy is done.

        Returns
        -------
        DeviceBuffer
            The buffer.

        Examples
        --------
        >>> import rmm
        >>> rmm.DeviceBuffer.to_device(b"abc").size
        3
        """
        return to_device(b, stream)

    @staticmethod
    @cython.binding(True)  # otherwise it could not be pickled
    def from_device(source, Stream stream=DEFAULT_STREAM, DeviceMemoryResource mr=None):
        """Make a buffer with a copy of an array of another library.

        Parameters
        ----------
        source : object
            An array with `__cuda_array_interface__` or `__dlpack__`, on a device or on the host, whose elements are contiguous. The
            copy waits for work that its library has queued.
        stream : rmm.pylibrmm.stream.Stream, optional
            The stream of the copy and of the buffer. The copy is complete on return.
        mr : rmm.mr.DeviceMemoryResource, optional
            The resource to allocate from; that of the current device if None.

        Returns
        -------
        DeviceBuffer
            The buffer.

        Raises
        ------
        TypeError
            If `source` has neither `__cuda_array_interface__` nor `__dlpack__`, or if the interface has values of wrong types.
        ValueError
            If the array is not contiguous, or its interface is wrong in another way.
        BufferError
            If `source` gives a DLPack capsule of an unknown version.

        Examples
        --------
        >>> import rmm
        >>> import numpy as np
        >>> rmm.DeviceBuffer.from_device(np.array([97, 98], dtype="u1")).tobytes()
        b'ab'
        """
        as_stream(stream)
        interface = getattr(source, "__cuda_array_interface__", None)
        if interface is not None:
            expect_interface(interface)
            # An interface without a stream, such as PyTorch's, gives no order of work; DLPack does.
            if "stream" in interface or not hasattr(source, "__dlpack__"):
                size = contiguous_size(interface)
                wait_for_producer(interface, stream, c_current_device())
                buffer = DeviceBuffer(ptr=address_of(interface), size=size, stream=stream, mr=mr)
                stream.synchronize()
                return buffer
        if hasattr(source, "__dlpack__"):
            return copy_of_tensor(source, stream, mr)
        raise TypeError(f"{type(source)} has neither __cuda_array_interface__ nor __dlpack__")

    cpdef copy_to_host(self, ary=None, Stream stream=_default_stream):
        """Copy the content to host memory.

        If `stream` is not the default stream and `ary` is page-locked, the copy may not be complete on return.

        Parameters
        ----------
        ary : bytes-like, optional
            A writable host buffer of bytes; a new NumPy array if None.
        stream : rmm.pylibrmm.stream.Stream, optional
            The stream of the copy.

        Returns
        -------
        bytes-like
            `ary`, or the new array.

        Raises
        ------
        ValueError
            If `ary` is too small.

        Examples
        --------
        >>> import rmm
        >>> rmm.DeviceBuffer.to_device(b"abc").copy_to_host(bytearray(3))
        bytearray(b'abc')
        """
        cdef unsigned char[::1] hb
        cdef size_t size = self.c_size()
        as_stream(stream)
        cdef bool is_new = ary is None
        if is_new:
            import numpy

            ary = numpy.empty((size,), dtype="u1")
        hb = ary
        if <size_t>hb.shape[0] < size:
            raise ValueError(f"Argument `ary` is too small. Need space for {size} bytes.")
        if size > 0:
            copy(&hb[0], self.c_data(), size, stream, device_of_buffer(self), is_new)
        return ary

    cpdef copy_from_host(self, ary, Stream stream=_default_stream):
        """Copy host memory to the beginning of the buffer.

        If `stream` is not the default stream, the copy may not be complete on return. Then keep page-locked `ary`, unchanged, until
        it is.

        Parameters
        ----------
        ary : bytes-like
            A contiguous host buffer of bytes.
        stream : rmm.pylibrmm.stream.Stream, optional
            The stream of the copy.

        Raises
        ------
        TypeError
            If `ary` is None.
        ValueError
            If `ary` is larger than the buffer.

        Examples
        --------
        >>> import rmm
        >>> buffer = rmm.DeviceBuffer(size=5)
        >>> buffer.copy_from_host(b"Hello")
        >>> buffer.tobytes()
        b'Hello'
        """
        cdef const unsigned char[::1] hb = ary
        as_stream(stream)
        if hb is None:
            raise TypeError("Argument `ary` may not be None.")
        cdef size_t size = hb.shape[0]
        if size > self.c_size():
            raise ValueError(f"Argument `ary` is too large. Need space of {size} bytes, but the buffer has {self.c_size()}.")
        if size > 0:
            copy(self.c_data(), &hb[0], size, stream, device_of_buffer(self))

    cpdef copy_from_device(self, cuda_ary, Stream stream=_default_stream):
        """Copy an array in device memory to the beginning of the buffer. The copy waits for work of the stream that the array names.

        If `stream` is not the default stream, the copy may not be complete on return. Then keep the array, unchanged, until it is.

        Parameters
        ----------
        cuda_ary : object
            A contiguous array with `__cuda_array_interface__`, of one dimension.
        stream : rmm.pylibrmm.stream.Stream, optional
            The stream of the copy.

        Raises
        ------
        ValueError
            If the array is larger than the buffer, not contiguous, or has several dimensions.

        Examples
        --------
        >>> import rmm
        >>> buffer = rmm.DeviceBuffer.to_device(b"abcdef")
        >>> buffer.copy_from_device(rmm.DeviceBuffer.to_device(b"xyz"))
        >>> buffer.tobytes()
        b'xyzdef'
        """
        as_stream(stream)
        interface = getattr(cuda_ary, "__cuda_array_interface__", None)
        if interface is None:
            raise ValueError("Expected an object with __cuda_array_interface__.")
        expect_interface(interface)
        if len(integers_of(interface["shape"], "shape")) != 1:
            raise ValueError("Only 1-D contiguous arrays are supported.")
        cdef size_t size = contiguous_size(interface)
        if size > self.c_size():
            raise ValueError(f"Argument `cuda_ary` is too large. Need space of {size} bytes, but the buffer has {self.c_size()}.")
        cdef uintptr_t source = address_of(interface)
        wait_for_producer(interface, stream, device_of_buffer(self))
        if size > 0:
            copy(self.c_data(), <const void*>source, size, stream, device_of_buffer(self))

    cpdef bytes tobytes(self, Stream stream=_default_stream):
        """Return the content as bytes.

        Parameters
        ----------
        stream : rmm.pylibrmm.stream.Stream, optional
            The stream of the copy, which is complete on return.

        Returns
        -------
        bytes
            The content.

        Examples
        --------
        >>> import rmm
        >>> rmm.DeviceBuffer.to_device(b"Hello").tobytes()
        b'Hello'
        """
        cdef size_t size = self.c_size()
        as_stream(stream)
        cdef bytes content = PyBytes_FromStringAndSize(NULL, size)
        if size > 0:
            copy(<void*>PyBytes_AsString(content), self.c_data(), size, stream, device_of_buffer(self), True)
        return content

    cdef size_t c_size(self) except *:
        return self.contents().size()

    cpdef void reserve(self, size_t new_capacity, Stream stream=_default_stream) except *:
        """Make the capacity at least `new_capacity` bytes. The content may move.

        Parameters
        ----------
        new_capacity : int
            The bytes.
        stream : rmm.pylibrmm.stream.Stream, optional
            The stream of a new allocation. It becomes the stream of the buffer in any case: also if it is left out, if nothing is
            allocated, and if the call fails. Order it after the buffer's previous stream.

        Raises
        ------
        MemoryError
            If there is not enough memory. The content is unchanged then, and only the stream has changed.

        Examples
        --------
        >>> import rmm
        >>> buffer = rmm.DeviceBuffer.to_device(b"Hello")
        >>> buffer.reserve(1000)
        >>> buffer.size, buffer.capacity()
        (5, 1000)
        """
        cdef cuda_stream_view c_stream = as_stream(stream).view()
        cdef reporting_buffer* buffer = <reporting_buffer*>self.contents()
        cdef Stream before = self.stream  # keeps the old stream until the memory has moved
        self.stream = stream  # before the call: if it fails, the C++ buffer has the new stream already
        with nogil:
            buffer.reserve(new_capacity, c_stream)

    cpdef void resize(self, size_t new_size, Stream stream=_default_stream) except *:
        """Change the size. Added bytes are uninitialised. The content moves if the capacity is too small.

        Parameters
        ----------
        new_size : int
            The bytes.
        stream : rmm.pylibrmm.stream.Stream, optional
            The stream of a new allocation. It becomes the stream of the buffer in any case: also if it is left out, if nothing is
            allocated, and if the call fails. Order it after the buffer's previous stream.

        Raises
        ------
        MemoryError
            If there is not enough memory. Size and content are unchanged then, and only the stream has changed.

        Examples
        --------
        >>> import rmm
        >>> buffer = rmm.DeviceBuffer.to_device(b"abcdef")
        >>> buffer.resize(3)
        >>> buffer.tobytes(), buffer.capacity()
        (b'abc', 6)
        """
        cdef cuda_stream_view c_stream = as_stream(stream).view()
        cdef reporting_buffer* buffer = <reporting_buffer*>self.contents()
        cdef Stream before = self.stream  # keeps the old stream until the memory has moved
        self.stream = stream  # before the call: if it fails, the C++ buffer has the new stream already
        with nogil:
            buffer.resize(new_size, c_stream)

    cpdef size_t capacity(self) except *:
        """Return the allocated bytes. The size can grow to them without moving the content.

        Returns
        -------
        int
            The bytes.

        Examples
        --------
        >>> import rmm
        >>> rmm.DeviceBuffer(size=1000).capacity()
        1000
        """
        return self.contents().capacity()

    cdef void* c_data(self) except *:
        return self.contents().data()

    cdef device_buffer* contents(self) except NULL:
        """Returns the C++ buffer. Raises ValueError if there is none, for example because the constructor raised an exception."""
        if self.c_obj.get() == NULL:
            raise ValueError("the buffer was not made, or was given away")
        return self.c_obj.get()

    cdef device_buffer c_release(self) except *:
        """Moves the C++ buffer out and leaves an empty one. The caller must keep the resource alive."""
        return move(dereference(self.contents()))


describe_attribute(DeviceBuffer, "mr", "The resource that the memory came from, and goes back to.")
describe_attribute(DeviceBuffer, "stream", "The stream in whose order the memory goes back.")


cdef class ImportedMemory:
    """A block of memory that another process exported, mapped in this process as long as this object lives.

    Both processes use the same memory: one reads what the other wrote, once the writing work is done. The destructor waits for the
    device. Other libraries use it without a copy: `cupy.asarray(memory)`, `torch.from_dlpack(memory)`.

    Parameters
    ----------
    memory : rmm.mr.ExportedMemory
        The exported block. It may be closed afterwards.
    device : int, optional
        The number of the device that the memory belongs to; the current one if None.

    Raises
    ------
    RuntimeError
        If the memory cannot be mapped.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.ElasticPoolMemoryResource(share_descriptors=True)
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
    >>> exported = pool.export_descriptors(buffer.ptr, buffer.size)
    >>> imported = rmm.mr.ImportedMemory(exported)  # in another process
    >>> imported.size
    1000
    """

    cdef unique_ptr[mapped_memory] c_obj

    def __cinit__(self, memory, device=None):
        cdef int c_device = c_current_device() if device is None else device
        cdef shared_block block
        block.offset_bytes = memory.offset_bytes
        block.bytes = memory.nbytes
        block.chunk_bytes = memory.chunk_bytes
        cdef vector[int] descriptors = memory.descriptors
        cdef vector[string] handles = memory.fabric_handles
        with nogil:
            self.c_obj = import_memory(c_device, block, descriptors, handles)

    def __dealloc__(self):
        with nogil:
            self.c_obj.reset()

    cdef mapped_memory* mapping(self) except NULL:
        """Returns the mapping. Raises ValueError if there is none, for example because the constructor raised an exception."""
        if self.c_obj.get() == NULL:
            raise ValueError("the object maps no memory: its constructor raised an exception, or did not run")
        return self.c_obj.get()

    def __len__(self):
        return self.size

    def __repr__(self):
        return f"ImportedMemory(size={self.size}, ptr=0x{self.ptr:x}, device={self.device})"

    @property
    def size(self):
        """Size in bytes."""
        return self.mapping().size()

    @property
    def nbytes(self):
        """Size in bytes."""
        return self.size

    @property
    def ptr(self):
        """Address of the memory in this process."""
        return <uintptr_t>self.mapping().data()

    @property
    def device(self):
        """Number of the device."""
        return self.mapping().device()

    @property
    def __cuda_array_interface__(self):
        return interface_of(self.ptr, self.size)

    def __dlpack_device__(self):
        """Return the DLPack numbers of the kind of memory and of the device."""
        return (dl_cuda, self.device)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Return the memory as a DLPack capsule, which keeps it mapped. No stream waits. See `DeviceBuffer.__dlpack__`."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("imported memory is exported without a copy, on its own device: leave out copy and dl_device")
        return export_bytes(
            self, self.mapping().data(), self.size, self.device, max_version is not None and max_version[0] >= 1, False)


cdef int device_of_buffer(DeviceBuffer buffer) except *:
    """Returns the device of the memory; negative if the buffer was moved out."""
    return buffer.contents().device().value()


cdef DeviceBuffer allocated(size_t size, Stream stream):
    """Makes `DeviceBuffer(size=size, stream=stream)`, but faster: without passing arguments by name."""
    cdef DeviceBuffer made = without_memory(stream)
    if not fill_at_once(made, size, 0):
        fill_with(made, size)  # also sets the stream of an empty buffer
    return made


cdef DeviceBuffer without_memory(Stream stream):
    """Makes a buffer without memory, for fill_at_once() and fill_with()."""
    cdef DeviceBuffer made = DeviceBuffer.__new__(DeviceBuffer)
    made.stream = stream
    return made


cdef bool fill_at_once(DeviceBuffer made, size_t size, uint64_t identity) noexcept:
    """Allocates `size` bytes for a buffer of without_memory(), if that needs no waiting. Keeps the GIL. Returns whether it did.

    Call it before other Python code can run, which may change the current device.
    `identity` is that of the buffer's stream; 0 if the caller does not know it.
    """
    cdef immediate_resource* source = made.mr.immediate()
    return source != NULL and (<reporting_buffer*>made.c_obj.get()).try_allocate_nonblocking(
        size, identified_stream(made.stream.view(), identity, made.c_obj.get().device().value()), source[0])


cdef bool free_at_once(DeviceBuffer buffer) noexcept:
    """Frees the memory, if that needs no waiting. Keeps the GIL. Returns whether it did."""
    if buffer.mr is None:
        return False
    cdef immediate_resource* to = buffer.mr.immediate()
    return to != NULL and (<reporting_buffer*>buffer.c_obj.get()).try_deallocate_nonblocking(buffer.mr.get_mr(), to[0])


cdef int fill_with(DeviceBuffer made, size_t size) except -1:
    """Allocates `size` bytes for a buffer of without_memory(), without the GIL."""
    cdef cuda_stream_view c_stream = made.stream.view()
    with nogil:
        (<reporting_buffer*>made.c_obj.get()).resize(size, c_stream)
    return 0


cdef object call_directly(PyObject* cls, PyObject* const* arguments, size_t count, PyObject* names):
    """Returns DeviceBuffer(...). Makes no dict of the arguments if there are none but an int `size` and a Stream `stream`."""
    cdef size_t size = 0
    cdef PyObject* stream = <PyObject*>_default_stream
    cdef PyObject* name
    cdef Py_ssize_t i
    if positional_arguments(count) != 0 or is_changed(cls):
        return call_with_dict(cls, arguments, count, names)
    for i in range(0 if names == NULL else PyTuple_Size(<object>names)):
        name = PyTuple_GetItem(<object>names, i)
        if name == <PyObject*>"size" and PyLong_CheckExact(<object>arguments[i]):
            size = PyLong_AsSize_t(arguments[i])
            if size == <size_t>-1 and PyErr_Occurred() != NULL:
                PyErr_Clear()  # the call below raises the exception of the argument
                return call_with_dict(cls, arguments, count, names)
        elif name == <PyObject*>"stream" and type(<object>arguments[i]) is Stream:
            stream = arguments[i]
        else:
            return call_with_dict(cls, arguments, count, names)
    return allocated(size, <Stream>stream)


_is_called_directly = set_direct_call(DeviceBuffer, call_directly)


cdef dict interface_of(uintptr_t ptr, size_t size):
    return {"data": (ptr, False), "shape": (size,), "strides": None, "typestr": "|u1", "version": 0}


cdef int wait_for(cudaStream_t waiting, int waiting_device, cudaStream_t awaited, int awaited_device) except -1:
    """Calls make_wait() without the GIL, because that may wait on the host."""
    with nogil:
        make_wait(waiting, waiting_device, awaited, awaited_device)
    return 0


cdef void wait_for_producer(object interface, Stream stream, int device) except *:
    """Orders `stream` after the work that writes an array, if the array's `__cuda_array_interface__` names the stream of that work.

    If `stream` is a default stream, it is that of `device`. If the producer's stream is one, it is that of the array's device.
    """
    cdef uintptr_t handle
    cdef uintptr_t address
    producer = interface.get("stream")
    if producer is not None:
        handle = producer
        address = address_of(interface)
        wait_for(stream.view().value(), device, <cudaStream_t>handle, device_of(<const void*>address))


cdef DeviceBuffer copy_of_tensor(object source, Stream stream, DeviceMemoryResource mr):
    cdef const dl_tensor* tensor
    cdef uintptr_t handle = <uintptr_t>stream.view().value() or 1
    wanted = {} if source.__dlpack_device__()[0] == dl_cpu else {"stream": handle}
    try:
        capsule = source.__dlpack__(max_version=(1, 0), **wanted)
    except TypeError:  # a producer older than version 1 of the protocol
        capsule = source.__dlpack__(**wanted)
    tensor = tensor_in(capsule)
    if tensor == NULL:
        raise BufferError(f"{type(source)} gave no DLPack tensor of version 0 or 1")
    cdef int64_t size = contiguous_bytes(tensor[0])
    if size < 0:
        raise ValueError("the array has to be contiguous: copy it to a contiguous one first")
    if tensor[0].device.type == dl_cuda:  # a default stream that the producer ordered is its device's
        wait_for(stream.view().value(), c_current_device(), <cudaStream_t>handle, tensor[0].device.id)
    buffer = DeviceBuffer(
        ptr=<uintptr_t>tensor[0].data + tensor[0].byte_offset if size > 0 else 0, size=size, stream=stream, mr=mr)
    stream.synchronize()  # the capsule, which keeps the source alive, ends here
    return buffer


cpdef DeviceBuffer to_device(const unsigned char[::1] b, Stream stream=_default_stream):
    """Make a buffer with a copy of host memory.

    Parameters
    ----------
    b : bytes-like
        A contiguous host buffer of bytes: `bytes`, `bytearray`, a NumPy array of `uint8`, ...
    stream : rmm.pylibrmm.stream.Stream, optional
        The stream of the copy and of the buffer. If it is the default stream, the copy is complete on return. Otherwise, keep
        page-locked `b`, unchanged, until the copy is done.

    Returns
    -------
    DeviceBuffer
        The buffer.

    Examples
    --------
    >>> import rmm
    >>> rmm.pylibrmm.device_buffer.to_device(b"abc").size
    3
    """
    if b is None:
        raise TypeError("Argument 'b' has incorrect type (expected bytes-like, got NoneType)")
    cdef size_t size = b.shape[0]
    return DeviceBuffer(ptr=<uintptr_t>&b[0] if size > 0 else 0, size=size, stream=stream)


cpdef void copy_ptr_to_host(uintptr_t db, unsigned char[::1] hb, Stream stream=_default_stream) except *:
    """Copy device memory to host memory.

    If `stream` is not the default stream and `hb` is page-locked, the copy may not be complete on return.

    Parameters
    ----------
    db : int
        The address of the device memory.
    hb : bytes-like
        A writable host buffer of bytes, which is filled.
    stream : rmm.pylibrmm.stream.Stream, optional
        The stream of the copy.

    Raises
    ------
    TypeError
        If `hb` is None.
    RuntimeError
        If the copy fails.

    Examples
    --------
    >>> import rmm
    >>> buffer = rmm.DeviceBuffer.to_device(b"abc")
    >>> host = bytearray(buffer.size)
    >>> rmm.pylibrmm.device_buffer.copy_ptr_to_host(buffer.ptr, host)
    >>> host
    bytearray(b'abc')
    """
    if hb is None:
        raise TypeError("Argument `hb` may not be None.")
    as_stream(stream)
    if hb.shape[0] > 0:
        copy(&hb[0], <const void*>db, hb.shape[0], stream)


cpdef void copy_host_to_ptr(const unsigned char[::1] hb, uintptr_t db, Stream stream=_default_stream) except *:
    """Copy host memory to device memory.

    If `stream` is not the default stream, the copy may not be complete on return. Then keep page-locked `hb`, unchanged, until it
    is.

    Parameters
    ----------
    hb : bytes-like
        A host buffer of bytes.
    db : int
        The address of the device memory.
    stream : rmm.pylibrmm.stream.Stream, optional
        The stream of the copy.

    Raises
    ------
    TypeError
        If `hb` is None.
    RuntimeError
        If the copy fails.

    Examples
    --------
    >>> import rmm
    >>> buffer = rmm.DeviceBuffer(size=3)
    >>> rmm.pylibrmm.device_buffer.copy_host_to_ptr(b"abc", buffer.ptr)
    >>> buffer.tobytes()
    b'abc'
    """
    if hb is None:
        raise TypeError("Argument `hb` may not be None.")
    as_stream(stream)
    if hb.shape[0] > 0:
        copy(<void*>db, &hb[0], hb.shape[0], stream)


cpdef void copy_device_to_ptr(uintptr_t d_src, uintptr_t d_dst, size_t count, Stream stream=_default_stream) except *:
    """Copy device memory to device memory.

    If `stream` is not the default stream, the copy may not be complete on return. Then keep the source, unchanged, until it is.

    Parameters
    ----------
    d_src : int
        The address to copy from.
    d_dst : int
        The address to copy to.
    count : int
        The bytes.
    stream : rmm.pylibrmm.stream.Stream, optional
        The stream of the copy.

    Raises
    ------
    RuntimeError
        If the copy fails.

    Examples
    --------
    >>> import rmm
    >>> source = rmm.DeviceBuffer.to_device(b"abc")
    >>> target = rmm.DeviceBuffer(size=3)
    >>> rmm.pylibrmm.device_buffer.copy_device_to_ptr(source.ptr, target.ptr, 3)
    >>> target.tobytes()
    b'abc'
    """
    copy(<void*>d_dst, <const void*>d_src, count, as_stream(stream))
