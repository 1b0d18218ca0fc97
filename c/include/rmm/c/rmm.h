/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RMM_C_RMM_H
#define RMM_C_RMM_H

/*
 * The C interface of RMM: librmm_c.so makes memory resources from a line of text, and allocates from them.
 *
 *   rmm_c_resource* pool;
 *   void* block;
 *   if (rmm_c_resource_create("pool,initial=1GiB", RMM_C_CURRENT_DEVICE, &pool) != RMM_C_OK) {
 *     fprintf(stderr, "%s\n", rmm_c_last_failure_text());
 *   }
 *   rmm_c_resource_allocate(pool, bytes, 0, stream, &block);
 *   rmm_c_resource_deallocate(pool, block, bytes, 0, stream);
 *   rmm_c_resource_destroy(pool);
 *
 * Rules that hold for all functions:
 *
 * Language    C11 or later, or C++. No header of CUDA is needed: a stream is the cudaStream_t or CUstream as a void*.
 * Threads     Every function may be called by any thread at any time. A resource must not be destroyed while another thread
 *             allocates from it. Blocks may be deallocated during and after rmm_c_resource_destroy().
 * Failures    A function that can fail returns a rmm_c_status. RMM_C_OK is 0. A failed call changes nothing, and writes 0
 *             or a null pointer to its results. The text of the failure is kept for the calling thread.
 *             No function throws or ends the process.
 * Streams     A null stream and (void*)1 are the legacy default stream of the resource's device; (void*)2 is the
 *             default stream of the thread. All other streams are made by the program.
 * Devices     Any device may be current. Calls work on the resource's device, and leave the current device as it is.
 * Exit        Once the process begins to exit, functions no longer call CUDA: deallocation and destruction do
 *             nothing, other calls return RMM_C_UNAVAILABLE. In a child of fork(), calls do the same with objects that the parent
 *             made, and with new ones if the parent had used CUDA through this library.
 * Symbols     The library exports the functions of this header and nothing else. It shares no state with any other RMM of the
 *             process: no current resources, no announced captures, no tags. It stays loaded until the process ends.
 * Versions    While the name librmm_c.so.1 stays, functions, status codes and members of structs are only added, at the end.
 *             A program that was compiled for 1.x runs with each 1.y where y >= x.
 */

#include <stddef.h>
#include <stdint.h>

/* The version of this header. */
#define RMM_C_VERSION_MAJOR 1
#define RMM_C_VERSION_MINOR 2
#define RMM_C_VERSION (RMM_C_VERSION_MAJOR * 1000 + RMM_C_VERSION_MINOR)

#if defined(__GNUC__)
#define RMM_C_API __attribute__((visibility("default")))
#else
#define RMM_C_API
#endif

#if defined(__cplusplus)
#define RMM_C_NOEXCEPT noexcept
extern "C" {
#else
#define RMM_C_NOEXCEPT
#endif

/* --- versions and failures ------------------------------------------------------------------------------------------ */

/* The result of a call. */
typedef enum rmm_c_status {
  RMM_C_NO_STATUS     = -1, /* never returned; makes the type signed, so that it converts to int without a warning */
  RMM_C_OK            = 0,
  RMM_C_OUT_OF_MEMORY = 1, /* there is not enough memory; if a pool failed, rmm_c_last_failure_report() has figures */
  RMM_C_HOST_OUT_OF_MEMORY = 2, /* the process has no memory for the bookkeeping */
  RMM_C_ALLOCATION_FAILED  = 3, /* an allocation failed for another reason than a lack of memory */
  RMM_C_BAD_CONFIGURATION  = 4, /* the configuration has a mistake, or asks for what the device cannot do */
  RMM_C_INVALID_ARGUMENT   = 5, /* a null pointer, an alignment that is not available, a device that does not exist */
  RMM_C_NOT_SUPPORTED      = 6, /* the resource cannot do this: not every resource has figures or can trim */
  RMM_C_MISUSE             = 7, /* a capture that is not announced, or a resource that was destroyed */
  RMM_C_CUDA_ERROR         = 8, /* a call of CUDA failed; the text names its error */
  RMM_C_UNAVAILABLE        = 9, /* the process exits, or is a child of one that had used CUDA */
  RMM_C_FAILED             = 10 /* another failure, such as a file that cannot be opened; the text describes it */
} rmm_c_status;

/* Returns RMM_C_VERSION of the loaded library: 1000 times the major version, plus the minor version. */
RMM_C_API uint32_t rmm_c_version(void) RMM_C_NOEXCEPT;

/* Returns the release of RMM in the library, such as "24.08.00". */
RMM_C_API char const* rmm_c_engine_version(void) RMM_C_NOEXCEPT;

/* Returns the name of a status: "RMM_C_OUT_OF_MEMORY"; "unknown status" for any other number. */
RMM_C_API char const* rmm_c_status_name(int status) RMM_C_NOEXCEPT;

/* Returns the status of this thread's last failed call; RMM_C_OK if none failed. Calls that succeed do not change it. */
RMM_C_API rmm_c_status rmm_c_last_failure(void) RMM_C_NOEXCEPT;

/* Returns the text of this thread's last failure, of up to 8191 bytes; "" if there is none. If a pool ran out of memory, its report
 * follows in further lines. Valid until the next failure of this thread. */
RMM_C_API char const* rmm_c_last_failure_text(void) RMM_C_NOEXCEPT;

/* Stands for a number that is unknown, or for the absence of a limit. */
#define RMM_C_UNKNOWN UINT64_MAX

/* The figures of a pool when it could not serve an allocation. docs/out-of-memory.md explains them. */
typedef struct rmm_c_report {
  size_t size; /* set it to sizeof(rmm_c_report) before the call */

  uint64_t asked_bytes;
  uint64_t alignment_bytes;
  int64_t device; /* the resource's; -1 if unknown */

  uint64_t maximum_bytes; /* the most that the pool may reserve */
  uint64_t reserved_bytes;
  uint64_t live_bytes;
  uint64_t free_bytes;
  uint64_t cached_bytes;
  uint64_t largest_free_bytes;

  uint64_t device_free_bytes;
  uint64_t device_total_bytes;
  uint64_t held_by_others_bytes; /* on the device, outside of this pool */

  uint64_t failures; /* of this pool so far */
} rmm_c_report;

/* Writes the report of this thread's last failure. RMM_C_NOT_SUPPORTED if that has none: pools, arenas and resources of fixed size
 * make reports. A failure of this call does not replace the last failure. */
RMM_C_API rmm_c_status rmm_c_last_failure_report(rmm_c_report* report) RMM_C_NOEXCEPT;

/* --- resources ------------------------------------------------------------------------------------------------------ */

/* A resource, with everything that it allocates from. */
typedef struct rmm_c_resource rmm_c_resource;

/* The device that is current in the calling thread. */
#define RMM_C_CURRENT_DEVICE (-1)

/* Makes a resource on a device. `configuration` is a text such as "pool,max=80%" or "elastic,statistics"; docs/configuration.md has
 * all names. Null means the environment variable RMM_RESOURCE, or "recommended" if that is not set. */
RMM_C_API rmm_c_status rmm_c_resource_create(char const* configuration,
                                             int device,
                                             rmm_c_resource** resource) RMM_C_NOEXCEPT;

/* Gives a resource up, which also ends rmm_c_serve_libraries() with it. It ends at once if none of its blocks is allocated, else in the
 * call that gives the last block back. Until then rmm_c_resource_deallocate() and rmm_c_resource_device() still take the resource,
 * and all other calls return RMM_C_MISUSE. A null resource is ignored. RMM_C_MISUSE for a resource that was given up already, and
 * for those of rmm_c_default_resource(). */
RMM_C_API rmm_c_status rmm_c_resource_destroy(rmm_c_resource* resource) RMM_C_NOEXCEPT;

/* Returns the resource of a device that RMM_RESOURCE configures, or "recommended". The first call for a device makes it; it lives as
 * long as the process. */
RMM_C_API rmm_c_status rmm_c_default_resource(int device, rmm_c_resource** resource) RMM_C_NOEXCEPT;

/* Allocates at least `bytes` bytes for work on `stream`. For 0 bytes *block is null, which may be deallocated.
 *
 * `alignment` is a power of two, or 0 for the default of 256 bytes. More than 256 requires a resource with the option `alignment` of
 * at least as much in its configuration, and a block of at least its `alignment_threshold`. */
RMM_C_API rmm_c_status rmm_c_resource_allocate(
  rmm_c_resource* resource, size_t bytes, size_t alignment, void* stream, void** block) RMM_C_NOEXCEPT;

/* Gives a block back in the order of `stream`, with the size and alignment of its allocation. If other streams have work on the
 * block, order `stream` after that work. Returns no status: misuse only becomes this thread's last failure. A null block is
 * ignored. */
RMM_C_API void rmm_c_resource_deallocate(
  rmm_c_resource* resource, void* block, size_t bytes, size_t alignment, void* stream) RMM_C_NOEXCEPT;

/* Gives unused memory back to the device until at most `keep_bytes` stay, if possible. `released_bytes` may be null.
 * Supported by "elastic", "pool", "cached", "cuda_async" and "pinned_pool", also below adaptors and "binning"; RMM_C_NOT_SUPPORTED
 * for other resources. "pool" gives whole blocks back to its upstream, and then its upstream is trimmed, too. */
RMM_C_API rmm_c_status rmm_c_resource_trim(rmm_c_resource* resource,
                                           size_t keep_bytes,
                                           size_t* released_bytes) RMM_C_NOEXCEPT;

/* Returns the device that a resource was made on; RMM_C_CURRENT_DEVICE for null. */
RMM_C_API int rmm_c_resource_device(rmm_c_resource const* resource) RMM_C_NOEXCEPT;

/* The present memory of a resource, and counters since it was made. docs/pools.md explains the figures. */
typedef struct rmm_c_figures {
  size_t size; /* set it to sizeof(rmm_c_figures) before the call */

  uint64_t live_blocks; /* not given back yet; includes calls in progress on other threads */
  uint64_t live_bytes;
  uint64_t free_bytes;
  uint64_t graph_bytes;  /* kept for CUDA graphs */
  uint64_t cached_bytes; /* the part of free_bytes in caches of single threads */
  uint64_t reserved_bytes;
  uint64_t largest_free_bytes;
  uint64_t upstream_blocks;
  uint64_t caches;

  /* how often an allocation was served since the resource was made ... */
  uint64_t from_other_streams;      /* ... by memory of another stream, after a wait on the device */
  uint64_t from_other_caches;       /* ... out of the cache of another thread or stream */
  uint64_t coalesced;               /* ... by neighbours that lay in different caches */
  uint64_t device_synchronizations; /* ... after a wait on the host for the whole device */
  uint64_t failures;                /* ... not at all */
} rmm_c_figures;

/* Writes the figures of a pool, an arena, a fixed-size or binning resource or a cache. For other resources returns RMM_C_NOT_SUPPORTED:
 * then only live_blocks is known, and the rest is 0. Stops the allocating threads for a moment: not for hot paths.
 *
 * Writes no more than `size` bytes, and sets `size` to the bytes that the library knows of these. */
RMM_C_API rmm_c_status rmm_c_resource_figures(rmm_c_resource* resource, rmm_c_figures* figures) RMM_C_NOEXCEPT;

/* Calls visit(argument, tag, live_bytes, live_blocks) for each tag with live allocations, in descending order of bytes. The tag is "" for
 * allocations without one, and valid until `visit` returns. Needs the option `tags` of the outermost pool, else RMM_C_NOT_SUPPORTED.
 * librmm_c.so makes no tags: there all allocations are without one. Libraries with this interface that make tags of NVTX ranges, such
 * as that of rmm-engine-rapids, tell them apart.
 *
 * `visit` may call this interface, also to give the resource up: no lock is held, and all figures were read before its first call. If it
 * throws an exception of C++, it is not called again, and the exception becomes the status. New in 1.2. */
RMM_C_API rmm_c_status
rmm_c_resource_visit_tags(rmm_c_resource* resource,
                          void (*visit)(void* argument, char const* tag, uint64_t live_bytes, uint64_t live_blocks),
                          void* argument) RMM_C_NOEXCEPT;

/* --- CUDA graphs ---------------------------------------------------------------------------------------------------- */

/* Memory of CUDA graphs. Keep it as long as a graph that was captured with it may run. */
typedef struct rmm_c_graph_memory rmm_c_graph_memory;

/* The announcement that a stream captures. */
typedef struct rmm_c_capture rmm_c_capture;

/* Makes a graph memory. docs/cuda-graphs.md has the rules. */
RMM_C_API rmm_c_status rmm_c_graph_memory_create(rmm_c_graph_memory** memory) RMM_C_NOEXCEPT;

/* Gives a graph memory up. No graph that was captured with it may still run. Pools reuse it after they next wait for the device.
 * Null is ignored. */
RMM_C_API void rmm_c_graph_memory_destroy(rmm_c_graph_memory* memory) RMM_C_NOEXCEPT;

/* Like rmm_c_graph_memory_destroy(), in the order of `stream`: pools need not wait. The last launch of each graph must come before. */
RMM_C_API void rmm_c_graph_memory_destroy_on(rmm_c_graph_memory* memory, void* stream) RMM_C_NOEXCEPT;

/* Announces that `stream` captures a CUDA graph, right before or after the capture begins. All resources of this library then serve
 * allocations of the capture from `memory`. Another RMM in the process neither sees this announcement nor shows its own here. */
RMM_C_API rmm_c_status rmm_c_capture_begin(rmm_c_graph_memory* memory,
                                           void* stream,
                                           rmm_c_capture** capture) RMM_C_NOEXCEPT;

/* Ends the announcement, when the capture has ended. Null is ignored. */
RMM_C_API void rmm_c_capture_end(rmm_c_capture* capture) RMM_C_NOEXCEPT;

/* --- PyTorch -------------------------------------------------------------------------------------------------------- */

/* The two functions that torch.cuda.memory.CUDAPluggableAllocator asks for; `stream` is a cudaStream_t. They allocate from
 * rmm_c_default_resource(device). On a failure, the first prints the reason on standard error and returns null:
 * PyTorch expects a function that does not throw, and has no other way to report. */
RMM_C_API void* rmm_c_torch_allocate(size_t bytes, int device, void* stream) RMM_C_NOEXCEPT;
RMM_C_API void rmm_c_torch_deallocate(void* block, size_t bytes, int device, void* stream) RMM_C_NOEXCEPT;

/* --- other libraries ------------------------------------------------------------------------------------------------ */

/* Makes a resource serve what other libraries of the process, such as cuBLAS, allocate from the driver on its device, in place of the
 * resource before it. With null, or once the resource is given up, the driver serves them again. RMM_C_NOT_SUPPORTED unless the process
 * was started with LD_PRELOAD=librmm_audit.so and RMM_AUDIT=route:current; docs/audit.md has the rules. Each block goes back to its own
 * resource; a resource that was given up lives until libraries have given all of its blocks back. New in 1.1. */
RMM_C_API rmm_c_status rmm_c_serve_libraries(int device, rmm_c_resource* resource) RMM_C_NOEXCEPT;

#if defined(__cplusplus)
}
#endif

#endif /* RMM_C_RMM_H */
