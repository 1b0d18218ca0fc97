// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/cuda/memory.hpp>
#include <rmm/detail/cuda/pinned_memory.hpp>
#include <rmm/detail/cuda/registered_memory.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>

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

/// An owner of memory of the host, pinned or pageable. Empty if default-constructed.
class host_block {
 public:
  host_block() noexcept : memory_{nullptr, {0, false}} {}

  /// Throws bad_alloc if host memory runs out.
  host_block(std::size_t bytes, bool pinned) : memory_{nullptr, {bytes, pinned}}
  {
    if (bytes != 0) { memory_.reset(pinned ? allocate_pinned(bytes) : allocate_pageable(bytes)); }
  }

  [[nodiscard]] std::byte* get() const noexcept { return memory_.get(); }

  /// Whether the block can be used as one of `bytes` bytes of that kind. Larger blocks are, up to twice the size.
  [[nodiscard]] bool serves(std::size_t bytes, bool pinned) const noexcept
  {
    auto const& [size, is_pinned] = memory_.get_deleter();
    bool const is_there           = memory_ != nullptr || bytes == 0;  // not if it was moved from
    return is_there && is_pinned == pinned && size >= bytes && size / 2 <= bytes;
  }

 private:
  static constexpr std::size_t smallest_registered = std::size_t{1} << 20U;  // the runtime is as fast for smaller ones

  struct deleter {
    std::size_t bytes;
    bool pinned;

    void operator()(std::byte* memory) const noexcept
    {
      if (!pinned) {
        delete[] memory;
      } else if (bytes < smallest_registered) {
        free_pinned_memory(memory);
      } else {
        free_registered_memory(memory, bytes);
      }
    }
  };

  [[nodiscard]] static std::byte* allocate_pinned(std::size_t bytes)
  {
    return static_cast<std::byte*>(bytes < smallest_registered
                                     ? allocate_pinned_memory(bytes)
                                     : allocate_registered_memory(bytes, {nearest_numa_node(), 0}));
  }

  [[nodiscard]] static std::byte* allocate_pageable(std::size_t bytes)
  {
    auto* const memory = new (std::nothrow) std::byte[bytes];
    if (memory == nullptr) {
      RMM_FAIL("Failed to allocate " + std::to_string(bytes) + " bytes of host memory to save device memory",
               rmm::bad_alloc);
    }
    return memory;
  }

  std::unique_ptr<std::byte[], deleter> memory_;
};

/// A copy, on the host, of the content of ranges of device memory.
class saved_memory {
 public:
  /// Copies `ranges`, and waits. Uses `retained` if it serves for that, else frees it. Throws bad_alloc if host memory runs out, cuda_error
  /// if copying fails.
  saved_memory(std::vector<address_range> ranges, bool pinned, cudaStream_t stream, host_block retained)
    : ranges_{std::move(ranges)}, copy_{std::move(retained)}
  {
    std::size_t bytes{};
    for (auto const range : ranges_) { bytes += range.bytes; }
    if (!copy_.serves(bytes, pinned)) {
      copy_ = {};  // first: the host may not have both
      copy_ = host_block{bytes, pinned};
    }
    copy(stream,
         [](void* device, void* host, std::size_t size, cudaStream_t order) { copy_async(host, device, size, order); });
  }

  /// Copies the content back to the ranges, and waits for the copies. Throws cuda_error.
  void restore(cudaStream_t stream) const
  {
    copy(stream,
         [](void* device, void* host, std::size_t size, cudaStream_t order) { copy_async(device, host, size, order); });
  }

  /// Gives the memory of the host to the caller. Only the destructor may be called afterwards.
  [[nodiscard]] host_block release() noexcept { return std::move(copy_); }

  /// Returns the copy of `bytes` bytes of the device at `address`; null if they are not in one of the ranges. O(ranges).
  [[nodiscard]] std::byte const* find(std::uintptr_t address, std::size_t bytes) const noexcept
  {
    auto const* host = copy_.get();
    for (auto const& [begin, size] : ranges_) {
      auto const offset = address - begin;
      if (address >= begin && offset < size) { return bytes <= size - offset ? host + offset : nullptr; }
      host += size;
    }
    return nullptr;
  }

 private:
  template <class Copy>
  void copy(cudaStream_t stream, Copy&& copy_one) const
  {
    if (ranges_.empty()) { return; }
    auto* host = copy_.get();
    scope_guard wait{
      [&]() noexcept {  // a copy or the first wait fails: copies may run, and the caller frees the memory
        static_cast<void>(cudaStreamSynchronize(stream));
      }};
    for (auto const& [begin, size] : ranges_) {
      copy_one(reinterpret_cast<void*>(begin), host, size, stream);  // NOLINT: ranges are addresses
      host += size;
    }
    RMM_CUDA_TRY(cudaStreamSynchronize(stream));
    wait.dismiss();
  }

  std::vector<address_range> ranges_;
  host_block copy_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
