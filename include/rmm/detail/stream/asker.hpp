// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/cuda/stream_device.hpp>
#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/stream/free_store.hpp>
#include <rmm/detail/stream/stream_cache.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>

namespace RMM_NAMESPACE {
namespace detail {

/// The caller of an allocation or a free: its stream, and the calling thread's cache for it. Lives as long as one call.
struct asker {
  cudaStream_t stream{};
  std::uint64_t identity{};  ///< of the stream; 0 if the runtime does not know it
  stream_cache* cache{};     ///< null if the thread has none
  int device{-1};            ///< of the stream
  bool may_wait{true};       ///< for events; false if a capture blocks the stream

  [[nodiscard]] static asker make(cudaStream_t stream, stream_cache* cache, bool may_wait = true) noexcept
  {
    if (cache != nullptr) {
      RMM_ASSERT(cache->stream() == stream && cache->identity() != 0);
      return {stream, cache->identity(), cache, cache->device(), may_wait};
    }
    return {stream, stream_identity(stream), nullptr, device_of_stream(stream), may_wait};
  }

  /// Whether memory of the stream with this identity needs no wait.
  [[nodiscard]] bool is_of_stream(std::uint64_t other) const noexcept { return identity != 0 && identity == other; }
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
