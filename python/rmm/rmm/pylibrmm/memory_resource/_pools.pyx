# SPDX-License-Identifier: Apache-2.0
"""Resources that allocate parts of larger blocks."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int64_t, uintptr_t
from libcpp cimport bool
from libcpp.memory cimport weak_ptr
from libcpp.optional cimport optional
from libcpp.string cimport string
from libcpp.vector cimport vector

from rmm.librmm._device_memory_resource cimport device_memory_resource
from rmm.librmm.tag_scope cimport tag as cpp_tag
from rmm.pylibrmm.helper cimport parse_bytes
from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource, UpstreamResourceAdaptor, lent_ptr, resource_ptr
from rmm.pylibrmm.memory_resource._conversions cimport (
    optional_pool_size,
    optional_size,
    pool_size_of,
    raise_error,
    size_of,
)
from rmm.pylibrmm.memory_resource._lent cimport lent_functions
from rmm.pylibrmm.scopes cimport tag

from rmm.pylibrmm._attributes import describe_attribute
from rmm.pylibrmm.memory_resource._base import _Finalizer
from rmm.pylibrmm.memory_resource._capabilities import _Binned, _Pool, _Suballocator, _Trimmable, _TrimmableOnRequest

__all__ = [
    "ArenaMemoryResource", "BinningMemoryResource", "CachedMemoryResource", "ConfiguredMemoryResource",
    "ElasticPoolMemoryResource", "FixedSizeMemoryResource", "PoolMemoryResource",
]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "rmm/cuda_device.hpp" namespace "rmm" nogil:
    size_t percent_of_free_device_memory(int percent) except +


cdef extern from "pylibrmm/memory_resource/_pools.hpp" namespace "rmm_python" nogil:
    resource_ptr make_pool(resource_ptr, size_t, optional[size_t]) except +raise_error
    resource_ptr make_arena(resource_ptr, optional[size_t], bool) except +raise_error
    resource_ptr make_fixed_size(resource_ptr, size_t, size_t) except +raise_error
    resource_ptr make_cached(resource_ptr, size_t, optional[size_t], size_t) except +raise_error

    cdef struct exported_block:
        size_t offset_bytes
        size_t bytes
        size_t chunk_bytes
        vector[int] descriptors
        vector[string] fabric_handles

    cdef cppclass elastic_pool_functions:
        elastic_pool_functions(device_memory_resource* pool)
        size_t tick()
        void pause(bool keeps, bool pinned) except +raise_error
        void resume() except +raise_error
        bool is_paused()
        void set_pausable(cpp_tag which) except +raise_error
        void pause(cpp_tag which, bool keeps, bool pinned) except +raise_error
        void resume(cpp_tag which) except +raise_error
        void retain_host_memory(bool on) except +
        const void* kept_contents(const void* ptr, size_t bytes) except +
        size_t mapped_bytes()
        size_t chunk_bytes()
        bool has_virtual_memory()
        exported_block export_descriptors(const void* ptr, size_t bytes) except +
        exported_block export_fabric(const void* ptr, size_t bytes) except +

    resource_ptr make_elastic_pool(size_t, optional[size_t], size_t, int64_t, bool, bool, bool, bool) except +raise_error
    void c_check_pool_sizes "rmm_python::pool_sizes::check"(size_t, optional[size_t]) except +raise_error
    void c_check_configuration "rmm_python::check_configuration"(string) except +raise_error
    resource_ptr make_configured(string, string&) except +raise_error
    resource_ptr make_binning(resource_ptr, int, int) except +raise_error
    void add_bin_to(resource_ptr, size_t, resource_ptr) except +raise_error


cdef extern from "pylibrmm/memory_resource/_suballocators.hpp" namespace "rmm_python" nogil:
    size_t c_trim_to "rmm_python::trim_to"(device_memory_resource*, size_t) except +


cdef class _Finalization:
    """Makes a pool give its unused memory back to an upstream that is written in Python."""

    cdef weak_ptr[device_memory_resource] pool
    cdef lent_ptr lent

    def __call__(self):
        cdef resource_ptr pool = self.pool.lock()
        if pool.get() != NULL and self.lent.get() != NULL and (<lent_functions*>self.lent.get()).has_live():
            with nogil:
                c_trim_to(pool.get(), 0)


cdef object finalizer_of(UpstreamResourceAdaptor pool):
    """Returns the finalizer of a pool that has an upstream with Python functions; None for other pools."""
    cdef DeviceMemoryResource below = pool.upstream_mr
    cdef _Finalization action
    while isinstance(below, UpstreamResourceAdaptor):
        below = (<UpstreamResourceAdaptor>below).upstream_mr
    if below._lent.get() == NULL:
        return None
    action = _Finalization()
    action.pool = weak_ptr[device_memory_resource](pool.c_obj)
    action.lent = below._lent
    return _Finalizer(action)


@cython.no_gc_clear
cdef class PoolMemoryResource(UpstreamResourceAdaptor, _Pool, _TrimmableOnRequest):
    """A pool: it takes large blocks from `upstream_mr` and allocates parts of them. It reuses freed memory in the order of streams.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take blocks from.
    initial_pool_size : int or str, optional
        The bytes to take when the pool is made; half of the free memory of the device if None. An int must be a multiple of 256. A
        str is rounded up to one.
    maximum_pool_size : int or str, optional
        The most bytes to take; no limit if None.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "4MiB")
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
    >>> pool.pool_size()
    1048576
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, initial_pool_size=None, maximum_pool_size=None):
        cdef resource_ptr upstream = upstream_mr.c_obj
        cdef optional[size_t] c_maximum = optional_pool_size(maximum_pool_size)
        cdef size_t c_initial
        if initial_pool_size is None:
            c_initial = percent_of_free_device_memory(50)
        else:
            c_initial = pool_size_of(initial_pool_size)
        with nogil:
            self.c_obj = make_pool(upstream, c_initial, c_maximum)
        self._finalizer = finalizer_of(self)


cdef class ArenaMemoryResource(UpstreamResourceAdaptor, _Suballocator):
    """A pool of fixed size: one block of `upstream_mr`, which is taken when the resource is made.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take the block from.
    arena_size : int or str, optional
        The bytes of the block, at least 1 MiB; half of the free memory of the device if None.
    dump_log_on_failure : bool, optional
        Whether to write a report to the file `rmm_arena_memory_dump.log` when the arena is out of memory.

    Raises
    ------
    RuntimeError
        If `arena_size` is below 1 MiB.

    Examples
    --------
    >>> import rmm
    >>> arena = rmm.mr.ArenaMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=arena)
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, arena_size=None, bool dump_log_on_failure=False):
        cdef resource_ptr upstream = upstream_mr.c_obj
        cdef optional[size_t] c_size = optional_size(arena_size)
        with nogil:
            self.c_obj = make_arena(upstream, c_size, dump_log_on_failure)


cdef class FixedSizeMemoryResource(UpstreamResourceAdaptor, _Suballocator):
    """A resource whose blocks all have one size. Larger allocations raise MemoryError.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.
    block_size : int or str, optional
        The bytes of a block.
    blocks_to_preallocate : int, optional
        The number of blocks to take at a time: when the resource is made, and when all blocks are in use.

    Examples
    --------
    >>> import rmm
    >>> fixed = rmm.mr.FixedSizeMemoryResource(rmm.mr.CudaMemoryResource(), block_size=4096, blocks_to_preallocate=16)
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=fixed)
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, block_size=1 << 20, size_t blocks_to_preallocate=128):
        cdef resource_ptr upstream = upstream_mr.c_obj
        cdef size_t c_block_size = size_of(block_size)
        with nogil:
            self.c_obj = make_fixed_size(upstream, c_block_size, blocks_to_preallocate)


@cython.no_gc_clear
cdef class BinningMemoryResource(UpstreamResourceAdaptor, _Binned):
    """A resource that sends each request to a bin by its size. Requests that are larger than all bins go to `upstream_mr`.

    `figures()` describes only the bins that it makes itself. If `upstream_mr` is a pool, `get_allocated_bytes()` and `pool_size()`
    describe that pool.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.
    min_size_exponent : int, optional
        The smallest bin is for 2**min_size_exponent bytes. No bins if -1.
    max_size_exponent : int, optional
        The largest bin is for 2**max_size_exponent bytes. No bins if -1.

    Raises
    ------
    ValueError
        If `min_size_exponent` is above `max_size_exponent`.

    Examples
    --------
    >>> import rmm
    >>> binning = rmm.mr.BinningMemoryResource(rmm.mr.CudaMemoryResource(), 10, 12)  # bins of 1, 2 and 4 KiB
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=binning)
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, int8_t min_size_exponent=-1, int8_t max_size_exponent=-1):
        cdef resource_ptr upstream = upstream_mr.c_obj
        self._bin_mrs = []
        if min_size_exponent != -1 and max_size_exponent != -1 and min_size_exponent > max_size_exponent:
            raise ValueError(f"min_size_exponent, {min_size_exponent}, is above max_size_exponent, {max_size_exponent}: "
                             "there would be no bin")
        with nogil:
            self.c_obj = make_binning(upstream, min_size_exponent, max_size_exponent)

    cpdef add_bin(self, object allocation_size, DeviceMemoryResource bin_resource=None):
        """Add a bin. No other thread may use the resource meanwhile.

        Parameters
        ----------
        allocation_size : int or str
            The bin serves requests of up to this size that are too large for the next smaller bin.
        bin_resource : DeviceMemoryResource, optional
            The resource of the bin, which is kept alive. If None, the bin has blocks of the size, taken from the upstream.

        Examples
        --------
        >>> import rmm
        >>> binning = rmm.mr.BinningMemoryResource(rmm.mr.CudaMemoryResource())
        >>> binning.add_bin("1KiB")
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=binning)  # from the bin
        """
        cdef resource_ptr resource
        cdef size_t size = size_of(allocation_size)
        self.usable()
        if bin_resource is not None:
            bin_resource.usable()
            resource = bin_resource.c_obj
        with nogil:
            add_bin_to(self.c_obj, size, resource)
        if bin_resource is not None:
            self._bin_mrs.append(bin_resource)

    @property
    def bin_mrs(self):
        """The resources that were passed to `add_bin`."""
        self.usable()  # raises TypeError if the constructor failed
        return self._bin_mrs


@cython.internal
cdef class KeptContents:
    """Exports the host's copy of paused memory as a buffer, and keeps the pool alive."""
    cdef object pool
    cdef const void* address
    cdef Py_ssize_t nbytes

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*>self.address, self.nbytes, 1, flags)


cdef class ElasticPoolMemoryResource(DeviceMemoryResource, _Pool, _Trimmable):
    """A pool over CUDA's virtual memory. It grows in place, loses little memory to fragmentation, and gives memory back to the device.

    UCX, as Dask uses it, sends this memory fast only with an option: see docs/dask.md.

    Parameters
    ----------
    initial_pool_size : int or str, optional
        The bytes to take when the pool is made. An int must be a multiple of 256. A str is rounded up to one.
    maximum_pool_size : int or str, optional
        The most bytes to take; no limit if None.
    chunk_size : int or str, optional
        The bytes of the smallest chunk; the unit of the device if None.
    decay_seconds : float, optional
        Memory that is unused for one to two of these periods goes back, in calls that grow the pool and in `tick`. If None, memory
        goes back only on request.
    peer_access : bool, optional
        Whether other devices may use the memory.
    share_descriptors : bool, optional
        Whether memory can be exported by file descriptors.
    share_fabric : bool, optional
        Whether memory can be exported by fabric handles.
    gpu_direct_rdma : bool, optional
        Whether network adapters may use the memory.

    Raises
    ------
    ValueError
        If `decay_seconds` is negative.
    RuntimeError
        If the device does not support an option.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.ElasticPoolMemoryResource()
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
    >>> del buffer
    >>> pool.release_unused() == pool.chunk_bytes
    True
    """

    def __cinit__(
        self,
        initial_pool_size=0,
        maximum_pool_size=None,
        *,
        chunk_size=None,
        decay_seconds=None,
        bool peer_access=False,
        bool share_descriptors=False,
        bool share_fabric=False,
        bool gpu_direct_rdma=False,
    ):
        cdef size_t c_initial = pool_size_of(initial_pool_size)
        cdef optional[size_t] c_maximum = optional_pool_size(maximum_pool_size)
        cdef size_t c_chunk = 0 if chunk_size is None else parse_bytes(chunk_size)
        cdef int64_t c_decay = -1
        if decay_seconds is not None:
            if not decay_seconds >= 0:
                raise ValueError(f"decay_seconds is {decay_seconds}, below 0")
            c_decay = round(decay_seconds * 1000)
        with nogil:
            self.c_obj = make_elastic_pool(
                c_initial, c_maximum, c_chunk, c_decay, peer_access, share_descriptors, share_fabric, gpu_direct_rdma)

    def tick(self):
        """Give memory back that has been unused for one to two periods of `decay_seconds`. Does not wait for the end of a period.

        Only this method and calls that grow the pool look for unused memory, so call it from time to time.

        Returns
        -------
        int
            The bytes given back. 0 until a period has ended, and always 0 without `decay_seconds`.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.ElasticPoolMemoryResource("64MiB")
        >>> released = pool.tick()
        """
        cdef size_t given_back
        with nogil:
            given_back = elastic_pool_functions(self.usable()).tick()
        return given_back

    def set_pausable(self, tag tag not None):
        """Give the later allocations of a tag their own memory, so that `pause` can pause only them.

        Parameters
        ----------
        tag : rmm.tag
            The tag.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.ElasticPoolMemoryResource()
        >>> cache = rmm.tag("cache")
        >>> pool.set_pausable(cache)
        >>> with cache:
        ...     buffer = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> pool.pause(tag=cache)
        >>> pool.resume(tag=cache)
        """
        cdef cpp_tag c_tag = tag._tag
        with nogil:
            elastic_pool_functions(self.usable()).set_pausable(c_tag)

    def pause(self, contents="pageable", *, tag tag=None):
        """Give the memory back to the device, except for that of pausable tags. Addresses must not be used until `resume`.

        Allocations keep their addresses, and may be freed meanwhile. Waits on the host for the device. No other thread may allocate
        at the same time.

        Parameters
        ----------
        contents : {"pageable", "pinned", "dropped"}, optional
            Whether to keep the contents in pageable or pinned memory of the host, or to lose them.
        tag : rmm.tag, optional
            Pause only allocations that were made under this tag since `set_pausable`; None pauses all others.

        Raises
        ------
        ValueError
            If `contents` is unknown.
        RuntimeError
            If the pool, or the tag, is paused already; if the pool has no virtual memory, or has exported memory; if `set_pausable`
            was not called for the tag; or if a capture of a CUDA graph forbids the wait.
        MemoryError
            If the host has no memory for the contents. The pool is not paused then.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.ElasticPoolMemoryResource()
        >>> buffer = rmm.DeviceBuffer(size=5, mr=pool)
        >>> buffer.copy_from_host(b"Hello")
        >>> pool.pause()
        >>> pool.mapped_bytes
        0
        >>> pool.resume()
        >>> buffer.tobytes()
        b'Hello'
        """
        cdef bool keeps = contents != "dropped"
        cdef bool pinned = contents == "pinned"
        cdef cpp_tag c_tag
        if contents not in ("dropped", "pageable", "pinned"):
            raise ValueError(f'contents is {contents!r}; it takes "dropped", "pageable" or "pinned"')
        if tag is None:
            with nogil:
                elastic_pool_functions(self.usable()).pause(keeps, pinned)
        else:
            c_tag = tag._tag
            with nogil:
                elastic_pool_functions(self.usable()).pause(c_tag, keeps, pinned)

    def resume(self, *, tag tag=None):
        """Map memory to the paused addresses again, and restore the contents. Ends only the pause that had the same `tag`.

        Parameters
        ----------
        tag : rmm.tag, optional
            The tag that was passed to `pause`; None if none was passed.

        Raises
        ------
        RuntimeError
            If the pool, or the tag, is not paused.
        MemoryError
            If there is not enough memory. The pool is still paused then.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.ElasticPoolMemoryResource("64MiB")
        >>> pool.pause()
        >>> pool.resume()
        >>> pool.mapped_bytes
        67108864
        """
        cdef cpp_tag c_tag
        if tag is None:
            with nogil:
                elastic_pool_functions(self.usable()).resume()
        else:
            c_tag = tag._tag
            with nogil:
                elastic_pool_functions(self.usable()).resume(c_tag)

    def retain_host_memory(self, bool on=True):
        """Set whether `resume` keeps the host's memory for the next pause. Setting it to False frees that memory. Initially off.

        Parameters
        ----------
        on : bool, optional
            Whether to keep it.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.ElasticPoolMemoryResource()
        >>> pool.retain_host_memory()
        """
        with nogil:
            elastic_pool_functions(self.usable()).retain_host_memory(on)

    def kept_contents(self, uintptr_t ptr, size_t nbytes):
        """Return the host's copy of memory that is paused with its contents.

        Parameters
        ----------
        ptr : int
            The address in the device's memory.
        nbytes : int
            The bytes.

        Returns
        -------
        memoryview or None
            The copy, which must not be used after `resume`. None if the memory is not paused, or if its contents were dropped.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.ElasticPoolMemoryResource()
        >>> buffer = rmm.DeviceBuffer(size=5, mr=pool)
        >>> buffer.copy_from_host(b"Hello")
        >>> pool.pause()
        >>> bytes(pool.kept_contents(buffer.ptr, 5))
        b'Hello'
        >>> pool.resume()
        """
        cdef const void* copy
        with nogil:
            copy = elastic_pool_functions(self.usable()).kept_contents(<const void*>ptr, nbytes)
        if copy == NULL:
            return None
        cdef KeptContents kept = KeptContents.__new__(KeptContents)
        kept.pool    = self
        kept.address = copy
        kept.nbytes  = <Py_ssize_t>nbytes
        return memoryview(kept)

    def export_descriptors(self, uintptr_t ptr, size_t nbytes):
        """Export a block to other processes of this machine. The pool must have been made with `share_descriptors`.

        The block has to stay allocated as long as others use it. Others can access whole chunks, with other memory in them. The part
        of the pool with this block cannot be paused any more. Send the object with `multiprocessing`, which then refuses processes of
        other users. If you send the numbers yourself, check who gets them.

        Parameters
        ----------
        ptr : int
            The address of the block.
        nbytes : int
            The bytes of the block.

        Returns
        -------
        rmm.mr.ExportedMemory
            The descriptors, which can be sent with `multiprocessing`.

        Raises
        ------
        RuntimeError
            If the pool was made without `share_descriptors`.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.ElasticPoolMemoryResource(share_descriptors=True)
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> with pool.export_descriptors(buffer.ptr, buffer.size) as exported:
        ...     descriptors = exported.descriptors  # what multiprocessing sends, as in `queue.put(exported)`
        """
        return export_by(self, ptr, nbytes, False)

    def export_fabric(self, uintptr_t ptr, size_t nbytes):
        """Export a block to other machines of the same fabric. The pool must have been made with `share_fabric`.

        The block has to stay allocated as long as others use it. Others can access whole chunks, with other memory in them. The part
        of the pool with this block cannot be paused any more. Nobody checks the user who imports fabric handles: send them only to
        processes that you trust.

        Parameters
        ----------
        ptr : int
            The address of the block.
        nbytes : int
            The bytes of the block.

        Returns
        -------
        rmm.mr.ExportedMemory
            The fabric handles, which can be sent by any means.

        Raises
        ------
        RuntimeError
            If the pool was made without `share_fabric`.
        """
        return export_by(self, ptr, nbytes, True)

    @property
    def is_paused(self):
        """Whether the pool is paused as a whole. False if only tags are paused."""
        return elastic_pool_functions(self.usable()).is_paused()

    @property
    def mapped_bytes(self):
        """Bytes of device memory that the pool and its pausable tags hold, without paused memory.

        `pool_size()` counts paused memory, but nothing of pausable tags.
        """
        return elastic_pool_functions(self.usable()).mapped_bytes()

    @property
    def chunk_bytes(self):
        """Bytes of the smallest chunk, in which memory is taken and given back; 0 if the device has no virtual memory."""
        return elastic_pool_functions(self.usable()).chunk_bytes()

    @property
    def has_virtual_memory(self):
        """Whether the device has virtual memory. If not, this is a pool without it."""
        return elastic_pool_functions(self.usable()).has_virtual_memory()


cdef object export_by(ElasticPoolMemoryResource pool, uintptr_t ptr, size_t nbytes, bint to_fabric):
    """Exports `nbytes` bytes at `ptr`, which belong to `pool`, as an `ExportedMemory`."""
    from rmm.mr._exported_memory import ExportedMemory

    cdef exported_block block
    with nogil:
        if to_fabric:
            block = elastic_pool_functions(pool.usable()).export_fabric(<const void*>ptr, nbytes)
        else:
            block = elastic_pool_functions(pool.usable()).export_descriptors(<const void*>ptr, nbytes)
    return ExportedMemory(
        block.offset_bytes,
        block.bytes,
        block.chunk_bytes,
        tuple(block.descriptors),
        tuple(block.fabric_handles),
    )


@cython.no_gc_clear
cdef class CachedMemoryResource(UpstreamResourceAdaptor, _Pool, _Trimmable):
    """A front cache: a pool over a resource that shares its memory with others, such as `CudaAsyncMemoryResource`.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.
    initial_size : int or str, optional
        The bytes to take when the cache is made. An int must be a multiple of 256. A str is rounded up to one.
    maximum_size : int or str, optional
        The most bytes to take; no limit if None.
    block_size : int or str, optional
        The bytes to take at a time.

    Examples
    --------
    >>> import rmm
    >>> cache = rmm.mr.CachedMemoryResource(rmm.mr.CudaAsyncMemoryResource(), block_size="1MiB")
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=cache)
    >>> del buffer
    >>> unused = cache.release_unused()  # goes back to the driver
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, initial_size=0, maximum_size=None, block_size=64 << 20):
        cdef resource_ptr upstream = upstream_mr.c_obj
        cdef size_t c_initial = pool_size_of(initial_size)
        cdef optional[size_t] c_maximum = optional_pool_size(maximum_size)
        cdef size_t c_block = parse_bytes(block_size)
        with nogil:
            self.c_obj = make_cached(upstream, c_initial, c_maximum, c_block)
        self._finalizer = finalizer_of(self)


def expect_pool_sizes(initial_pool_size, maximum_pool_size):
    """Raises the exception of `PoolMemoryResource` if it refuses the sizes. Needs no device."""
    cdef size_t c_initial = 0 if initial_pool_size is None else pool_size_of(initial_pool_size)
    c_check_pool_sizes(c_initial, optional_pool_size(maximum_pool_size))


def pool_behind(resource):
    """Returns the pool that a resource allocates from, or the resource itself if it is a pool; None if there is no pool."""
    bins = None
    while not isinstance(resource, _Suballocator) or isinstance(resource, BinningMemoryResource):
        if isinstance(resource, BinningMemoryResource):
            bins = bins or resource  # a pool below the bins counts their memory, too
        if not isinstance(resource, UpstreamResourceAdaptor):
            return bins
        resource = resource.get_upstream()
    return resource


def check_configuration(str configuration not None):
    """Raise the ValueError of `ConfiguredMemoryResource` if the text is not a configuration. Needs no device."""
    c_check_configuration(configuration.encode())


cdef class ConfiguredMemoryResource(DeviceMemoryResource, _Pool, _Trimmable):
    """The resource that a configuration text describes, with all its upstreams.

    Parameters
    ----------
    configuration : str
        For example "pool,initial=1GiB,max=80%" or "recommended"; see docs/configuration.md.

    Raises
    ------
    ValueError
        If the text is not a configuration. The message shows the place.

    Examples
    --------
    >>> import rmm
    >>> resource = rmm.mr.ConfiguredMemoryResource("pool,initial=1MiB")
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=resource)
    >>> resource.pool_size()
    1048576
    """

    def __cinit__(self, str configuration not None):
        cdef string c_configuration = configuration.encode()
        cdef string c_explanation
        with nogil:
            self.c_obj = make_configured(c_configuration, c_explanation)
        self.configuration = configuration
        self.explanation = c_explanation.decode()

    def __repr__(self):
        return f"ConfiguredMemoryResource({self.configuration!r})"


describe_attribute(ConfiguredMemoryResource, "configuration", "The text that the resource was made from.")
describe_attribute(ConfiguredMemoryResource, "explanation", "The reasons why the resource was chosen, one sentence on each line.")
