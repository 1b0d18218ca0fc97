# SPDX-License-Identifier: Apache-2.0

from rmm.pylibrmm.memory_resource._base cimport UpstreamResourceAdaptor


cdef class LimitingResourceAdaptor(UpstreamResourceAdaptor):
    pass


cdef class LoggingResourceAdaptor(UpstreamResourceAdaptor):
    cdef object _log_file_name
    cpdef get_file_name(self)
    cpdef flush(self)


cdef class StatisticsResourceAdaptor(UpstreamResourceAdaptor):
    pass


cdef class TrackingResourceAdaptor(UpstreamResourceAdaptor):
    pass


cdef class PrefetchResourceAdaptor(UpstreamResourceAdaptor):
    pass


cdef class AlignedResourceAdaptor(UpstreamResourceAdaptor):
    pass


cdef class GuardResourceAdaptor(UpstreamResourceAdaptor):
    cdef object _handler


cdef class TraceResourceAdaptor(UpstreamResourceAdaptor):
    pass


cdef class EnvironmentTrace(UpstreamResourceAdaptor):
    pass


cdef class ThreadSafeResourceAdaptor(UpstreamResourceAdaptor):
    pass
