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

/// What an allocator can do. Rows that need more leave it out.
enum plugin_feature {
  plugin_feature_times       = 1,   ///< calls cost what they would cost a program
  plugin_feature_memory      = 2,   ///< there is memory behind the addresses
  plugin_feature_bounded     = 4,   ///< never takes more than its maximum
  plugin_feature_containers  = 8,   ///< plugin_uvectors() works
  plugin_feature_small_times = 16,  ///< as plugin_feature_times, which includes it, for blocks of up to 1 MiB
  plugin_feature_adaptor     = 32   ///< is an adaptor over a pool, for the row of adaptors
};

/// Name of an allocator; null past the last one.
PLUGIN_EXPORT char const* plugin_allocator(int index);

/// What is behind it, with its version.
PLUGIN_EXPORT char const* plugin_description(int index);

/// Set of plugin_feature.
PLUGIN_EXPORT unsigned plugin_features(int index);

/// Makes an allocator on the current device that holds `initial` bytes from the start, as far as it can be told, and at
/// most `maximum`, or as much as there is if that is 0. Null if that fails.
PLUGIN_EXPORT void* plugin_make(int index, size_t initial, size_t maximum);
PLUGIN_EXPORT void plugin_end(void* allocator);

/// Why the calling thread's last call failed.
PLUGIN_EXPORT char const* plugin_error(void);

/// A stream that does not synchronise with the default stream, made the way programs with this allocator make one.
PLUGIN_EXPORT cudaStream_t plugin_make_stream(void* allocator);
PLUGIN_EXPORT void plugin_end_stream(void* allocator, cudaStream_t stream);

/// Null if there is no memory.
PLUGIN_EXPORT void* plugin_allocate(void* allocator, size_t bytes, cudaStream_t stream);
PLUGIN_EXPORT void plugin_deallocate(void* allocator, void* ptr, size_t bytes, cudaStream_t stream);

/// Bytes that the allocator holds of the device's memory, in use or not; 0 if it cannot say.
PLUGIN_EXPORT size_t plugin_reserved(void* allocator);

/// Makes the allocator the current resource of the device, or ends that (null).
PLUGIN_EXPORT void plugin_install(void* allocator);

/// Makes and destroys a container of `elements` ints on the current resource, `times` times. False if that fails.
PLUGIN_EXPORT int plugin_uvectors(size_t elements, size_t times, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
