// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/tag_table.hpp>
#include <rmm/detail/export.hpp>

#include <cstdint>
#include <exception>
#include <string_view>
#include <utility>

namespace RMM_NAMESPACE {

/// A name for what a program does, to label allocations with. A number, cheap to copy and compare.
///
/// The same name is the same tag in all shared objects of the process. Names are kept until the process ends, so they are to
/// be few: what a part of a program is called, not which request it serves. More than 65,534 share one tag.
class tag {
 public:
  /// No tag.
  constexpr tag() noexcept = default;

  /// The tag of that name; no tag if it is empty, or the host has no memory for it.
  explicit tag(std::string_view name) : id_{detail::tags().intern(name.data(), name.size())} {}

  /// The tag of the innermost tag_scope of the calling thread.
  [[nodiscard]] static tag current() noexcept
  {
    try {
      return from_id(*detail::tags().current());
    } catch (std::exception const&) {
      return {};
    }
  }

  /// The tag that has this number; 0 is none.
  [[nodiscard]] static constexpr tag from_id(std::uint32_t id) noexcept
  {
    tag made;
    made.id_ = id;
    return made;
  }

  /// The number of the tag in this process; 0 for no tag. Another process may number them differently.
  [[nodiscard]] constexpr std::uint32_t id() const noexcept { return id_; }

  /// Empty for no tag; stays valid.
  [[nodiscard]] char const* name() const noexcept
  {
    try {
      return detail::tags().name_of(id_);
    } catch (std::exception const&) {
      return "";
    }
  }

  /// Whether it is a tag.
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return id_ != 0; }
  [[nodiscard]] friend constexpr bool operator==(tag lhs, tag rhs) noexcept { return lhs.id_ == rhs.id_; }
  [[nodiscard]] friend constexpr bool operator!=(tag lhs, tag rhs) noexcept { return lhs.id_ != rhs.id_; }

 private:
  std::uint32_t id_{0};
};

/// Labels what the calling thread allocates, as long as it lives: `rmm::tag_scope const tag{"loader"};`.
///
/// Scopes nest, and the innermost counts. One ends on the thread that began it, and before those around it. A pool that tracks
/// tags, traces, and pausing by tag read it. A name costs a look-up under a lock each time; a `tag` made once does not.
class tag_scope {
 public:
  /// Labels with the tag of that name, or with the given one.
  explicit tag_scope(std::string_view name) : tag_scope{tag{name}} {}
  explicit tag_scope(tag label) : current_{detail::tags().current()}, outer_{std::exchange(*current_, label.id())} {}
  ~tag_scope() { *current_ = outer_; }

  tag_scope(tag_scope const&)            = delete;
  tag_scope& operator=(tag_scope const&) = delete;

 private:
  std::uint32_t* current_;
  std::uint32_t outer_;
};

}  // namespace RMM_NAMESPACE
