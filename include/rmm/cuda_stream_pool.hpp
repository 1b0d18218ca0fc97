// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstddef>
#include <memory>  // IWYU pragma: export
#include <vector>

namespace RMM_NAMESPACE {

/// A fixed set of CUDA streams, handed out in turn. Use it to run independent work on several streams without creating one each time.
///
/// The constructor makes the streams on the current device, and they live as long as the pool. None is a default stream.
///
/// @code{.cpp}
/// rmm::cuda_stream_pool const streams{4};
/// rmm::device_buffer const first{1000, streams.get_stream()};
/// rmm::device_buffer const second{1000, streams.get_stream()};  // on another stream
/// @endcode
/// Threads  the getters may be called from several threads at once.
class cuda_stream_pool {
 public:
  static constexpr std::size_t default_size{16};

  /// Throws logic_error if `pool_size` is 0, cuda_error if a stream cannot be made.
  explicit cuda_stream_pool(std::size_t pool_size    = default_size,
                            cuda_stream::flags flags = cuda_stream::flags::sync_default)
  {
    RMM_EXPECTS(pool_size > 0, "The size of a stream pool is 0, but has to be at least 1");
    streams_.reserve(pool_size);
    for (std::size_t i = 0; i < pool_size; ++i) { streams_.emplace_back(flags); }
  }

  ~cuda_stream_pool() = default;

  cuda_stream_pool(cuda_stream_pool const&)            = delete;
  cuda_stream_pool& operator=(cuda_stream_pool const&) = delete;
  cuda_stream_pool(cuda_stream_pool&&)                 = delete;
  cuda_stream_pool& operator=(cuda_stream_pool&&)      = delete;

  /// The next stream: the first of the pool, then the others one by one, then the first again.
  cuda_stream_view get_stream() const noexcept
  {
    auto const turn = next_.fetch_add(1, std::memory_order_relaxed);
    return streams_[turn % streams_.size()].view();
  }

  /// The stream with number `stream_id` modulo the size of the pool.
  cuda_stream_view get_stream(std::size_t stream_id) const { return streams_[stream_id % streams_.size()].view(); }

  /// Number of streams.
  [[nodiscard]] std::size_t get_pool_size() const noexcept { return streams_.size(); }

 private:
  std::vector<cuda_stream> streams_;
  mutable std::atomic<std::size_t> next_{0};  // Order: relaxed, because it guards no data; the streams never change
};

}  // namespace RMM_NAMESPACE
