// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>

/// @file
/// The steps that a pool tries before an allocation fails, their order, and how often each helped.

namespace RMM_NAMESPACE {

/// One step that a pool tries when no free memory fits a request.
enum class recovery_rung : std::uint8_t {
  reclaim,      ///< records events after unfenced free memory; waits for the device if that makes enough usable
  grow,         ///< takes more memory from the pool's upstream
  remap,        ///< maps free pieces of memory to one range of addresses
  trim,         ///< gives unused memory back to upstream, so that upstream can serve the request
  synchronize,  ///< as reclaim, also for memory that other rungs leave alone; waits only if that can serve the request
  callback,     ///< asks the program to free memory, and starts at the first rung again if it returns true
};

inline constexpr std::size_t recovery_rung_count = 6;

/// Returns the name of the enumerator, as reports write it.
[[nodiscard]] constexpr char const* name_of(recovery_rung rung) noexcept
{
  constexpr char const* names[] = {"reclaim", "grow", "remap", "trim", "synchronize", "callback"};
  auto const index              = static_cast<std::size_t>(rung);
  return index < recovery_rung_count ? names[index] : "unknown";
}

/// Counts of the allocations that tried a rung, and of those that it served.
struct rung_figures {
  std::uint64_t tried{};
  std::uint64_t served{};
};

/// The counts of all rungs.
struct recovery_figures {
  rung_figures rungs[recovery_rung_count]{};
  std::uint64_t failures{};  ///< allocations that no rung could serve

  /// Returns the counts of one rung.
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

/// A list of rungs in the order in which a pool tries them. Use it to leave rungs out, or to change their order.
///
/// Each rung is in it at most once.
///
/// @code{.cpp}
/// using rung = rmm::recovery_rung;
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::pool_memory_resource pool{&cuda, std::size_t{1} << 20};
/// pool.set_recovery_order({rung::reclaim, rung::synchronize, rung::grow});  // waits before it grows
/// @endcode
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

  /// Whether the rung is in the list.
  [[nodiscard]] constexpr bool contains(recovery_rung rung) const noexcept
  {
    for (auto const each : *this) {
      if (each == rung) { return true; }
    }
    return false;
  }

  /// Whether all values are rungs, and none is in the list twice.
  [[nodiscard]] constexpr bool is_valid() const noexcept
  {
    recovery_order once;
    for (auto const each : *this) {
      if (static_cast<std::size_t>(each) >= recovery_rung_count || !once.try_add(each)) { return false; }
    }
    return true;
  }

  /// Number of rungs in the list.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }

  /// Returns the rung at position `index`, counted from 0. Requires `index < size()`.
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
