// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/mr/detail/suballocator_upstream.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// What an elastic pool is made of where the device has no virtual memory: blocks of upstream, that go back whole.
template <class Upstream>
class plain_blocks {
 public:
  /// Blocks of `device`.
  plain_blocks(Upstream* upstream, int device) : upstream_{upstream, device} {}
  plain_blocks(plain_blocks const&)            = delete;
  plain_blocks& operator=(plain_blocks const&) = delete;

  [[nodiscard]] suballocator_upstream<Upstream>& upstream() noexcept { return upstream_; }

  RMM_COLD void log_fallback() const noexcept
  {
    rmm::detail::log(
      rmm::detail::log_level::warn,
      "elastic_pool_memory_resource: the device has no virtual memory; the pool grows by blocks of cudaMalloc");
  }

  /// Calls try_add(size) for a block of as much as the pool `held` bytes, then of less and less, down to the `bytes` that are
  /// needed, until it returns something, and returns that. Nothing, and a `reason`, if `limit` leaves too little.
  template <class TryAdd>
  [[nodiscard]] auto grow(std::size_t bytes, std::size_t held, std::size_t limit, std::string& reason, TryAdd&& try_add)
    const -> decltype(try_add(bytes))
  {
    auto const room = align_down(limit - std::min(limit, held), CUDA_ALLOCATION_ALIGNMENT);
    if (bytes > room) {
      reason = "the pool holds " + rmm::detail::format_bytes(held) + " of at most " + rmm::detail::format_bytes(limit) +
               " and no free part of it is large enough";
      return {};
    }
    auto wanted = std::clamp(align_up(held, CUDA_ALLOCATION_ALIGNMENT), bytes, room);
    for (; wanted != 0;
         wanted = wanted == bytes ? 0 : std::max(bytes, align_down(wanted / 2, CUDA_ALLOCATION_ALIGNMENT))) {
      if (auto added = try_add(wanted)) { return added; }
    }
    return {};
  }

  /// Gives wholly free blocks back until that is at least `surplus` bytes, or there are no more; waits for the work that uses
  /// them, with the help of `waiting`. Returns the bytes given back.
  [[nodiscard]] std::size_t trim(rmm::detail::stream_ordered_heap& heap, std::size_t surplus, cuda_stream_view waiting)
  {
    auto const free = heap.free_runs();
    std::vector<rmm::detail::address_range> unused;
    std::size_t found{};
    for (auto const block : heap.blocks()) {
      auto const above = std::upper_bound(
        free.begin(), free.end(), block.begin, [](std::uintptr_t at, auto const& each) { return at < each.begin; });
      if (above == free.begin() || std::prev(above)->end() < block.end() || found >= surplus) { continue; }
      unused.push_back(block);
      found += block.bytes;
    }
    auto const taken = heap.withdraw_blocks(std::move(unused), waiting);
    if (taken.empty()) { return 0; }
    waiting.synchronize_no_throw();
    std::size_t released{};
    for (auto const block : taken) {
      upstream_.deallocate(reinterpret_cast<void*>(block.begin), block.bytes);  // NOLINT: the heap works on addresses
      released += block.bytes;
    }
    return released;
  }

 private:
  suballocator_upstream<Upstream> upstream_;
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
