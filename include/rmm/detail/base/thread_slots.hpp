// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// A per-thread map from owner and key to an object, for owners of one kind. Owners get their objects back when the thread ends.
///
/// A hash table with linear probing, because a thread may use thousands of keys. Only the thread itself uses it. Hot paths look into a
/// table of slots first: a `thread_local` variable of plain data, which is valid before the first object of a thread is constructed and
/// after the last one is destroyed.
///
/// `Derived` is the table of one kind of owners. Its destructor calls give_back(). `Link` connects to an owner, which may be destroyed
/// before the thread ends. It has a `mutex`, and a function `is_gone()` that is called with the mutex held. An owner that is destroyed
/// locks the mutex, and makes is_gone() return true. The `process` of a link is the one that made the owner: in a forked child, the owners
/// of its parent count as gone.
template <class Derived, class Key, class Object, class Link>
class thread_slots {
 public:
  struct entry {
    std::uint64_t owner{};  // a number that is never reused; 0 in an empty place
    Key key{};
    Object* object{};
    detail::counted_ptr<Link> link{};
  };

  /// Returns the table of the calling thread; null after the thread has given its objects back.
  [[nodiscard]] static Derived* mine()
  {
    if (has_ended) { return nullptr; }
    thread_local Derived objects;
    return &objects;
  }

  /// Returns a hash. Use its upper bits: they are mixed best.
  [[nodiscard]] RMM_ALWAYS_INLINE static std::uint64_t hash_of(std::uint64_t owner, Key key) noexcept
  {
    return (reinterpret_cast<std::uintptr_t>(key) + owner) * 0x9E3779B97F4A7C15U;
  }

  [[nodiscard]] std::size_t count() const noexcept { return count_; }

  [[nodiscard]] Object* find(std::uint64_t owner, Key key) const noexcept
  {
    auto const at = find_place(owner, key);
    return at == none ? nullptr : places_[at].object;
  }

  /// Makes room for one more entry, so that the next add() does not throw. A full table first drops entries whose owners are gone.
  /// Throws std::bad_alloc.
  void prepare_to_add()
  {
    if (4 * (count_ + 1) > 3 * places_.size()) { drop_gone(); }
  }

  /// Adds an entry. Requires that none exists for its owner and key. Throws std::bad_alloc.
  void add(entry added)
  {
    prepare_to_add();
    place(std::move(added));
  }

  /// Removes the entry, if there is one.
  void forget(std::uint64_t owner, Key key) noexcept
  {
    auto at = find_place(owner, key);
    if (at == none) { return; }
    places_[at] = entry{};
    --count_;
    for (at = next_to(at); places_[at].owner != 0; at = next_to(at)) {  // later entries may fit a better place now
      --count_;
      place(std::exchange(places_[at], entry{}));
    }
    RMM_ASSERT(find_place(owner, key) == none);
  }

  /// Calls visit(entry) for each entry. visit() must not add or remove entries.
  template <class Visit>
  void for_each(Visit&& visit) const
  {
    for (auto const& each : places_) {
      if (each.owner != 0) { visit(each); }
    }
  }

  /// Returns the object of the owner's next entry: repeated calls go round the table. Null if the owner has no entry.
  [[nodiscard]] Object* next_of(std::uint64_t owner) noexcept
  {
    for (std::size_t i = 0; i != places_.size(); ++i) {
      hand_ = next_to(hand_);
      if (places_[hand_].owner == owner) { return places_[hand_].object; }
    }
    return nullptr;
  }

 protected:
  ~thread_slots() = default;

  /// Removes all entries, and makes mine() return null. Calls return_object(link, object) for each object whose owner still exists,
  /// with the link's mutex held.
  template <class ReturnObject>
  void give_back(ReturnObject&& return_object) noexcept
  {
    has_ended = true;
    for_each([&](entry const& each) {
      if (!each.link->process.is_current()) { return; }
      detail::mutex_lock const lock{each.link->mutex};
      if (!each.link->is_gone()) { return_object(*each.link, each.object); }
    });
    places_.clear();
    count_ = 0;
  }

  /// Drops the entries whose owners are gone, and leaves room for one more. Throws std::bad_alloc, and changes nothing then.
  void drop_gone()
  {
    std::size_t kept = 0;
    for_each([&](entry const& each) { kept += is_gone(each) ? 0U : 1U; });
    std::size_t size = 8;
    while (size < 2 * (kept + 1)) { size *= 2; }
    std::vector<entry> old(size);
    places_.swap(old);
    count_ = 0;
    for (auto& each : old) {
      if (each.owner != 0 && !is_gone(each)) { place(std::move(each)); }
    }
  }

 private:
  inline static thread_local bool has_ended = false;
  static constexpr std::size_t none         = ~std::size_t{0};

  [[nodiscard]] static bool is_gone(entry const& each) noexcept
  {
    if (!each.link->process.is_current()) { return true; }
    detail::mutex_lock const lock{each.link->mutex};
    return each.link->is_gone();
  }

  [[nodiscard]] std::size_t next_to(std::size_t at) const noexcept { return (at + 1) & (places_.size() - 1); }
  [[nodiscard]] std::size_t first_place_of(std::uint64_t owner, Key key) const noexcept
  {
    return static_cast<std::size_t>(hash_of(owner, key) >> 32U) & (places_.size() - 1);
  }

  [[nodiscard]] std::size_t find_place(std::uint64_t owner, Key key) const noexcept
  {
    if (count_ == 0) { return none; }
    auto at = first_place_of(owner, key);
    while (places_[at].owner != 0 && (places_[at].owner != owner || places_[at].key != key)) { at = next_to(at); }
    return places_[at].owner != 0 ? at : none;
  }

  void place(entry&& added) noexcept
  {
    RMM_ASSERT(count_ < places_.size() && find_place(added.owner, added.key) == none);
    auto at = first_place_of(added.owner, added.key);
    while (places_[at].owner != 0) { at = next_to(at); }
    places_[at] = std::move(added);
    ++count_;
  }

  std::vector<entry> places_;  // their number is a power of two, or 0
  std::size_t count_{};
  std::size_t hand_{};  // the place at which next_of() stopped
};

/// A thread's small cache of its parts, searched by the number of the owner in a few instructions.
struct per_thread_table {
  static constexpr std::size_t size = 8;
  std::array<std::uint64_t, size> owners;  // 0 in an empty slot
  std::array<void*, size> parts;
};
inline thread_local per_thread_table per_thread_slots{};

/// One `Part` for each thread that asks for it.
///
/// A part outlives its thread. A thread that ends calls `part.release()`; a thread that gets a part, new or released, calls
/// `part.adopt()`. Neither throws. Only its thread uses a part, except for for_each().
///
/// Order: the link's mutex is held when a part is released and when it is adopted, so a thread sees what the part's last thread wrote.
/// Members that only the part's own thread uses may be plain variables. Members that the action of for_each() reads while that thread goes
/// on have to be atomic, or guarded by a lock.
/// tests/models/thread_slots_model.cpp tries all executions.
template <class Part>
class per_thread {
 public:
  /// `number` is not 0, and no other object of the process has or had it.
  explicit per_thread(std::uint64_t number) : number_{number}, link_{detail::make_counted<link>()} {}

  per_thread(per_thread const&)            = delete;
  per_thread& operator=(per_thread const&) = delete;

  ~per_thread()
  {
    if (!link_->process.is_current()) { return; }
    detail::mutex_lock const lock{link_->mutex};
    link_->has_gone = true;
  }

  /// Returns the part of the calling thread; null if host memory runs out, or the thread is ending.
  [[nodiscard]] RMM_ALWAYS_INLINE Part* mine() noexcept
  {
    auto* const part = mine_at_hand();
    return part != nullptr ? part : find_mine();
  }

  /// Returns the part of the calling thread if it is in the thread's small cache; else null.
  [[nodiscard]] RMM_ALWAYS_INLINE Part* mine_at_hand() noexcept
  {
    if (per_thread_slots.owners[slot_] != number_) { return nullptr; }
    auto* const part = per_thread_slots.parts[slot_];
    if (part == nullptr) { __builtin_unreachable(); }  // lets the compiler remove null checks of callers
    return &static_cast<owned_part*>(part)->part;
  }

  /// Calls `action(part)` for all parts, including those of ended threads. Meanwhile no part is added, adopted or released, but threads
  /// go on using their parts.
  template <class Action>
  void for_each(Action&& action)
  {
    detail::mutex_lock const lock{link_->mutex};
    for (auto const& each : parts_) { action(each->part); }
  }

 private:
  struct owned_part {
    Part part{};
    owned_part* next_free{};
  };

  struct link {
    owning_process process;
    detail::mutex mutex;
    bool has_gone{false};
    owned_part* first_free{};  // the list of parts whose threads have ended

    [[nodiscard]] bool is_gone() const noexcept { return has_gone; }
  };

  /// All parts of a thread. The key is not used. When the thread ends, other threads may adopt the parts.
  class thread_parts : public thread_slots<thread_parts, void*, owned_part, link> {
   public:
    ~thread_parts()
    {
      per_thread_slots = {};
      this->give_back([](link& owner, owned_part* each) noexcept {
        each->part.release();
        each->next_free = std::exchange(owner.first_free, each);
      });
    }
  };

  RMM_COLD Part* find_mine() noexcept
  {
    try {
      auto* const thread = thread_parts::mine();
      if (thread == nullptr) { return nullptr; }
      auto* part = thread->find(number_, nullptr);
      if (part == nullptr) {
        thread->prepare_to_add();
        part = take_part();
        thread->add({number_, nullptr, part, link_});
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
    detail::mutex_lock const lock{link_->mutex};
    auto* taken = link_->first_free;
    if (taken != nullptr) {
      link_->first_free = taken->next_free;
    } else {
      taken = parts_.emplace_back(detail::make_owned<owned_part>()).get();
    }
    taken->part.adopt();
    return taken;
  }

  std::uint64_t number_;
  std::size_t slot_{number_ % per_thread_table::size};  // the position in the small cache of each thread
  detail::counted_ptr<link> link_;                      // its mutex guards parts_
  std::vector<detail::owned_ptr<owned_part>> parts_;    // never shrinks
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
