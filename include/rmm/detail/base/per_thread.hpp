// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// The way from a thread that ends to the owner of its part, which may have gone: `alive` is false then.
struct per_thread_link {
  std::mutex mutex;
  bool alive{true};
  void (*release)(void* part) noexcept {};
};

/// Where a thread finds its parts of owners in a few instructions. Plain data, for it is read before and after everything
/// else in a thread.
struct per_thread_table {
  static constexpr std::size_t size = 8;
  std::array<std::uint64_t, size> owners;  // numbers that are never used again; 0 in an empty slot
  std::array<void*, size> parts;
};
inline thread_local per_thread_table per_thread_slots{};

/// All parts of a thread, of whatever owners. When it ends they are there for other threads.
class thread_parts {
 public:
  struct entry {
    std::uint64_t owner;
    void* part;
    std::shared_ptr<per_thread_link> link;
  };

  /// Those of the calling thread; null while it ends.
  [[nodiscard]] static thread_parts* mine()
  {
    if (ended) { return nullptr; }
    thread_local thread_parts parts;
    return &parts;
  }

  thread_parts()                               = default;
  thread_parts(thread_parts const&)            = delete;
  thread_parts& operator=(thread_parts const&) = delete;

  ~thread_parts()
  {
    ended            = true;
    per_thread_slots = {};
    for (auto const& each : entries_) {
      std::lock_guard<std::mutex> const lock{each.link->mutex};
      if (each.link->alive) { each.link->release(each.part); }
    }
  }

  [[nodiscard]] void* find(std::uint64_t owner) const noexcept
  {
    for (auto const& each : entries_) {
      if (each.owner == owner) { return each.part; }
    }
    return nullptr;
  }

  /// Makes room for one more entry. Throws std::bad_alloc. Drops those of owners that are gone when there are many.
  void prepare_to_add()
  {
    if (entries_.size() != entries_.capacity()) { return; }
    std::size_t kept = 0;
    for (auto& each : entries_) {
      if (is_alive(*each.link)) { std::swap(entries_[kept++], each); }
    }
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(kept), entries_.end());
    entries_.reserve(2 * entries_.size() + 4);
  }

  void add(entry added) noexcept { entries_.push_back(std::move(added)); }

 private:
  inline static thread_local bool ended = false;

  [[nodiscard]] static bool is_alive(per_thread_link& link) noexcept
  {
    std::lock_guard<std::mutex> const lock{link.mutex};
    return link.alive;
  }

  std::vector<entry> entries_;
};

/// One `Part` for each thread that asks for it.
///
/// A part outlives its thread: `part.release()` is called when the thread ends, and `part.adopt()` by the thread that gets it
/// next, or first. Neither throws. A part is used by its thread alone, but for what for_each() does.
template <class Part>
class per_thread {
 public:
  /// `number`: one that no other object in the process has, or had; not 0.
  explicit per_thread(std::uint64_t number) : number_{number}, link_{std::make_shared<per_thread_link>()}
  {
    link_->release = [](void* part) noexcept {
      auto& owned = *static_cast<owned_part*>(part);
      owned.part.release();
      owned.is_free = true;
    };
  }

  per_thread(per_thread const&)            = delete;
  per_thread& operator=(per_thread const&) = delete;

  ~per_thread()
  {
    std::lock_guard<std::mutex> const lock{link_->mutex};
    link_->alive = false;
  }

  /// The part of the calling thread; null if there is no memory for it, or the thread is about to end.
  [[nodiscard]] RMM_ALWAYS_INLINE Part* mine() noexcept
  {
    auto* const part = mine_at_hand();
    return part != nullptr ? part : find_mine();
  }

  /// The same, but also null if finding it takes longer.
  [[nodiscard]] RMM_ALWAYS_INLINE Part* mine_at_hand() noexcept
  {
    if (per_thread_slots.owners[slot_] != number_) { return nullptr; }
    auto* const part = per_thread_slots.parts[slot_];
    if (part == nullptr) { __builtin_unreachable(); }  // so that callers need not ask again
    return &static_cast<owned_part*>(part)->part;
  }

  /// Calls `action(part)` for all parts, also those of threads that have ended. No part is added, adopted or released
  /// meanwhile; what else threads do with their parts goes on.
  template <class Action>
  void for_each(Action&& action)
  {
    std::lock_guard<std::mutex> const lock{link_->mutex};
    for (auto const& each : parts_) { action(each->part); }
  }

 private:
  struct owned_part {
    Part part{};
    bool is_free{false};
  };

  RMM_COLD Part* find_mine() noexcept
  {
    try {
      auto* const thread = thread_parts::mine();
      if (thread == nullptr) { return nullptr; }
      auto* part = static_cast<owned_part*>(thread->find(number_));
      if (part == nullptr) {
        thread->prepare_to_add();
        part = take_part();
        thread->add({number_, part, link_});
      }
      per_thread_slots.owners[slot_] = number_;
      per_thread_slots.parts[slot_]  = part;
      return &part->part;
    } catch (std::exception const&) {
      return nullptr;
    }
  }

  owned_part* take_part()
  {
    std::lock_guard<std::mutex> const lock{link_->mutex};
    owned_part* taken = nullptr;
    for (auto const& each : parts_) {
      if (each->is_free) { taken = each.get(); }
    }
    if (taken == nullptr) { taken = parts_.emplace_back(std::make_unique<owned_part>()).get(); }
    taken->is_free = false;
    taken->part.adopt();
    return taken;
  }

  std::uint64_t number_;
  std::size_t slot_{number_ % per_thread_table::size};  // where each thread has its part at hand
  std::shared_ptr<per_thread_link> link_;               // its mutex guards parts_ and is_free
  std::vector<std::unique_ptr<owned_part>> parts_;      // never shrinks
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
