// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/cuda/memory.hpp>
#include <rmm/detail/cuda/pinned_memory.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// A copy, on the host, of the content of ranges of device memory.
class saved_memory {
 public:
  /// Copies `ranges`, pairs of an address and a size, and waits. Throws bad_alloc if host memory runs out, cuda_error if copying fails.
  saved_memory(std::vector<std::pair<std::uintptr_t, std::size_t>> ranges, bool pinned, cudaStream_t stream)
    : ranges_{std::move(ranges)}, bytes_{sum_of(ranges_)}, copy_{nullptr, pinned ? free_pinned : free_pageable}
  {
    if (bytes_ == 0) { return; }
    auto* const memory =
      pinned ? static_cast<std::byte*>(allocate_pinned_memory(bytes_)) : new (std::nothrow) std::byte[bytes_];
    if (memory == nullptr) {
      RMM_FAIL("Failed to allocate " + std::to_string(bytes_) + " bytes of host memory to save device memory",
               rmm::bad_alloc);
    }
    copy_.reset(memory);
    copy(stream,
         [](void* device, void* host, std::size_t size, cudaStream_t order) { copy_async(host, device, size, order); });
  }

  /// Copies the content back to the ranges, and waits for the copies. Throws cuda_error.
  void restore(cudaStream_t stream) const
  {
    copy(stream,
         [](void* device, void* host, std::size_t size, cudaStream_t order) { copy_async(device, host, size, order); });
  }

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  static void free_pinned(std::byte* memory) { free_pinned_memory(memory); }
  static void free_pageable(std::byte* memory) { delete[] memory; }

  [[nodiscard]] static std::size_t sum_of(std::vector<std::pair<std::uintptr_t, std::size_t>> const& ranges) noexcept
  {
    std::size_t sum{};
    for (auto const& each : ranges) { sum += each.second; }
    return sum;
  }

  template <class Copy>
  void copy(cudaStream_t stream, Copy&& copy_one) const
  {
    auto* host = copy_.get();
    scope_guard wait{
      [&]() noexcept { static_cast<void>(cudaStreamSynchronize(stream)); }};  // a copy fails: earlier ones may run
    for (auto const& [begin, size] : ranges_) {
      copy_one(reinterpret_cast<void*>(begin), host, size, stream);  // NOLINT: ranges are addresses
      host += size;
    }
    wait.dismiss();
    RMM_CUDA_TRY(cudaStreamSynchronize(stream));
  }

  std::vector<std::pair<std::uintptr_t, std::size_t>> ranges_;
  std::size_t bytes_;
  std::unique_ptr<std::byte[], void (*)(std::byte*)> copy_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
