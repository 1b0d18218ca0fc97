// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <string_view>

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
/// It only grows, by entries that never change, and has no lock: a forked child could wait for ever for a thread of its parent.
///
/// Invariants:
///  T1  ids begin at 1, and the name of an id never changes
///  T2  an entry in a bucket is also in its place in the chunks; no two entries in the buckets have one name
/// Order: entries and chunks are published by a release, and found by an acquire. The number of ids guards no data.
class tag_names {
 public:
  /// The last id. All tags that find no free id share it.
  static constexpr std::uint32_t max_tags          = 65'535;
  static constexpr std::string_view name_of_others = "(other tags)";

  constexpr tag_names() noexcept         = default;
  tag_names(tag_names const&)            = delete;
  tag_names& operator=(tag_names const&) = delete;

  [[nodiscard]] static tag_names& instance() noexcept
  {
    static tag_names names;  // constant-initialized, and never destroyed: threads may call this while the process exits
    return names;
  }

  [[nodiscard]] std::uint32_t intern(std::string_view name)
  {
    if (name.empty()) { return 0; }
    auto& bucket = buckets_[hash_of(name) % bucket_count];
    auto* first  = bucket.load(std::memory_order_acquire);
    if (auto const* const known = find(first, nullptr, name)) { return known->id; }
    if (count_.load(std::memory_order_relaxed) == max_tags) { return max_tags; }
    auto* const made = make_entry(name);
    made->id         = new_id();
    if (made->id == 0) {
      ::operator delete(made);
      throw std::bad_alloc{};
    }
    made->next   = first;
    auto& places = chunks_[made->id / chunk_size].load(std::memory_order_acquire)->places;
    places[made->id % chunk_size].store(made, std::memory_order_release);
    while (!bucket.compare_exchange_weak(first, made, std::memory_order_acq_rel, std::memory_order_acquire)) {
      // Another thread was faster. If it added this name, the id of this one stays without use.
      if (auto const* const known = find(first, made->next, name)) { return known->id; }
      made->next = first;
    }
    return made->id;
  }

  [[nodiscard]] char const* name_of(std::uint32_t id) const noexcept
  {
    if (id > max_tags) { return ""; }
    if (id == max_tags) { return count_.load(std::memory_order_relaxed) == max_tags ? name_of_others.data() : ""; }
    auto const* const near  = chunks_[id / chunk_size].load(std::memory_order_acquire);
    auto const* const found = near != nullptr ? near->places[id % chunk_size].load(std::memory_order_acquire) : nullptr;
    return found != nullptr ? found->name.data() : "";
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
  static constexpr std::size_t bucket_count = 1024;
  static constexpr std::size_t chunk_size   = 256;

  struct entry {
    std::uint32_t id;
    std::string_view name;  // ends with a zero
    entry const* next;      // in the bucket
  };
  using place = std::atomic<entry const*>;

  struct chunk {
    place places[chunk_size]{};
  };

  inline static thread_local std::uint32_t current_{0};

  [[nodiscard]] static std::size_t hash_of(std::string_view name) noexcept
  {
    std::uint64_t mixed{};
    for (char const each : name) { mixed = (mixed ^ static_cast<unsigned char>(each)) * 0x9E3779B97F4A7C15U; }
    return mixed >> 32U;
  }

  /// Returns the entry of the name between two entries of a bucket; null if there is none.
  [[nodiscard]] static entry const* find(entry const* first, entry const* last, std::string_view name) noexcept
  {
    while (first != last && first->name != name) { first = first->next; }
    return first != last ? first : nullptr;
  }

  /// Returns an entry without an id, which is never freed.
  [[nodiscard]] static entry* make_entry(std::string_view name)
  {
    auto* const memory                 = static_cast<char*>(::operator new(sizeof(entry) + name.size() + 1));
    auto* const text                   = memory + sizeof(entry);
    text[name.copy(text, name.size())] = '\0';
    return new (memory) entry{0, {text, name.size()}, nullptr};
  }

  /// Returns the next id, and makes its place; max_tags if no other is left; 0 if host memory runs out.
  [[nodiscard]] std::uint32_t new_id() noexcept
  {
    auto count = count_.load(std::memory_order_relaxed);
    do {
      if (count == max_tags) { return max_tags; }
      if (!try_make_chunk(count + 1)) { return 0; }
    } while (!count_.compare_exchange_weak(count, count + 1, std::memory_order_relaxed));
    return count + 1;
  }

  [[nodiscard]] bool try_make_chunk(std::uint32_t id) noexcept
  {
    auto& found = chunks_[id / chunk_size];
    if (found.load(std::memory_order_acquire) != nullptr) { return true; }
    auto* const made = new (std::nothrow) chunk;  // never freed
    chunk* none      = nullptr;
    if (made != nullptr && !found.compare_exchange_strong(none, made, std::memory_order_acq_rel)) { delete made; }
    return made != nullptr;
  }

  std::atomic<std::uint32_t> count_{0};
  place buckets_[bucket_count]{};
  std::atomic<chunk*> chunks_[(max_tags + 1) / chunk_size]{};
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
    return new tag_table{tag_names::current_of_thread, tag_names::intern_name, tag_names::find_name};
  });
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
