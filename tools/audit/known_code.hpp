// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {

/// A cache of the classes of pieces of code, which may forget some. A class is a number below `most_entries`.
///
/// Code lies at an address until its object is unloaded. So threads tell the number of unloaded objects before they look anything up.
///
/// Order: a place has code and class in one word. add() releases what its thread found out about the code, and find() acquires it. A thread
/// that acquires the present number of unloaded objects sees all places cleared since, because the number is released after that. What an
/// unloaded object's code had added comes before: its calls have returned before the system unloads it. tests/models/known_code_model.cpp
/// tries all executions.
///
/// Thread-safe, without locks: the walk of a stack must not wait. There are 2^`Bits` places.
template <unsigned Bits>
class known_code {
 public:
  static constexpr unsigned entry_bits        = 12;
  static constexpr std::uint64_t most_entries = (std::uint64_t{1} << entry_bits) - 1;

  [[nodiscard]] bool find(std::uintptr_t code, std::uint32_t& entry) const noexcept
  {
    auto const kept = places_[home_of(code)].load(std::memory_order_acquire);
    entry           = static_cast<std::uint32_t>(kept & most_entries);
    return kept >> entry_bits == code && code != 0;
  }

  void add(std::uintptr_t code, std::uint32_t entry) noexcept
  {
    if (code >> (64U - entry_bits) != 0) { return; }
    places_[home_of(code)].store(std::uint64_t{code} << entry_bits | entry, std::memory_order_release);
  }

  /// Clears the cache unless it was cleared at that number of unloaded objects: other code may lie at their addresses now.
  void forget_unloaded(unsigned long long unloaded) noexcept
  {
    if (unloaded_.load(std::memory_order_acquire) == unloaded) { return; }
    for (auto& place : places_) { place.store(0, std::memory_order_relaxed); }
    unloaded_.store(unloaded, std::memory_order_release);
  }

 private:
  [[nodiscard]] static std::size_t home_of(std::uintptr_t code) noexcept
  {
    return static_cast<std::size_t>((std::uint64_t{code} * 0x9E3779B97F4A7C15U) >> (64U - Bits));
  }

  std::array<std::atomic<std::uint64_t>, std::size_t{1} << Bits> places_{};
  std::atomic<unsigned long long> unloaded_{0};
};

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
