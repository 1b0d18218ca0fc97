// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/tag_table.hpp>
#include <rmm/detail/export.hpp>

#include <cstdint>
#include <exception>
#include <string_view>
#include <utility>

namespace RMM_NAMESPACE {

/// A label for allocations, such as the name of a part of the program. Make one from a name, and pass it to tag_scope.
///
/// A tag is a number, cheap to copy and compare. One name gives one tag in all shared objects of the process. Names are kept until the
/// process ends, so use few: name parts of the program, not single requests. After 65,534 names all further names share one tag.
class tag {
 public:
  /// No tag.
  constexpr tag() noexcept = default;

  /// The tag of that name; no tag if the name is empty, or if host memory runs out. The first use of tags in a process throws
  /// std::bad_alloc if host memory runs out.
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

  /// The tag with this number; 0 gives no tag.
  [[nodiscard]] static constexpr tag from_id(std::uint32_t id) noexcept
  {
    tag made;
    made.id_ = id;
    return made;
  }

  /// The number of the tag in this process; 0 for no tag. Another process may number them differently.
  [[nodiscard]] constexpr std::uint32_t id() const noexcept { return id_; }

  /// Returns the name, which is valid until the process ends; empty for no tag.
  [[nodiscard]] char const* name() const noexcept
  {
    try {
      return detail::tags().name_of(id_);
    } catch (std::exception const&) {
      return "";
    }
  }

  /// Whether this is a tag, that is, id() is not 0.
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return id_ != 0; }
  [[nodiscard]] friend constexpr bool operator==(tag lhs, tag rhs) noexcept { return lhs.id_ == rhs.id_; }
  [[nodiscard]] friend constexpr bool operator!=(tag lhs, tag rhs) noexcept { return lhs.id_ != rhs.id_; }

 private:
  std::uint32_t id_{0};
};

/// A scope that labels the allocations of the calling thread. Use it to see in figures, traces and snapshots which part of a program
/// holds memory: `rmm::tag_scope const tag{"loader"};`.
///
/// Scopes nest, and the innermost counts. End a scope on the thread that began it, before the scopes around it end. The label is read by
/// traces, by pausing by tag, and by pools that track tags.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::pool_memory_resource pool{&cuda, std::size_t{1} << 20};
/// pool.track_tags();
/// rmm::tag_scope const loading{"loader"};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, pool};
/// for (auto const& holder : pool.live_by_tag_name()) { std::printf("%s: %zu bytes\n", holder.tag.c_str(), holder.bytes); }
/// @endcode
/// Cost  a name takes a look-up each time; a `tag` that was made once takes none.
class tag_scope {
 public:
  /// Labels with the tag of that name, or with the given tag. Throws as the constructor of `tag` does.
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
