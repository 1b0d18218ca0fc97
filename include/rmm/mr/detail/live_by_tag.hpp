// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/pointer_map.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/tag_scope.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// The tag and size of each live allocation. Sums by tag are computed on request.
///
/// Thread-safe: addresses are distributed over several tables, each with a lock. A template, so that translation units that include it
/// without using it do not compile its members.
template <class Unused>
class basic_live_by_tag {
 public:
  /// Records an allocation with the calling thread's tag. If host memory runs out, it is not recorded.
  void add(void const* ptr, std::size_t bytes) noexcept
  {
    auto& entries = table_of(ptr);
    try {
      allocation const made{tag::current().id(), bytes};
      rmm::detail::mutex_lock const lock{entries.mutex};
      entries.live.insert_or_assign(ptr, made);
    } catch (std::exception const&) {
      return;
    }
  }

  /// Removes an allocation, if it was recorded. Call it before the memory is freed: another thread may then allocate the same address.
  void remove(void const* ptr) noexcept
  {
    auto& entries = table_of(ptr);
    rmm::detail::mutex_lock const lock{entries.mutex};
    entries.live.erase(ptr);
  }

  /// Replaces the record of `piece`, if there is one, by two that meet at the address `at`. If host memory runs out, the second is not
  /// recorded.
  void divide(rmm::detail::address_range piece, std::uintptr_t at) noexcept
  {
    RMM_ASSERT(piece.begin < at && at < piece.end());
    auto const set_bytes = [&](std::uintptr_t begin, std::size_t bytes, std::optional<std::uint32_t> tag) {
      auto const* const ptr = rmm::detail::to_pointer(begin);
      auto& entries         = table_of(ptr);
      rmm::detail::mutex_lock const lock{entries.mutex};
      if (auto const* const found = entries.live.find(ptr)) { tag = found->tag; }
      if (tag) { entries.live.insert_or_assign(ptr, allocation{*tag, bytes}); }
      return tag;
    };
    try {
      auto const tag = set_bytes(piece.begin, at - piece.begin, std::nullopt);
      if (tag) { set_bytes(at, piece.end() - at, tag); }
    } catch (std::exception const&) {}
  }

  void clear() noexcept
  {
    for (auto& each : tables_) {
      rmm::detail::mutex_lock const lock{each.mutex};
      each.live.clear();
    }
  }

  /// Locks all tables. The caller keeps the returned locks as long as nothing may change.
  [[nodiscard]] auto lock_all() const
  {
    std::array<rmm::detail::mutex_lock, table_count> locks;
    for (std::size_t i = 0; i != table_count; ++i) { locks[i] = rmm::detail::mutex_lock{tables_[i].mutex}; }
    return locks;
  }

  /// Calls visit(pointer, number of its tag, bytes) for each live allocation. Requires lock_all().
  template <class Visit>
  void for_each(Visit&& visit) const
  {
    for (auto const& part : tables_) {
      part.live.for_each([&](void const* ptr, allocation each) { visit(ptr, each.tag, each.bytes); });
    }
  }

  /// Returns the sums by tag, in descending order of bytes; O(live allocations). Throws std::bad_alloc.
  [[nodiscard]] std::vector<memory_report::holder> holders() const
  {
    std::vector<memory_report::holder> all;  // by the number of the tag
    for (auto const& part : tables_) {
      rmm::detail::mutex_lock const lock{part.mutex};
      part.live.for_each([&](void const*, allocation each) {
        if (each.tag >= all.size()) { all.resize(each.tag + std::size_t{1}); }
        all[each.tag].bytes += each.bytes;
        ++all[each.tag].allocations;
      });
    }
    for (std::size_t id = 0; id != all.size(); ++id) {
      if (all[id].allocations != 0) { all[id].tag = tag::from_id(static_cast<std::uint32_t>(id)).name(); }
    }
    all.erase(rmm::detail::remove_if(all.begin(), all.end(), [](auto const& each) { return each.allocations == 0; }),
              all.end());
    rmm::detail::sort(all.begin(), all.end(), [](auto const& a, auto const& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.tag < b.tag;
    });
    return all;
  }

 private:
  struct allocation {
    std::uint32_t tag;
    std::size_t bytes;
  };

  struct alignas(64) table {
    mutable rmm::detail::mutex mutex;
    rmm::detail::pointer_map<allocation> live;
  };

  static constexpr unsigned table_bits     = 5;
  static constexpr std::size_t table_count = std::size_t{1} << table_bits;

  [[nodiscard]] table& table_of(void const* ptr) noexcept
  {
    auto const mixed = reinterpret_cast<std::uintptr_t>(ptr) * 0x9E3779B97F4A7C15U;
    return tables_[std::size_t{mixed >> (64U - table_bits)}];
  }

  std::array<table, table_count> tables_;
};

using live_by_tag = basic_live_by_tag<void>;
RMM_COMPILED_ONCE(basic_live_by_tag<void>);

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
