# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Cimports and uses what other projects cimport, under the names of all releases."""

from cuda.bindings.cyruntime cimport cudaStream_t
from libc.stdint cimport uintptr_t
from libcpp.memory cimport make_unique, unique_ptr
from libcpp.utility cimport move

# up to 24.10
from rmm._cuda.stream cimport Stream as OldStream
from rmm._lib.cuda_stream cimport CudaStream as OldCudaStream
from rmm._lib.cuda_stream_pool cimport cuda_stream_pool as old_cuda_stream_pool
from rmm._lib.cuda_stream_view cimport (
    cuda_stream_default,
    cuda_stream_legacy,
    cuda_stream_per_thread,
    cuda_stream_view as old_cuda_stream_view,
)
from rmm._lib.device_buffer cimport (
    DeviceBuffer as OldDeviceBuffer,
    cuda_device_id as old_cuda_device_id,
    device_buffer as old_device_buffer,
    get_current_cuda_device,
    to_device as old_to_device,
)
from rmm._lib.device_uvector cimport device_uvector as old_device_uvector
from rmm._lib.lib cimport caller_pair
from rmm._lib.memory_resource cimport (
    DeviceMemoryResource as OldDeviceMemoryResource,
    UpstreamResourceAdaptor as OldUpstreamResourceAdaptor,
    device_memory_resource as old_device_memory_resource,
    get_current_device_resource as old_get_current_device_resource,
)
from rmm._lib.per_device_resource cimport get_current_device_resource as old_cpp_get_current_device_resource

# from 24.12 on
from rmm.librmm._logger cimport level_enum
from rmm.librmm.cuda_stream cimport cuda_stream, cuda_stream_flags
from rmm.librmm.cuda_stream_pool cimport cuda_stream_pool
from rmm.librmm.cuda_stream_ref cimport cuda_stream_ref, stream_ref
from rmm.librmm.cuda_stream_view cimport cuda_stream_view
from rmm.librmm.device_buffer cimport device_buffer, prefetch
from rmm.librmm.device_uvector cimport device_uvector
from rmm.librmm.memory_resource cimport (
    CppExcept,
    available_device_memory,
    cuda_memory_resource,
    device_memory_resource,
    percent_of_free_device_memory,
    pool_memory_resource,
    statistics_resource_adaptor,
    throw_cpp_except,
    translate_python_except_to_cpp,
)
from rmm.librmm.per_device_resource cimport (
    cuda_device_id,
    get_current_device_resource as cpp_get_current_device_resource,
)
from rmm.pylibrmm.cuda_stream cimport CudaStream
from rmm.pylibrmm.cuda_stream_pool cimport CudaStreamPool
from rmm.pylibrmm.device_buffer cimport DeviceBuffer, copy_ptr_to_host, to_device
from rmm.pylibrmm.helper cimport parse_bytes
from rmm.pylibrmm.memory_resource cimport (
    DeviceMemoryResource,
    LimitingResourceAdaptor,
    PoolMemoryResource,
    ReservationQueue,
    UpstreamResourceAdaptor,
    get_current_device_resource,
)
from rmm.pylibrmm.memory_resource.experimental cimport CudaAsyncManagedMemoryResource
from rmm.pylibrmm.scopes cimport GraphMemory, capture_scope, tag
from rmm.pylibrmm.stream cimport Stream
from rmm.pylibrmm.utils cimport as_stream


def buffer_of_cpp(size_t size, Stream stream=None, DeviceMemoryResource mr=None):
    """A buffer that was allocated in C++."""
    cdef Stream used = Stream._from_cudaStream_t(<cudaStream_t><uintptr_t>0) if stream is None else stream
    cdef DeviceMemoryResource resource = get_current_device_resource() if mr is None else mr
    cdef cuda_stream_view view = used.view()
    cdef unique_ptr[device_buffer] made
    with nogil:
        made = make_unique[device_buffer](size, view, resource.get_mr())
    return DeviceBuffer.c_from_unique_ptr(move(made), used, resource)


def buffer_that_is_said_to_be_of_the_current_resource(size_t size, DeviceMemoryResource mr):
    cdef unique_ptr[device_buffer] made = make_unique[device_buffer](size, cuda_stream_view(), mr.get_mr())
    return DeviceBuffer.c_from_unique_ptr(move(made))


def stream_in_cpp(DeviceBuffer buffer):
    return <uintptr_t>buffer.c_obj.get().stream().value()


def buffer_of_defaults(size_t size):
    cdef unique_ptr[old_device_buffer] made = make_unique[old_device_buffer](size, cuda_stream_default)
    return OldDeviceBuffer.c_from_unique_ptr(move(made))


def buffer_of_bytes(const unsigned char[::1] content):
    return DeviceBuffer.c_to_device(content).tobytes() + to_device(content).tobytes() + old_to_device(content).tobytes()


def release(DeviceBuffer buffer):
    """Moves the C++ buffer out. Returns its size and address, and the size that is left."""
    cdef uintptr_t before = <uintptr_t>buffer.c_data()
    cdef device_buffer released = buffer.c_release()
    assert <uintptr_t>released.data() == before
    return released.size(), buffer.c_size()


def uvector_round_trip(int value):
    cdef cuda_stream_view view = cuda_stream_view()
    cdef unique_ptr[device_uvector[int]] vector = make_unique[device_uvector[int]](<size_t>3, view)
    vector.get()[0].set_element(2, value, view)
    return vector.get()[0].back_element(view)


def stream_facts(Stream stream):
    cdef cuda_stream_view view = as_stream(stream).view()
    cdef cuda_stream_ref ref = stream_ref(view.value())
    assert ref.get() == view.value()
    stream.c_synchronize()
    return <uintptr_t>view.value(), stream.c_is_default(), view == cuda_stream_legacy, view == cuda_stream_per_thread


def value_of_new_stream():
    cdef CudaStream stream = CudaStream()
    return stream.is_valid() and <uintptr_t>stream.value() != 0


def registered_in_cpp():
    """Whether Python and C++ have the same current resource."""
    return (cpp_get_current_device_resource() == get_current_device_resource().get_mr()
            and old_cpp_get_current_device_resource() == old_get_current_device_resource().get_mr())


def pass_through_cpp(error):
    cdef CppExcept translated = translate_python_except_to_cpp(error)
    throw_cpp_except(translated)


cdef class OwnBuffer(DeviceBuffer):
    pass


cdef class OwnStream(Stream):
    pass


cdef class OwnCudaStream(CudaStream):
    pass


cdef class OwnStreamPool(CudaStreamPool):
    pass


cdef class OwnPool(PoolMemoryResource):
    pass


cdef class OwnTag(tag):
    pass


cdef class OwnGraphMemory(GraphMemory):
    pass


cdef class OwnScope(capture_scope):
    pass


cdef class OwnQueue(ReservationQueue):
    pass


cdef class OwnAdaptor(UpstreamResourceAdaptor):
    """A resource of another project."""

    def __cinit__(self, DeviceMemoryResource upstream_mr):
        self.c_obj.reset(new statistics_resource_adaptor[device_memory_resource](upstream_mr.get_mr()))

    def count(self):
        cdef statistics_resource_adaptor[device_memory_resource]* own = (
            <statistics_resource_adaptor[device_memory_resource]*>self.c_obj.get())
        return own[0].get_allocations_counter().total


def same_types():
    return [OldStream is Stream, OldDeviceBuffer is DeviceBuffer, OldCudaStream is CudaStream,
            OldDeviceMemoryResource is DeviceMemoryResource, OldUpstreamResourceAdaptor is UpstreamResourceAdaptor]


def sizes():
    cdef object parsed = parse_bytes("2KiB")
    return parsed, available_device_memory().second, percent_of_free_device_memory(10), get_current_cuda_device().value()
