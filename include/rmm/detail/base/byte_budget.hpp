// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstddef>

namespace RMM_NAMESPACE {
namespace detail {

/// A counter of bytes in use that never exceeds its limit.
///
/// Invariant: used() <= limit() at every instant, seen from any thread, as long as release() gets no more than try_reserve() took.
/// Releasing more than was taken makes room above the limit: used() wraps below 0. All members are thread-safe, lock-free and O(1).
///
/// Order: the number guards no data, so all operations are relaxed. The invariant concerns one variable: each update reads the value that
/// it replaces, and adds only if the sum fits.
class byte_budget {
 public:
  explicit constexpr byte_budget(std::size_t limit) noexcept : limit_{limit} {}

  /// Takes `bytes` from the budget. Returns false, and changes nothing, if they do not fit.
  [[nodiscard]] bool try_reserve(std::size_t bytes) noexcept
  {
    auto used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_ - used) { return false; }
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }

  /// Gives back bytes that an earlier try_reserve() took.
  void release(std::size_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  [[nodiscard]] std::size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] constexpr std::size_t limit() const noexcept { return limit_; }

 private:
  std::size_t limit_;
  std::atomic<std::size_t> used_{0};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
