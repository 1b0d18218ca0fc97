# SPDX-License-Identifier: Apache-2.0
"""Scopes for blocks of code: tags for allocations, and captures of CUDA graphs."""

cimport cython
from cython.operator cimport dereference
from libcpp.memory cimport unique_ptr
from libcpp.string cimport string

from rmm.librmm.capture_scope cimport capture_scope as cpp_capture_scope, graph_memory
from rmm.librmm.tag_scope cimport tag as cpp_tag
from rmm.pylibrmm.stream cimport Stream
from rmm.pylibrmm.utils cimport as_stream

from rmm.pylibrmm._attributes import describe_attribute

__all__ = ["GraphMemory", "capture_scope", "tag"]


cdef extern from "pylibrmm/_scopes.hpp" namespace "rmm_python" nogil:
    cdef enum class ended_scope:
        innermost
        outer
        none

    void begin_tag_scope(cpp_tag label) except +
    ended_scope end_tag_scope(cpp_tag label) except +


cdef extern from "pylibrmm/_static_types.hpp" namespace "rmm_python":
    void reference_static_type(object value)


cdef class tag:
    """A label for the allocations of the calling thread, in a `with` statement or in a function that it decorates.

    Pools that track tags report how much memory each tag has (`live_by_tag`, and the report of a failed allocation), and traces
    record them. Blocks nest, and the innermost counts. Do not await or yield in a block: other coroutines and generators of the
    thread run meanwhile. Names are kept until the process ends: name parts of a program, not requests. One object may be used
    several times, and by several threads.

    Parameters
    ----------
    name : str
        The name. One name gives one tag in all libraries of the process.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
    >>> pool.track_tags()
    >>> with rmm.tag("loader"):
    ...     buffer = rmm.DeviceBuffer(size=1024, mr=pool)
    >>> pool.live_by_tag()
    [Holder(tag='loader', bytes=1024, allocations=1)]
    """

    def __cinit__(self, str name not None):
        cdef string c_name = name.encode("utf-8", "surrogateescape")
        self._tag = cpp_tag(c_name)

    def __dealloc__(self):
        reference_static_type(self)

    @property
    def name(self):
        """The name."""
        return self._tag.name().decode("utf-8", "surrogateescape")

    @staticmethod
    def current():
        """Return the name of the calling thread's current tag.

        Returns
        -------
        str
            The name; empty without a tag.

        Examples
        --------
        >>> import rmm
        >>> with rmm.tag("loader"):
        ...     rmm.tag.current()
        'loader'
        """
        return cpp_tag.current().name().decode("utf-8", "surrogateescape")

    def __enter__(self):
        begin_tag_scope(self._tag)
        return self

    def __exit__(self, *exception):
        cdef ended_scope ended = end_tag_scope(self._tag)
        if ended == ended_scope.none:
            raise RuntimeError("a block under a tag has to end on the thread on which it began")
        if ended == ended_scope.outer:
            raise RuntimeError(
                f"the block under the tag {self.name!r} ended before a block that began inside it, as happens if coroutines or "
                "generators of one thread take turns. Memory allocated meanwhile may have the wrong tag. Do not await or yield in "
                "a block under a tag")

    def __call__(self, function):
        """Decorate a function, so that its calls run under the tag."""
        import functools

        from rmm.pylibrmm._decorated_functions import expect_whole_calls

        expect_whole_calls(function, "the tag")

        @functools.wraps(function)
        @cython.binding(True)  # a Python function, because functools.wraps sets its name
        def tagged(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return tagged

    def __eq__(self, other):
        if not isinstance(other, tag):
            return NotImplemented
        return self._tag.id() == (<tag>other)._tag.id()

    def __hash__(self):
        return hash(self._tag.id())

    def __reduce__(self):
        return tag, (self.name,)

    def __repr__(self):
        return f"tag({self.name!r})"


cdef class GraphMemory:
    """Memory that pools keep for CUDA graphs, as long as this object lives.

    A graph uses the addresses of its capture in each launch. Pools give that memory only to later captures with this
    `GraphMemory`. Graphs that share it must not run at the same time.

    Examples
    --------
    >>> import rmm
    >>> stream = rmm.pylibrmm.stream.Stream()
    >>> memory = rmm.GraphMemory()
    >>> with rmm.capture_scope(stream, memory):
    ...     pass  # begin the capture, work on the stream, end the capture
    >>> memory.release(stream)  # after the last launch
    """

    def __dealloc__(self):
        reference_static_type(self)

    def release(self, Stream stream not None):
        """Release the memory, so that pools reuse it in the order of `stream`.

        Without this call, pools reuse it when this object has ended and they have next waited for the device.

        Parameters
        ----------
        stream : rmm.pylibrmm.stream.Stream
            A stream that is ordered after the last launch of each graph.

        Examples
        --------
        >>> import rmm
        >>> from rmm.pylibrmm.stream import Stream
        >>> memory, stream = rmm.GraphMemory(), Stream()
        >>> memory.release(stream)  # with the stream that the graph ran on last
        """
        with nogil:
            self._memory.release(stream.view())

    def __eq__(self, other):
        if not isinstance(other, GraphMemory):
            return NotImplemented
        return self._memory.id() == (<GraphMemory>other)._memory.id()

    def __hash__(self):
        return hash(self._memory.id())


@cython.no_gc_clear
cdef class capture_scope:
    """A scope that tells pools that a stream captures a CUDA graph. It returns the memory of the graph.

    Parameters
    ----------
    stream : rmm.pylibrmm.stream.Stream
        The stream that captures, or any object that a `Stream` can be made from.
    memory : GraphMemory, optional
        The memory of the graph, which has to live as long as the graph may run; a new one if None.

    Examples
    --------
    >>> import rmm
    >>> stream = rmm.pylibrmm.stream.Stream()
    >>> with rmm.capture_scope(stream) as memory:
    ...     pass  # begin the capture, work on the stream, end the capture
    >>> memory.release(stream)  # after the last launch
    """

    def __cinit__(self, stream, GraphMemory memory=None):
        if stream is None:
            raise TypeError("stream argument cannot be None")
        self._stream = stream if isinstance(stream, Stream) else Stream(stream)
        self.memory = GraphMemory() if memory is None else memory

    def __dealloc__(self):
        reference_static_type(self)

    def __enter__(self):
        if self.memory is None:
            raise ValueError("the object is no scope: its constructor raised an exception, or did not run")
        if self._scope.get() != NULL:
            raise RuntimeError("this capture_scope is in use: make another one for a nested with statement")
        self._scope.reset(new cpp_capture_scope(self._stream.view(), self.memory._memory))
        return self.memory

    def __exit__(self, *exception):
        self._scope.reset()


describe_attribute(capture_scope, "memory", "The `GraphMemory` that the capture allocates from.")
