// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/spinning_mutex.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace rmm_python {

/// One of PyTorch's counters. Its layout is part of the interface to Python.
struct torch_counter {
  std::int64_t current{};
  std::int64_t peak{};       ///< the largest value since the last reset of peaks
  std::int64_t allocated{};  ///< the sum of all additions since the last reset of sums
  std::int64_t freed{};      ///< the sum of all subtractions since the last reset of sums

  void add(std::int64_t amount) noexcept
  {
    current += amount;
    allocated += amount;
    peak = std::max(peak, current);
  }
  void subtract(std::int64_t amount) noexcept
  {
    current -= amount;
    freed += amount;
  }
};

/// What PyTorch has allocated on a device. Each array has counters of all blocks, of blocks up to 1 MiB, and of larger ones. The layout
/// is part of the interface to Python.
struct torch_figures {
  std::array<torch_counter, 3> blocks{};
  std::array<torch_counter, 3> bytes{};
  torch_counter reserved{};        ///< bytes that the resource holds, in use or not; the peak is the largest value read
  std::int64_t out_of_memory{};    ///< allocations that failed
  std::int64_t postponed_bytes{};  ///< freed by PyTorch, but used on streams that capture a graph
};

/// Counts and limits the memory that PyTorch allocates on a device. Thread-safe.
///
/// Order: is_limited_ guards no data, so it is relaxed. An allocation that happens after set_limit() reads true. try_take() decides under
/// the mutex.
class torch_usage {
 public:
  /// Whether an allocation of `bytes` bytes would exceed the limit now.
  [[nodiscard]] bool is_too_much(std::size_t bytes) const noexcept
  {
    if (!is_limited_.load(std::memory_order_relaxed)) { return false; }
    rmm::detail::spinning_mutex_lock const lock{mutex_};
    return static_cast<std::int64_t>(bytes) > limit_ - figures_.bytes[0].current;
  }

  /// Counts an allocation. Returns false, and counts nothing, if it would exceed the limit.
  [[nodiscard]] bool try_take(std::size_t bytes) noexcept
  {
    auto const amount = static_cast<std::int64_t>(bytes);
    rmm::detail::spinning_mutex_lock const lock{mutex_};
    if (amount > limit_ - figures_.bytes[0].current) { return false; }
    for (auto const kind : {std::size_t{0}, kind_of(bytes)}) {
      figures_.blocks[kind].add(1);
      figures_.bytes[kind].add(amount);
    }
    return true;
  }

  /// Counts a deallocation.
  void give_back(std::size_t bytes) noexcept
  {
    rmm::detail::spinning_mutex_lock const lock{mutex_};
    for (auto const kind : {std::size_t{0}, kind_of(bytes)}) {
      figures_.blocks[kind].subtract(1);
      figures_.bytes[kind].subtract(static_cast<std::int64_t>(bytes));
    }
  }

  void count_failure() noexcept
  {
    rmm::detail::spinning_mutex_lock const lock{mutex_};
    ++figures_.out_of_memory;
  }

  void postpone(std::int64_t bytes) noexcept
  {
    rmm::detail::spinning_mutex_lock const lock{mutex_};
    figures_.postponed_bytes += bytes;
  }

  /// Limits the bytes in use to `bytes`, for later allocations.
  void set_limit(std::int64_t bytes) noexcept
  {
    rmm::detail::spinning_mutex_lock const lock{mutex_};
    limit_ = bytes;
    is_limited_.store(true, std::memory_order_relaxed);
  }

  [[nodiscard]] std::int64_t limit() const noexcept
  {
    rmm::detail::spinning_mutex_lock const lock{mutex_};
    return limit_;
  }

  /// Stores how many bytes the resource holds now.
  void see_reserved(std::int64_t bytes) noexcept
  {
    rmm::detail::spinning_mutex_lock const lock{mutex_};
    auto const grown = bytes - figures_.reserved.current;
    if (grown >= 0) {
      figures_.reserved.add(grown);
    } else {
      figures_.reserved.subtract(-grown);
    }
  }

  [[nodiscard]] torch_figures figures() const noexcept
  {
    rmm::detail::spinning_mutex_lock const lock{mutex_};
    return figures_;
  }

  void reset_peaks() noexcept
  {
    for_each_counter([](torch_counter& counter) { counter.peak = counter.current; });
  }

  void reset_sums() noexcept
  {
    for_each_counter([](torch_counter& counter) { counter.allocated = counter.freed = 0; });
    rmm::detail::spinning_mutex_lock const lock{mutex_};
    figures_.out_of_memory = 0;
  }

 private:
  [[nodiscard]] static constexpr std::size_t kind_of(std::size_t bytes) noexcept
  {
    return bytes <= std::size_t{1} << 20U ? 1 : 2;
  }

  template <class Action>
  void for_each_counter(Action action) noexcept
  {
    rmm::detail::spinning_mutex_lock const lock{mutex_};
    std::for_each(figures_.blocks.begin(), figures_.blocks.end(), action);
    std::for_each(figures_.bytes.begin(), figures_.bytes.end(), action);
    action(figures_.reserved);
  }

  mutable rmm::detail::spinning_mutex mutex_;  // guards the other members; no other code is called while it is held
  torch_figures figures_;
  std::int64_t limit_{std::numeric_limits<std::int64_t>::max()};
  std::atomic<bool> is_limited_{false};  // whether a limit was ever set
};

}  // namespace rmm_python
