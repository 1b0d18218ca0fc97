// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>

/// @file
/// What a pool tries before an allocation fails.

namespace RMM_NAMESPACE {

/// One thing that a pool tries when no free memory fits, whatever thread and stream freed it.
enum class recovery_rung : std::uint8_t {
  reclaim,      ///< gives events to free memory; waits for the device where only that keeps enough of it apart
  grow,         ///< takes more memory from where the pool has it
  remap,        ///< maps memory that is free in pieces to one range of addresses
  trim,         ///< gives unused memory back, so that there is some to be taken
  synchronize,  ///< as reclaim, also for memory that other rungs leave alone; waits only where it serves
  callback,     ///< asks the program to free memory, and begins again when it says so
};

inline constexpr std::size_t recovery_rung_count = 6;

/// As it is written in reports: the name of the enumerator.
[[nodiscard]] constexpr char const* name_of(recovery_rung rung) noexcept
{
  constexpr char const* names[] = {"reclaim", "grow", "remap", "trim", "synchronize", "callback"};
  auto const index              = static_cast<std::size_t>(rung);
  return index < recovery_rung_count ? names[index] : "unknown";
}

/// How often allocations came to a rung, and how often it served one.
struct rung_figures {
  std::uint64_t tried{};
  std::uint64_t served{};
};

/// The same for each rung.
struct recovery_figures {
  rung_figures rungs[recovery_rung_count]{};
  std::uint64_t failures{};  ///< allocations that no rung could serve

  /// Those of one rung.
  [[nodiscard]] constexpr rung_figures const& operator[](recovery_rung rung) const noexcept
  {
    return rungs[static_cast<std::size_t>(rung)];
  }
  [[nodiscard]] constexpr rung_figures& operator[](recovery_rung rung) noexcept
  {
    return rungs[static_cast<std::size_t>(rung)];
  }
};

[[nodiscard]] constexpr recovery_figures operator+(recovery_figures lhs, recovery_figures const& rhs) noexcept
{
  for (std::size_t i = 0; i < recovery_rung_count; ++i) {
    lhs.rungs[i].tried += rhs.rungs[i].tried;
    lhs.rungs[i].served += rhs.rungs[i].served;
  }
  lhs.failures += rhs.failures;
  return lhs;
}

/// Rungs in the order in which they are tried, each at most once. Rungs that are left out are not tried.
class recovery_order {
 public:
  constexpr recovery_order() noexcept = default;

  /// `recovery_order{recovery_rung::grow, recovery_rung::synchronize}`
  template <class... Rungs>
  constexpr recovery_order(recovery_rung first, Rungs... others) noexcept
    : rungs_{first, others...}, size_{1 + sizeof...(others)}
  {
    static_assert(1 + sizeof...(others) <= recovery_rung_count, "a rung can be in an order only once");
  }

  /// Adds a rung at the end. False, and nothing is changed, if it is there already.
  [[nodiscard]] constexpr bool try_add(recovery_rung rung) noexcept
  {
    if (contains(rung) || size_ == recovery_rung_count) { return false; }
    rungs_[size_++] = rung;
    return true;
  }

  /// Whether the rung is tried.
  [[nodiscard]] constexpr bool contains(recovery_rung rung) const noexcept
  {
    for (auto const each : *this) {
      if (each == rung) { return true; }
    }
    return false;
  }

  /// Whether no rung is there twice.
  [[nodiscard]] constexpr bool is_valid() const noexcept
  {
    recovery_order once;
    for (auto const each : *this) {
      if (static_cast<std::size_t>(each) >= recovery_rung_count || !once.try_add(each)) { return false; }
    }
    return true;
  }

  /// Number of rungs that are tried.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }

  /// The rung that is tried after `index` others. Requires `index < size()`.
  [[nodiscard]] constexpr recovery_rung operator[](std::size_t index) const noexcept { return rungs_[index]; }

  /// The rungs in their order.
  [[nodiscard]] constexpr recovery_rung const* begin() const noexcept { return rungs_; }

  /// One past the last rung.
  [[nodiscard]] constexpr recovery_rung const* end() const noexcept { return rungs_ + size_; }

 private:
  recovery_rung rungs_[recovery_rung_count]{};
  std::size_t size_{};
};

}  // namespace RMM_NAMESPACE
