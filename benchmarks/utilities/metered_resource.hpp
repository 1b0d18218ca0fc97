// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace rmm::benchmarks {

/// Forwards to its upstream and counts the allocated bytes. Below a pool, these are the bytes that the pool has reserved.
class metered_resource final : public rmm::mr::device_memory_resource {
 public:
  explicit metered_resource(std::shared_ptr<rmm::mr::device_memory_resource> upstream) : upstream_{std::move(upstream)}
  {}

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    void* const ptr = upstream_->allocate(bytes, stream);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    upstream_->deallocate(ptr, bytes, stream);
  }

  std::shared_ptr<rmm::mr::device_memory_resource> upstream_;
  std::atomic<std::size_t> bytes_{0};
};

}  // namespace rmm::benchmarks
