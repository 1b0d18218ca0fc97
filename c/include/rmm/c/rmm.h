/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RMM_C_RMM_H
#define RMM_C_RMM_H

/*
 * The C interface of RMM: librmm_c.so makes a memory resource from a line of text, and allocates from it.
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
 *             allocates from it; deallocation may go on meanwhile and afterwards.
 * Failures    A function that can fail returns a rmm_c_status. RMM_C_OK is 0. A call that fails has changed nothing, and wrote 0
 *             or a null pointer to what it would have returned. The text of the failure is kept for the thread that called.
 *             No function throws or ends the process.
 * Streams     A null stream is the legacy default stream of the resource's device; (void*)1 is the same; (void*)2 is the
 *             default stream of the thread. Other streams are those that the program made.
 * Devices     Any device may be current. Calls work on the device that the resource was made on, and change nothing of which
 *             device is current.
 * Exit        From when the process begins to exit, functions no longer call CUDA: deallocation and destruction do
 *             nothing, other calls return RMM_C_UNAVAILABLE. The same holds in a child of fork() for what its parent made, and for
 *             all that is new if the parent had used CUDA through this library.
 * Symbols     The library shows the functions of this header and nothing else. It shares no state with any other RMM of the
 *             process: no current resources, no announced captures, no tags. It stays loaded until the process ends.
 * Versions    Functions, status codes and members of structs are added at the end, and never changed or removed, as long as the name
 *             librmm_c.so.1 stays. A program that was compiled for 1.x runs with each 1.y where y >= x.
 */

#include <stddef.h>
#include <stdint.h>

/* The version of this header. */
#define RMM_C_VERSION_MAJOR 1
#define RMM_C_VERSION_MINOR 1
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

/* What a call says of its success. */
typedef enum rmm_c_status {
  RMM_C_NO_STATUS = -1, /* no call returns it; because of it the type is signed, and becomes an int without a warning */
  RMM_C_OK        = 0,
  RMM_C_OUT_OF_MEMORY = 1, /* there is not enough memory; rmm_c_last_failure_report() has figures where a pool failed */
  RMM_C_HOST_OUT_OF_MEMORY = 2, /* the process itself has no memory for the bookkeeping */
  RMM_C_ALLOCATION_FAILED  = 3, /* memory could not be had, for another reason than that there is too little */
  RMM_C_BAD_CONFIGURATION  = 4, /* the configuration has a mistake, or asks for what the device cannot do */
  RMM_C_INVALID_ARGUMENT   = 5, /* a null pointer, an alignment that is not available, a device that there is not */
  RMM_C_NOT_SUPPORTED      = 6, /* the resource cannot do this: figures and trimming are not for all of them */
  RMM_C_MISUSE             = 7, /* not now: a capture that is not announced, or a resource that was destroyed */
  RMM_C_CUDA_ERROR         = 8, /* a call of CUDA failed; the text names its error */
  RMM_C_UNAVAILABLE        = 9, /* the process exits, or is a child of one that had used CUDA */
  RMM_C_FAILED             = 10 /* something else, such as a file that cannot be opened; the text says what */
} rmm_c_status;

/* Returns RMM_C_VERSION of the library: 1000 times the major version, plus the minor version. */
RMM_C_API uint32_t rmm_c_version(void) RMM_C_NOEXCEPT;

/* Returns the release of RMM that the library is made of, such as "24.08.00". */
RMM_C_API char const* rmm_c_engine_version(void) RMM_C_NOEXCEPT;

/* Returns the name of a status: "RMM_C_OUT_OF_MEMORY"; "unknown status" for a number that is none. */
RMM_C_API char const* rmm_c_status_name(int status) RMM_C_NOEXCEPT;

/* Returns the status of the last call of this thread that failed; RMM_C_OK if none did. Calls that succeed keep it. */
RMM_C_API rmm_c_status rmm_c_last_failure(void) RMM_C_NOEXCEPT;

/* Returns what failed then, in words, in up to 8191 bytes; "" if nothing did. If a pool had no memory, its report follows in further
 * lines. Valid until the next failure of this thread. */
RMM_C_API char const* rmm_c_last_failure_text(void) RMM_C_NOEXCEPT;

/* Stands for a number that is not known, or a limit that there is not. */
#define RMM_C_UNKNOWN UINT64_MAX

/* What a pool had when it could not serve an allocation. docs/out-of-memory.md explains the figures. */
typedef struct rmm_c_report {
  size_t size; /* set it to sizeof(rmm_c_report) before the call */

  uint64_t asked_bytes;
  uint64_t alignment_bytes;
  int64_t device; /* that was current; -1 if unknown */

  uint64_t maximum_bytes; /* that the pool may reserve */
  uint64_t reserved_bytes;
  uint64_t live_bytes;
  uint64_t free_bytes;
  uint64_t cached_bytes;
  uint64_t largest_free_bytes;

  uint64_t device_free_bytes;
  uint64_t device_total_bytes;
  uint64_t held_by_others_bytes; /* on the device, besides this pool */

  uint64_t failures; /* of this pool so far */
} rmm_c_report;

/* Writes the report of the last failure of this thread. RMM_C_NOT_SUPPORTED if that has none: only pools make one. A failure of
 * this call does not replace the last failure. */
RMM_C_API rmm_c_status rmm_c_last_failure_report(rmm_c_report* report) RMM_C_NOEXCEPT;

/* --- resources ------------------------------------------------------------------------------------------------------ */

/* A resource and all that it is made over. */
typedef struct rmm_c_resource rmm_c_resource;

/* The device that is current in the thread that calls. */
#define RMM_C_CURRENT_DEVICE (-1)

/* Makes a resource on a device. `configuration` is a text such as "pool,max=80%" or "elastic,statistics"; docs/configuration.md has
 * all names. With null it is what the environment variable RMM_RESOURCE says, or "recommended" where that is not set. */
RMM_C_API rmm_c_status rmm_c_resource_create(char const* configuration,
                                             int device,
                                             rmm_c_resource** resource) RMM_C_NOEXCEPT;

/* Gives a resource up. It ends at once if no block of it is allocated, else in the call that gives the last block back: until then
 * rmm_c_resource_deallocate() takes the resource as before, and all other calls answer RMM_C_MISUSE. A null resource is
 * ignored. RMM_C_MISUSE also for a resource that is destroyed already, and for those of rmm_c_default_resource(). */
RMM_C_API rmm_c_status rmm_c_resource_destroy(rmm_c_resource* resource) RMM_C_NOEXCEPT;

/* Returns the resource of a device that RMM_RESOURCE chooses, or "recommended". It is made by the first call for the device, and lives as
 * long as the process. */
RMM_C_API rmm_c_status rmm_c_default_resource(int device, rmm_c_resource** resource) RMM_C_NOEXCEPT;

/* Allocates at least `bytes` bytes for work on `stream`. For 0 bytes *block is null, which may be given back.
 *
 * `alignment` is a power of two, or 0 for that of all blocks: 256 bytes. More than 256 is available from a resource whose
 * configuration has an option `alignment` of at least as much, for blocks of at least its `alignment_threshold`. */
RMM_C_API rmm_c_status rmm_c_resource_allocate(
  rmm_c_resource* resource, size_t bytes, size_t alignment, void* stream, void** block) RMM_C_NOEXCEPT;

/* Gives a block back, with the size and alignment that it was asked with, in the order of `stream`: work on the block that was
 * submitted to other streams has to be ordered before. Never fails. A null block is ignored. */
RMM_C_API void rmm_c_resource_deallocate(
  rmm_c_resource* resource, void* block, size_t bytes, size_t alignment, void* stream) RMM_C_NOEXCEPT;

/* Gives unused memory back to the device until at most `keep_bytes` stay, as far as that goes. `released_bytes` may be null.
 * RMM_C_NOT_SUPPORTED for resources that keep no memory, or cannot give it back: "elastic", "cached" and "cuda_async" can. */
RMM_C_API rmm_c_status rmm_c_resource_trim(rmm_c_resource* resource,
                                           size_t keep_bytes,
                                           size_t* released_bytes) RMM_C_NOEXCEPT;

/* Returns the device that a resource was made on; RMM_C_CURRENT_DEVICE for null. */
RMM_C_API int rmm_c_resource_device(rmm_c_resource const* resource) RMM_C_NOEXCEPT;

/* What a resource has at one moment, and how it came by it. docs/pools.md explains the figures. */
typedef struct rmm_c_figures {
  size_t size; /* set it to sizeof(rmm_c_figures) before the call */

  uint64_t live_blocks; /* allocated through this interface, and not given back */
  uint64_t live_bytes;
  uint64_t free_bytes;
  uint64_t graph_bytes;  /* kept for CUDA graphs */
  uint64_t cached_bytes; /* the part of free_bytes in caches of single threads */
  uint64_t reserved_bytes;
  uint64_t largest_free_bytes;
  uint64_t upstream_blocks;
  uint64_t caches;

  /* how often an allocation was served, since the resource was made, ... */
  uint64_t from_other_streams;      /* ... by memory of another stream, after a wait on the device */
  uint64_t from_other_caches;       /* ... out of the cache of another thread or stream */
  uint64_t coalesced;               /* ... by neighbours that lay in different caches */
  uint64_t device_synchronizations; /* ... after a wait on the host for the whole device */
  uint64_t failures;                /* ... not at all */
} rmm_c_figures;

/* Writes the figures of a pool, an arena, a fixed-size or binning resource or a cache. RMM_C_NOT_SUPPORTED for other resources; then
 * only live_blocks is known, and the rest is 0. Stops the threads that allocate for a moment: not for hot paths.
 *
 * The library writes no more than `size` bytes, and sets `size` to the bytes that it knows of these. */
RMM_C_API rmm_c_status rmm_c_resource_figures(rmm_c_resource* resource, rmm_c_figures* figures) RMM_C_NOEXCEPT;

/* --- CUDA graphs ---------------------------------------------------------------------------------------------------- */

/* Memory that CUDA graphs have for themselves: keep it as long as a graph may run that was captured with it. */
typedef struct rmm_c_graph_memory rmm_c_graph_memory;

/* An announcement that a stream captures. */
typedef struct rmm_c_capture rmm_c_capture;

/* Makes a graph memory. docs/cuda-graphs.md has the rules. */
RMM_C_API rmm_c_status rmm_c_graph_memory_create(rmm_c_graph_memory** memory) RMM_C_NOEXCEPT;

/* Gives a graph memory up when no graph that was captured with it runs any more. Pools use it again after they next wait for the device.
 * Null is ignored. */
RMM_C_API void rmm_c_graph_memory_destroy(rmm_c_graph_memory* memory) RMM_C_NOEXCEPT;

/* The same in the order of `stream`, before which the last launch of each graph is ordered: pools need not wait. */
RMM_C_API void rmm_c_graph_memory_destroy_on(rmm_c_graph_memory* memory, void* stream) RMM_C_NOEXCEPT;

/* Announces that `stream` captures a CUDA graph, right before or after the capture begins. All resources of this library then take what
 * the capture allocates from `memory`. Announcements of another RMM of the process are not seen, nor does it see these. */
RMM_C_API rmm_c_status rmm_c_capture_begin(rmm_c_graph_memory* memory,
                                           void* stream,
                                           rmm_c_capture** capture) RMM_C_NOEXCEPT;

/* Ends the announcement, when the capture has ended. Null is ignored. */
RMM_C_API void rmm_c_capture_end(rmm_c_capture* capture) RMM_C_NOEXCEPT;

/* --- PyTorch -------------------------------------------------------------------------------------------------------- */

/* The two functions that torch.cuda.memory.CUDAPluggableAllocator asks for; `stream` is a cudaStream_t. They allocate from
 * rmm_c_default_resource(device). Where memory is missing, the first prints why on standard error and returns null:
 * PyTorch has no other way for a function that must not throw. */
RMM_C_API void* rmm_c_torch_allocate(size_t bytes, int device, void* stream) RMM_C_NOEXCEPT;
RMM_C_API void rmm_c_torch_deallocate(void* block, size_t bytes, int device, void* stream) RMM_C_NOEXCEPT;

/* --- other libraries ------------------------------------------------------------------------------------------------ */

/* Lets a resource serve what other libraries of the process, such as cuBLAS, allocate from the driver on its device, instead of the one
 * that did so before. With a null resource the driver serves them again. RMM_C_NOT_SUPPORTED unless the process was started with
 * LD_PRELOAD=librmm_audit.so and RMM_AUDIT=route:current; docs/audit.md has the rules. Each block goes back to the resource that it came
 * from, and one that is destroyed lives until libraries have given all of its blocks back. New in 1.1. */
RMM_C_API rmm_c_status rmm_c_serve_libraries(int device, rmm_c_resource* resource) RMM_C_NOEXCEPT;

#if defined(__cplusplus)
}
#endif

#endif /* RMM_C_RMM_H */
