// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmarks/compare/plugin.hpp>
#include <benchmarks/compare/row.hpp>
#include <benchmarks/compare/synchronizations.hpp>
#include <benchmarks/compare/workload.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace compare {

class stopwatch {
 public:
  [[nodiscard]] double ns() const
  {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start_).count();
  }
  [[nodiscard]] double seconds() const { return ns() * 1e-9; }

 private:
  std::chrono::steady_clock::time_point start_{std::chrono::steady_clock::now()};
};

/// The time that a number of operations took.
struct timing {
  double ns{};
  std::uint64_t synchronizations{};
  std::size_t operations{};

  /// Returns nanoseconds per operation, and the total of synchronisations if they can be counted.
  [[nodiscard]] figures as_figures() const
  {
    figures result{{"ns", ns / static_cast<double>(operations)}};
    if (counts_synchronizations()) { result.push_back({"syncs", static_cast<double>(synchronizations)}); }
    return result;
  }
};

/// Calls `round` until `seconds` have passed, at least once. `round` returns how many operations it made.
template <class Round>
timing measure(double seconds, Round&& round)
{
  timing result;
  auto const before = synchronizations();
  stopwatch const clock;
  do {
    result.operations += round();
    result.ns = clock.ns();
  } while (result.ns < seconds * 1e9);
  result.synchronizations = synchronizations() - before;
  return result;
}

/// A live block.
struct block {
  void* ptr;
  std::size_t bytes;
};

/// Allocates. Throws std::bad_alloc where the allocator returns null.
inline void* checked_allocate(allocator const& memory, std::size_t bytes, cudaStream_t stream)
{
  void* const ptr = memory.allocate(bytes, stream);
  if (ptr == nullptr) { throw std::bad_alloc{}; }
  return ptr;
}

/// A fixed number of live blocks on one stream. They are replaced one at a time, by a random sequence that repeats without end.
class live_blocks {
 public:
  live_blocks(
    allocator const& memory, cudaStream_t stream, lognormal const& sizes, std::size_t count, std::uint64_t seed)
    : memory_{memory}, stream_{stream}, sequence_{draw_replacements(sizes, count, sequence_length, seed)}
  {
    for (auto const bytes : draw_sizes(sizes, count, seed + 1)) { add(bytes); }
  }
  ~live_blocks()
  {
    for (auto const& b : blocks_) { memory_.deallocate(b.ptr, b.bytes, stream_); }
  }
  live_blocks(live_blocks const&)            = delete;
  live_blocks& operator=(live_blocks const&) = delete;

  /// Frees a block and allocates another. Throws std::bad_alloc.
  void replace_one()
  {
    auto const next = sequence_[position_++ % sequence_length];
    auto& slot      = blocks_[next.slot];
    memory_.deallocate(slot.ptr, slot.bytes, stream_);
    slot.ptr = memory_.allocate(next.bytes, stream_);
    if (slot.ptr == nullptr) {
      slot = blocks_.back();
      blocks_.pop_back();
      throw std::bad_alloc{};
    }
    slot.bytes = next.bytes;
  }

  std::size_t replace(std::size_t count)
  {
    for (std::size_t i = 0; i < count; ++i) { replace_one(); }
    return count;
  }

  [[nodiscard]] std::size_t live_bytes() const
  {
    std::size_t sum = 0;
    for (auto const& b : blocks_) { sum += b.bytes; }
    return sum;
  }

 private:
  static constexpr std::size_t sequence_length = std::size_t{1} << 17U;

  void add(std::size_t bytes)
  {
    try {
      blocks_.push_back({checked_allocate(memory_, bytes, stream_), bytes});
    } catch (...) {
      for (auto const& b : blocks_) { memory_.deallocate(b.ptr, b.bytes, stream_); }
      throw;
    }
  }

  allocator const& memory_;
  cudaStream_t stream_;
  std::vector<replacement> sequence_;
  std::vector<block> blocks_;
  std::size_t position_{0};
};

/// Returns the smallest value that is at least as large as the given share of all values (nearest rank). Requires values, 0 <
/// share <= 1.
inline double percentile(std::vector<double> values, double share)
{
  auto const count = static_cast<double>(values.size());
  auto const rank  = static_cast<std::size_t>(std::ceil(share * count - 1e-9));
  auto const nth   = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

}  // namespace compare
