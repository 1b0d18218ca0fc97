# SPDX-License-Identifier: Apache-2.0
"""The extension module, compiled for one release of RAPIDS. The package imports it only if that release is installed."""

from cython.operator cimport dereference
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t
from libcpp cimport bool
from libcpp.memory cimport unique_ptr
from libcpp.optional cimport optional
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

from rmm.librmm.memory_resource cimport device_async_resource_ref
from rmm.pylibrmm.memory_resource._memory_resource cimport DeviceMemoryResource

from rmm_engine_rapids._figures import Figures, Holder, Report


cdef extern from "rmm/c/rmm.h" nogil:
    int RMM_C_CURRENT_DEVICE
    uint64_t RMM_C_UNKNOWN

    ctypedef struct rmm_c_figures:
        uint64_t live_blocks
        uint64_t live_bytes
        uint64_t free_bytes
        uint64_t graph_bytes
        uint64_t cached_bytes
        uint64_t reserved_bytes
        uint64_t largest_free_bytes
        uint64_t upstream_blocks
        uint64_t caches
        uint64_t from_other_streams
        uint64_t from_other_caches
        uint64_t coalesced
        uint64_t device_synchronizations
        uint64_t failures

    ctypedef struct rmm_c_report:
        uint64_t asked_bytes
        uint64_t alignment_bytes
        int64_t device
        uint64_t maximum_bytes
        uint64_t reserved_bytes
        uint64_t live_bytes
        uint64_t free_bytes
        uint64_t cached_bytes
        uint64_t largest_free_bytes
        uint64_t device_free_bytes
        uint64_t device_total_bytes
        uint64_t held_by_others_bytes
        uint64_t failures

    const char* rmm_c_engine_version()


cdef extern from "rmm_engine_rapids/engine_resource.hpp" namespace "rmm_engine_rapids" nogil:
    cdef cppclass holder:
        string tag
        uint64_t bytes
        uint64_t allocations

    cdef cppclass engine_resource:
        engine_resource(const char* configuration, int device) except +
        engine_resource(const engine_resource& other) except +
        int device()
        bool is_shared()
        size_t trim_to(size_t bytes) except +
        optional[rmm_c_figures] figures() except +
        vector[holder] live_by_tag() except +
        optional[pair[rmm_c_report, string]] report() except +


# RAPIDS' declarations for Cython have this template.
cdef extern from *:
    optional[device_async_resource_ref] make_device_async_resource_ref(engine_resource&) except +


def engine_version():
    return rmm_c_engine_version().decode()


cdef class EngineMemoryResource(DeviceMemoryResource):
    """A memory resource of RMM's engine, for everything that takes a ``DeviceMemoryResource`` of RAPIDS.

    The pool ends when this object, all adaptors and registries that took it, and all buffers from it are gone.

    Parameters
    ----------
    configuration : str, optional
        What the resource is, such as ``"elastic,max=80%"``. Without it the environment variable ``RMM_ENGINE_RAPIDS`` says it, then
        ``RMM_RESOURCE``; without both it is ``"recommended"``.
    device : int, optional
        The device of the memory; the current one by default. Any device may be current when the resource is used.

    Raises
    ------
    ValueError
        If the configuration has a mistake, or there is no such device.
    MemoryError
        If the device has no memory for what the configuration asks for at the start.
    """

    cdef unique_ptr[engine_resource] c_obj
    cdef readonly object configuration

    def __cinit__(self, configuration=None, device=None):
        cdef string c_configuration
        cdef const char* c_text = NULL
        cdef int c_device = RMM_C_CURRENT_DEVICE
        if configuration is None:
            configuration = configuration_of_environment()
        if configuration is not None:
            if not isinstance(configuration, str):
                raise TypeError(f"the configuration is a text such as 'elastic,max=80%', not {configuration!r}")
            c_configuration = configuration.encode()
            c_text = c_configuration.c_str()
        if device is not None:
            c_device = device
            if c_device < 0:
                raise ValueError(f"there is no device {device}")
        self.configuration = configuration
        with nogil:
            self.c_obj.reset(new engine_resource(c_text, c_device))
        self.c_ref = make_device_async_resource_ref(dereference(self.c_obj))

    def __init__(self, configuration=None, device=None):
        pass

    def __dealloc__(self):
        with nogil:
            self.c_ref.reset()
            self.c_obj.reset()

    def __repr__(self):
        return f"EngineMemoryResource({self.configuration!r}, device={self.device})"

    @property
    def device(self):
        """The device of the memory."""
        return dereference(self.c_obj).device()

    def _share(self):
        """Returns another object with the same pool."""
        cdef EngineMemoryResource other = EngineMemoryResource("cuda", self.device)
        other.c_obj.reset(new engine_resource(dereference(self.c_obj)))
        other.c_ref = make_device_async_resource_ref(dereference(other.c_obj))
        other.configuration = self.configuration
        return other

    def _is_shared(self):
        """Whether another object has the same pool: one of Python, a registry, an adaptor or a buffer."""
        return dereference(self.c_obj).is_shared()

    def trim_to(self, size_t nbytes=0):
        """Gives unused memory back to the device until at most ``nbytes`` bytes stay, as far as that goes.

        Returns
        -------
        int
            The bytes given back.

        Raises
        ------
        RuntimeError
            If the resource has none of ``elastic``, ``pool``, ``cached``, ``cuda_async`` and ``pinned_pool``: others cannot give memory
            back.
        """
        cdef size_t released
        with nogil:
            released = dereference(self.c_obj).trim_to(nbytes)
        return released

    def figures(self):
        """Tells what the pool has, and how it served.

        Returns
        -------
        Figures or None
            None for resources that have no figures, such as ``cuda``.
        """
        cdef optional[rmm_c_figures] found
        with nogil:
            found = dereference(self.c_obj).figures()
        if not found.has_value():
            return None
        cdef rmm_c_figures each = found.value()
        return Figures(
            live_blocks=each.live_blocks,
            live_bytes=each.live_bytes,
            free_bytes=each.free_bytes,
            graph_bytes=each.graph_bytes,
            cached_bytes=each.cached_bytes,
            reserved_bytes=each.reserved_bytes,
            largest_free_bytes=each.largest_free_bytes,
            upstream_blocks=each.upstream_blocks,
            caches=each.caches,
            from_other_streams=each.from_other_streams,
            from_other_caches=each.from_other_caches,
            coalesced=each.coalesced,
            device_synchronizations=each.device_synchronizations,
            failures=each.failures,
        )

    def live_by_tag(self):
        """Tells what holds memory: the live bytes of each tag, in descending order. Tags are NVTX ranges; see ``nvtx_path()``.

        Returns
        -------
        list of Holder
            One for each tag with live allocations. The tag is empty for allocations without one.

        Raises
        ------
        RuntimeError
            If the configuration lacks the option ``tags``.
        """
        cdef vector[holder] found
        with nogil:
            found = dereference(self.c_obj).live_by_tag()
        return [
            Holder(found[i].tag.decode("utf-8", "surrogateescape"), found[i].bytes, found[i].allocations)
            for i in range(found.size())
        ]

    def report(self):
        """Tells what the pool had when it last had no memory for an allocation, in any thread.

        Returns
        -------
        Report or None
            None if no allocation failed for want of memory, or if the resource is of a kind without reports.
        """
        cdef optional[pair[rmm_c_report, string]] found
        with nogil:
            found = dereference(self.c_obj).report()
        if not found.has_value():
            return None
        cdef rmm_c_report each = found.value().first
        return Report(
            text=found.value().second.decode(errors="replace"),
            asked_bytes=each.asked_bytes,
            alignment_bytes=each.alignment_bytes,
            device=None if each.device < 0 else each.device,
            maximum_bytes=_known(each.maximum_bytes),
            reserved_bytes=_known(each.reserved_bytes),
            live_bytes=_known(each.live_bytes),
            free_bytes=_known(each.free_bytes),
            cached_bytes=_known(each.cached_bytes),
            largest_free_bytes=_known(each.largest_free_bytes),
            device_free_bytes=_known(each.device_free_bytes),
            device_total_bytes=_known(each.device_total_bytes),
            held_by_others_bytes=_known(each.held_by_others_bytes),
            failures=each.failures,
        )


cdef object _known(uint64_t value):
    return None if value == RMM_C_UNKNOWN else value


def configuration_of_environment():
    import os

    return os.environ.get("RMM_ENGINE_RAPIDS") or None
