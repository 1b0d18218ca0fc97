# SPDX-License-Identifier: Apache-2.0
"""Functions that set and return the resource of a device."""

from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libcpp cimport bool
from libcpp.pair cimport pair

from rmm.librmm._device_memory_resource cimport device_memory_resource, use_unrounded_sizes as c_use_unrounded_sizes
from rmm.pylibrmm.memory_resource._adaptors cimport EnvironmentTrace
from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource, UpstreamResourceAdaptor
from rmm.pylibrmm.memory_resource._device cimport CudaMemoryResource

import atexit
import os
import threading

from rmm._cuda._runtime import device_count

__all__ = [
    "available_device_memory", "bytes_of_libraries", "get_current_device_resource", "get_per_device_resource", "route_libraries",
    "set_current_device_resource", "set_per_device_resource", "use_unrounded_sizes",
]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "rmm/cuda_device.hpp" namespace "rmm" nogil:
    pair[size_t, size_t] c_available_device_memory "rmm::available_device_memory"() except +


cdef extern from "pylibrmm/memory_resource/_python_frames.hpp" namespace "rmm_python":
    void offer_python_frames() noexcept
    void c_end_python_frames "rmm_python::end_python_frames"() noexcept


cdef extern from "pylibrmm/memory_resource/_library_route.hpp" namespace "rmm_python" nogil:
    bool c_route_libraries "rmm_python::library_route::switch_to"(bool) except +
    size_t c_bytes_of_libraries "rmm_python::library_route::live_bytes"() except +


cdef extern from "pylibrmm/memory_resource/_registry.hpp" namespace "rmm_python" nogil:
    int c_current_device "rmm_python::current_device"() except +
    void register_resource(int device, device_memory_resource*, PyObject*) except +
    void unregister_resource(int device) except +


def _end_python_frames():
    """Stops recording Python stacks in traces, because the interpreter ends."""
    c_end_python_frames()


offer_python_frames()
atexit.register(_end_python_frames)

# The resource of each device, kept alive. Not cleared when the interpreter ends: the C++ registry refers to the same resources, and C++
# code may use them until the process ends.
cdef dict _per_device_mrs = {}
_is_traced = os.environ.get("RMM_TRACE_FILE", "") != ""  # set at import, so that a trace has the allocation of each free
# Held while the Python and C++ registries change together. Resources are destroyed after it is released. Reentrant, because the garbage
# collector can run code that takes it on the thread that holds it.
_changes = threading.RLock()


# A copy of _per_device_mrs for devices below 64, which needs no look-up. _per_device_mrs keeps the resources alive, so both change
# together, under `_changes`.
cdef PyObject* _first_mrs[64]


cdef void note_registered(int device, object mr) noexcept:
    if 0 <= device < 64:
        _first_mrs[device] = <PyObject*>mr


cpdef DeviceMemoryResource get_per_device_resource(int device):
    """Return the resource of a device.

    Parameters
    ----------
    device : int
        The number of the device.

    Returns
    -------
    DeviceMemoryResource
        The resource that was set in Python; else a `CudaMemoryResource`, also if C++ code has set another one.

    Raises
    ------
    ValueError
        If there is no such device.

    Examples
    --------
    >>> import rmm
    >>> rmm.mr.get_per_device_resource(0)
    CudaMemoryResource()
    """
    if 0 <= device < 64 and _first_mrs[device] != NULL:
        return <DeviceMemoryResource>_first_mrs[device]
    cdef DeviceMemoryResource initial
    mr = _per_device_mrs.get(device)
    if mr is None:
        expect_device(device)
        initial = traced(CudaMemoryResource(), device)
        with _changes:
            mr = _per_device_mrs.get(device)
            if mr is None:  # another thread may have set one meanwhile
                mr = initial
                if _is_traced:
                    register_resource(device, initial.get_mr(), <PyObject*>initial)
                _per_device_mrs[device] = mr
            note_registered(device, mr)
    return mr


cdef object _device_count = device_count  # a C variable, which exists until the process ends


cpdef expect_device(int device):
    """Raises ValueError if there is no such device. Accepts any number from 0 up if the runtime does not tell how many there are."""
    status, count = _device_count()
    if device < 0 or (status == 0 and device >= count):
        raise ValueError(f"there is no device {device}: the process sees {count if status == 0 else 'an unknown number'}")


def _has_trace(mr):
    """Returns whether `mr` or one of its upstreams is an `EnvironmentTrace`."""
    while isinstance(mr, UpstreamResourceAdaptor) and not isinstance(mr, EnvironmentTrace):
        mr = mr.get_upstream()
    return isinstance(mr, EnvironmentTrace)


def without_trace(mr):
    """Returns the upstream of an `EnvironmentTrace`; any other resource itself."""
    return mr.get_upstream() if isinstance(mr, EnvironmentTrace) else mr


cdef DeviceMemoryResource traced(DeviceMemoryResource mr, int device):
    """Returns `mr`, with a trace on top if the environment requests one."""
    return EnvironmentTrace(mr, device) if _is_traced and not _has_trace(mr) else mr


cpdef set_per_device_resource(int device, DeviceMemoryResource mr):
    """Set the resource of a device, for Python and C++. Code that names no resource allocates from it.

    Parameters
    ----------
    device : int
        The number of the device.
    mr : DeviceMemoryResource
        The resource.

    Raises
    ------
    ValueError
        If there is no such device.
    TypeError
        If `mr` is None.

    Examples
    --------
    >>> import rmm
    >>> rmm.mr.set_per_device_resource(0, rmm.mr.ManagedMemoryResource())
    >>> rmm.mr.get_per_device_resource(0)
    ManagedMemoryResource()
    """
    if mr is None:
        raise TypeError("mr cannot be None: give a resource")
    expect_device(device)
    mr.usable()
    mr = traced(mr, device)
    with _changes:
        before = _per_device_mrs.get(device)
        register_resource(device, mr.get_mr(), <PyObject*>mr)
        _per_device_mrs[device] = mr
        note_registered(device, mr)
    del before


cpdef DeviceMemoryResource get_current_device_resource():
    """Return the resource of the current device.

    Returns
    -------
    DeviceMemoryResource
        The resource that was set in Python; else a `CudaMemoryResource`, also if C++ code has set another one.

    Examples
    --------
    >>> import rmm
    >>> rmm.mr.get_current_device_resource()
    CudaMemoryResource()
    """
    return get_per_device_resource(c_current_device())


cpdef set_current_device_resource(DeviceMemoryResource mr):
    """Set the resource of the current device; see `set_per_device_resource`.

    Parameters
    ----------
    mr : DeviceMemoryResource
        The resource.

    Examples
    --------
    >>> import rmm
    >>> rmm.mr.set_current_device_resource(rmm.mr.ManagedMemoryResource())
    >>> buffer = rmm.DeviceBuffer(size=1000)  # managed memory
    """
    set_per_device_resource(c_current_device(), mr)


def registered_resources():
    """Returns the resource of each device for which one was set or returned."""
    return dict(_per_device_mrs)


def forget_registered_resources():
    """Gives all devices their initial resource back."""
    global _per_device_mrs
    with _changes:
        before, _per_device_mrs = _per_device_mrs, {}
        for place in range(64):
            _first_mrs[place] = NULL
        for device in before:
            unregister_resource(device)
    del before


def current_device():
    """Returns the number of the current device."""
    return c_current_device()


def available_device_memory():
    """Return the free and the total memory of the current device.

    Returns
    -------
    tuple of int
        The free bytes and all bytes.

    Examples
    --------
    >>> import rmm
    >>> free, total = rmm.mr.available_device_memory()
    >>> 0 <= free <= total
    True
    """
    cdef pair[size_t, size_t] memory
    with nogil:
        memory = c_available_device_memory()
    return (memory.first, memory.second)


def use_unrounded_sizes(bool enabled=True):
    """Make the process count sizes as they are requested (RMM since 25.12), or in multiples of 16 (RMM before 25.12).

    Statistics, limits, tracking and logs show the difference. Call it before the first allocation. RMM_UNROUNDED_SIZES in the
    environment (0 or 1) has the same effect.

    Parameters
    ----------
    enabled : bool, optional
        Whether to count sizes as they are requested.

    Raises
    ------
    RuntimeError
        If the process has made the other choice already.

    Examples
    --------
    >>> import rmm
    >>> rmm.mr.use_unrounded_sizes()  # doctest: +SKIP
    """
    c_use_unrounded_sizes(enabled)


def route_libraries(bool enabled=True):
    """Let the current resource of each device serve what other libraries allocate from the CUDA driver, such as cuBLAS or CuPy.

    The process has to be started with `LD_PRELOAD=$(python -m rmm audit-path)` and `RMM_AUDIT=route:current`. Then `import rmm` calls
    this function. Resources of the type `CudaMemoryResource` serve nothing: the driver itself does.

    A block goes back to the resource that it came from, and keeps it alive. If a resource cannot serve an allocation, the library
    gets the error cudaErrorMemoryAllocation. A library that allocates while it holds the GIL can wait for ever for a resource that
    calls Python, such as a `CallbackMemoryResource`.

    Parameters
    ----------
    enabled : bool, optional
        Whether resources serve libraries from now on.

    Returns
    -------
    bool
        Whether they do: False if the process was not started in this way.

    Examples
    --------
    >>> import rmm
    >>> rmm.mr.route_libraries()
    False
    """
    cdef bool on
    with nogil:
        on = c_route_libraries(enabled)
    return on


def bytes_of_libraries():
    """Return the bytes of resources that other libraries use; see `route_libraries`.

    Returns
    -------
    int
        The bytes that they have allocated, and not freed.

    Examples
    --------
    >>> import rmm
    >>> rmm.mr.bytes_of_libraries()
    0
    """
    cdef size_t bytes_now
    with nogil:
        bytes_now = c_bytes_of_libraries()
    return bytes_now
