// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What an allocator has to export to take part in the comparison: the C functions below, in a shared object
/// compare_<name>.so beside COMPARE_BENCH. A shared object may offer several allocators, numbered from 0.
///
/// No function throws. Allocators are used by several threads at once.

#include <cuda_runtime_api.h>

#include <stddef.h>

#define PLUGIN_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/// What an allocator can do. A row runs only with allocators that have all features the row needs.
enum plugin_feature {
  plugin_feature_times       = 1,   ///< calls take as long as in a program
  plugin_feature_memory      = 2,   ///< there is memory behind the addresses
  plugin_feature_bounded     = 4,   ///< never takes more than its maximum
  plugin_feature_containers  = 8,   ///< plugin_uvectors() works
  plugin_feature_small_times = 16,  ///< plugin_feature_times (which includes it) for blocks of up to 1 MiB
  plugin_feature_adaptor     = 32   ///< is an adaptor over a pool, for the row adaptor-16
};

/// Returns the name of an allocator; null after the last one.
PLUGIN_EXPORT char const* plugin_allocator(int index);

/// Returns what the allocator is, with its version.
PLUGIN_EXPORT char const* plugin_description(int index);

/// Returns a set of plugin_feature.
PLUGIN_EXPORT unsigned plugin_features(int index);

/// Makes an allocator on the current device. It takes `initial` bytes immediately, if it can be told to, and at most `maximum`
/// bytes; 0 means no maximum. Returns null on failure.
PLUGIN_EXPORT void* plugin_make(int index, size_t initial, size_t maximum);
PLUGIN_EXPORT void plugin_end(void* allocator);

/// Returns why the last call failed on this thread.
PLUGIN_EXPORT char const* plugin_error(void);

/// Makes a stream that does not synchronise with the default stream, in the way that programs with this allocator do.
PLUGIN_EXPORT cudaStream_t plugin_make_stream(void* allocator);
PLUGIN_EXPORT void plugin_end_stream(void* allocator, cudaStream_t stream);

/// Returns null if there is no memory.
PLUGIN_EXPORT void* plugin_allocate(void* allocator, size_t bytes, cudaStream_t stream);
PLUGIN_EXPORT void plugin_deallocate(void* allocator, void* ptr, size_t bytes, cudaStream_t stream);

/// Returns the bytes of device memory that the allocator holds, in use or not; 0 if it cannot tell.
PLUGIN_EXPORT size_t plugin_reserved(void* allocator);

/// Makes the allocator the current resource of the device. Null restores the previous resource.
PLUGIN_EXPORT void plugin_install(void* allocator);

/// Constructs and destroys a container of `elements` ints on the current resource, `times` times. Returns 0 on failure.
PLUGIN_EXPORT int plugin_uvectors(size_t elements, size_t times, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
