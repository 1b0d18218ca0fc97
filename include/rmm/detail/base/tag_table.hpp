// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>
#include <vector>

/// @file
/// The names of tags, and the current tag of each thread. The process has one table for all its shared objects.

namespace RMM_NAMESPACE {
namespace detail {

/// The interface of the table. It has only functions and plain types, so that shared objects with different standard libraries or kinds
/// of thread-local variables can share it. The layout never changes: a new layout needs a new anchor.
struct tag_table {
  std::uint32_t* (*current)() noexcept;                                    // returns the tag of the calling thread
  std::uint32_t (*intern)(char const* name, std::size_t length) noexcept;  // returns 0 if host memory runs out
  char const* (*name_of)(std::uint32_t id) noexcept;                       // the name is valid until the process ends
};

/// The data behind the table, in the shared object that made it.
///
/// Invariants:
///  T1  ids begin at 1, and the name of an id never changes
///  T2  names_[id - 1] is the name of an id, and by_name_ has all ids in the order of their names
class tag_names {
 public:
  /// The last id. All tags that find no free id share it.
  static constexpr std::uint32_t max_tags          = 65'535;
  static constexpr std::string_view name_of_others = "(other tags)";

  [[nodiscard]] static tag_names& instance()
  {
    static auto& names = *new tag_names;  // never destroyed: threads may call this while the process exits
    return names;
  }

  [[nodiscard]] std::uint32_t intern(std::string_view name)
  {
    if (name.empty()) { return 0; }
    detail::mutex_lock const lock{mutex_};
    auto place = place_of(name);
    if (place != by_name_.end() && names_[*place - 1] == name) { return *place; }
    auto const id = static_cast<std::uint32_t>(names_.size() + 1);
    if (id > max_tags) { return max_tags; }
    if (id == max_tags) {
      name  = name_of_others;
      place = place_of(name);
    }
    auto const at = place - by_name_.begin();
    reserve_one_more(names_);
    reserve_one_more(by_name_);
    auto* const text = new char[name.size() + 1]{};  // never freed
    name.copy(text, name.size());
    names_.emplace_back(text, name.size());
    by_name_.insert(by_name_.begin() + at, id);
    return id;
  }

  [[nodiscard]] char const* name_of(std::uint32_t id) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    return id == 0 || id > names_.size() ? "" : names_[id - 1].data();
  }

  /// The three functions of the interface.
  [[nodiscard]] static std::uint32_t* current_of_thread() noexcept { return &current_; }
  [[nodiscard]] static std::uint32_t intern_name(char const* name, std::size_t length) noexcept
  {
    try {
      return instance().intern({name, length});
    } catch (std::exception const&) {
      return 0;
    }
  }
  [[nodiscard]] static char const* find_name(std::uint32_t id) noexcept { return instance().name_of(id); }

 private:
  tag_names() = default;

  inline static thread_local std::uint32_t current_{0};

  /// Returns the position in by_name_ of the first id whose name is not less than `name`.
  [[nodiscard]] std::vector<std::uint32_t>::iterator place_of(std::string_view name) noexcept
  {
    return detail::lower_bound(by_name_.begin(), by_name_.end(), name, [&](std::uint32_t id, std::string_view other) {
      return names_[id - 1] < other;
    });
  }

  template <class Vector>
  static void reserve_one_more(Vector& vector)
  {
    if (vector.size() == vector.capacity()) { vector.reserve(2 * vector.size() + 16); }
  }

  detail::mutex mutex_;
  std::vector<std::string_view> names_;  // each ends with a zero
  std::vector<std::uint32_t> by_name_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE

RMM_PROCESS_WIDE_ANCHOR(rmm_tag_table_v1, 4);

namespace RMM_NAMESPACE {
namespace detail {

/// Returns the table of this process, which is never destroyed. Throws std::bad_alloc.
[[nodiscard]] RMM_HIDDEN inline tag_table const& tags()
{
  return process_wide_object<tag_table>(rmm_tag_table_v1, 4, [] {
    static_cast<void>(tag_names::instance());  // now, so that the functions cannot fail for lack of memory
    return new tag_table{tag_names::current_of_thread, tag_names::intern_name, tag_names::find_name};
  });
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
