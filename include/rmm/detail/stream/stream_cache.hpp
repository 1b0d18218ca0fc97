// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/owner_lock.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// Small blocks have every multiple of heap_granule up to this size, so none is larger than what was asked for.
inline constexpr std::size_t small_block_limit = std::size_t{64} << 10;
inline constexpr std::size_t small_sizes       = small_block_limit / heap_granule;

/// The stack of each small size: how many blocks it holds, and where it begins among the entries of all. Larger blocks get
/// fewer places.
class stack_layout {
 public:
  constexpr stack_layout() noexcept
  {
    std::uint16_t place = 0;
    for (std::size_t granules = 1; granules <= small_sizes; ++granules) {
      first_[granules] = place;
      places_[granules] =
        static_cast<std::uint8_t>(std::clamp(std::size_t{1024} / granules, std::size_t{8}, std::size_t{64}));
      place = static_cast<std::uint16_t>(place + places_[granules]);
    }
    total_ = place;
  }

  [[nodiscard]] constexpr std::size_t first(std::size_t granules) const noexcept { return first_[granules]; }
  [[nodiscard]] constexpr std::uint8_t places(std::size_t granules) const noexcept { return places_[granules]; }
  [[nodiscard]] constexpr std::size_t total() const noexcept { return total_; }

 private:
  std::array<std::uint16_t, small_sizes + 1> first_{};
  std::array<std::uint8_t, small_sizes + 1> places_{};
  std::size_t total_{};
};

inline constexpr stack_layout small_stacks{};

/// What the caches of a heap read without its lock.
struct heap_limits {
  std::atomic<std::size_t> most_unmarked_bytes{0};  // that a cache leaves
  std::atomic<std::int64_t> returned_claims{0};     // claims of blocks that other caches took back
  seam_list seam_addresses{};                       // where ranges are not joined; changes while all caches are closed

  [[nodiscard]] seam_list const* seams() const noexcept
  {
    return seam_addresses.count == 0 ? nullptr : &seam_addresses;
  }
};

/// What one thread freed on one stream, and may take again on that stream at once.
///
/// Blocks up to small_block_limit lie in stacks, one for each size; larger ones first among the `recent` ones, then, with
/// their neighbours joined, in `ranges`. A free is marked when the cache's event was recorded after it: then other streams
/// may have the memory too, after they waited for the event. The event is recorded only within calls that the program
/// makes on the stream, for many frees at a time. The handle of a stream is used in such calls only. What was recent then is
/// joined a few at a time, in the frees that follow, so that no call is much slower; at once where others allocated it.
///
/// Invariants:
///  C1  all of `ranges`, what is `joining`, and in each stack the entries below `marked`, may be used after the cache's event
///  C2  unmarked frees are the other entries of the stacks and the recent ones: unmarked_frees_ of unmarked_bytes_ bytes
///  C3  there is room in `ranges` for claims_ more, if that is positive. Over all caches and stores of a heap, claims less
///      returned ones are as many as there are blocks that were cut and not joined again: each free finds room somewhere
///
/// Entered by its owner through lock(), by others while the heap that it belongs to keeps the owner out. Nothing here locks.
class stream_cache {
 public:
  static constexpr std::size_t most_unmarked_frees = 128;

  /// `ends` counts ends of streams, this one among them; null if nobody tells. Throws std::bad_alloc or cuda_error.
  stream_cache(cudaStream_t stream, std::uint64_t identity, std::atomic<std::uint64_t> const* ends, heap_limits& limits)
    : stream_{stream},
      identity_{identity},
      ends_{ends},
      limits_{limits},
      entries_{new std::uintptr_t[small_stacks.total()]}
  {
    if (ends_ != nullptr) { trusted_ends_ = ends_->load(std::memory_order_acquire); }
  }

  [[nodiscard]] owner_lock& lock() noexcept { return lock_; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }
  [[nodiscard]] std::uint64_t identity() const noexcept { return identity_; }

  // --- whose handle it is ---

  /// Whether the handle is sure to name still the stream that the cache was made for; without asking the runtime.
  [[nodiscard]] RMM_ALWAYS_INLINE bool is_trusted() const noexcept
  {
    return ends_ != nullptr && ends_->load(std::memory_order_relaxed) == trusted_ends_;
  }

  /// The same, asking if need be. Only in a call that the program makes with this handle.
  [[nodiscard]] bool is_current() noexcept { return is_trusted() || ask_identity(); }

  /// The stream has ended: the owner had better drop the cache. For any thread.
  void set_ended() noexcept { has_ended_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_.load(std::memory_order_relaxed); }

  // --- hot paths ---

  /// A block of `granules` granules from its stack; null if that is empty.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_pop(std::size_t granules) noexcept
  {
    auto const filled = filled_[granules];
    if (filled == 0) { return nullptr; }
    auto const bytes    = granules * heap_granule;
    auto const left     = static_cast<std::uint8_t>(filled - 1);
    bool const unmarked = left >= marked_[granules];
    filled_[granules]   = left;
    marked_[granules]   = unmarked ? marked_[granules] : left;
    unmarked_frees_ -= unmarked ? 1 : 0;
    unmarked_bytes_ -= unmarked ? bytes : 0;
    live_bytes_ += static_cast<std::int64_t>(bytes);
    return reinterpret_cast<void*>(
      entries_[small_stacks.first(granules) + left]);  // NOLINT: addresses are integers here
  }

  /// Puts a block onto its stack, if there is a place.
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_push(void* ptr, std::size_t granules) noexcept
  {
    auto const filled = filled_[granules];
    if (filled == small_stacks.places(granules)) { return false; }
    auto const bytes                                = granules * heap_granule;
    entries_[small_stacks.first(granules) + filled] = reinterpret_cast<std::uintptr_t>(ptr);
    filled_[granules]                               = static_cast<std::uint8_t>(filled + 1);
    note_unmarked(bytes);
    live_bytes_ -= static_cast<std::int64_t>(bytes);
    return true;
  }

  /// Whether so much is unmarked that it is time for mark().
  [[nodiscard]] RMM_ALWAYS_INLINE bool is_mark_due() const noexcept
  {
    return unmarked_frees_ >= most_unmarked_frees ||
           unmarked_bytes_ > limits_.most_unmarked_bytes.load(std::memory_order_relaxed);
  }

  // --- the rest ---

  /// Whether it will be, once a block of that size is freed.
  [[nodiscard]] bool makes_mark_due(std::size_t bytes) const noexcept
  {
    return unmarked_frees_ + 1 >= most_unmarked_frees ||
           unmarked_bytes_ + bytes > limits_.most_unmarked_bytes.load(std::memory_order_relaxed);
  }

  /// A block of any size from recent frees and ranges; null if nothing fits. Throws std::bad_alloc, and has taken nothing
  /// then, if there is no host memory for the free that will follow.
  [[nodiscard]] void* take(std::size_t bytes)
  {
    auto const newest = recent_count_ > recent_looks ? recent_count_ - recent_looks : 0;
    for (auto at = recent_count_; at-- > newest;) {
      if (recent_[at].bytes == bytes) { return take_recent(at); }
    }
    auto const taken = ranges_.take(bytes);
    if (!taken) { return nullptr; }
    claim({taken.begin, bytes}, 1);
    live_bytes_ += static_cast<std::int64_t>(bytes);
    return reinterpret_cast<void*>(taken.begin);  // NOLINT
  }

  /// A block of any size from the ranges, missing none. Not for hot paths. Throws as take() does.
  [[nodiscard]] void* take_best(std::size_t bytes)
  {
    auto const taken = ranges_.take_good(bytes);
    if (!taken) { return nullptr; }
    claim({taken.begin, bytes}, 1);
    live_bytes_ += static_cast<std::int64_t>(bytes);
    return reinterpret_cast<void*>(taken.begin);  // NOLINT
  }

  /// Cuts blocks of one small size from a range: one to return, the rest for their stack, which is empty. More each time,
  /// as the size is asked for again. With `from_end` from the end of a range, to keep its beginning for large blocks. Null if
  /// no range has even one. Throws as take() does.
  [[nodiscard]] void* take_run(std::size_t granules, bool from_end = false)
  {
    RMM_ASSERT(filled_[granules] == 0);
    auto const bytes = granules * heap_granule;
    auto const most  = std::min<std::size_t>(small_stacks.places(granules) / 2U, longest_run);
    std::size_t run  = std::clamp<std::size_t>(next_run_[granules], 1, most);
    for (; run != 0; run /= 2) {
      auto const taken = from_end ? ranges_.take_back(run * bytes) : ranges_.take(run * bytes);
      if (!taken) { continue; }
      claim({taken.begin, run * bytes}, run);
      // Those next to memory in use go out first: what is left of the run joins with the range.
      auto* const entries = &entries_[small_stacks.first(granules)];
      for (std::size_t i = 0; i + 1 < run; ++i) { entries[i] = taken.begin + (from_end ? i : run - 1 - i) * bytes; }
      filled_[granules]   = static_cast<std::uint8_t>(run - 1);
      marked_[granules]   = filled_[granules];  // C1: they come from ranges
      next_run_[granules] = static_cast<std::uint8_t>(std::min(2 * run, most));
      live_bytes_ += static_cast<std::int64_t>(bytes);
      return reinterpret_cast<void*>(taken.begin + (from_end ? run - 1 : 0) * bytes);  // NOLINT
    }
    return nullptr;
  }

  /// Takes a larger block back. Returns false if there is no place; then mark() makes some.
  [[nodiscard]] bool try_add_recent(void* ptr, std::size_t bytes) noexcept
  {
    if (is_joining()) { join(joins_at_once); }
    if (recent_count_ == recent_.size()) { return false; }
    recent_[recent_count_++] = {reinterpret_cast<std::uintptr_t>(ptr), bytes};
    note_unmarked(bytes);
    live_bytes_ -= static_cast<std::int64_t>(bytes);
    return true;
  }

  /// Records the event: all that was freed is marked. Only in a call that the program makes with `stream`, a handle of the
  /// cache's stream. Returns whether it worked; if not, nothing has changed.
  [[nodiscard]] bool mark(cudaStream_t stream) noexcept
  {
    if (!event_.try_record(stream)) { return false; }
    note_marked();
    return_claims();
    return true;
  }

  /// The same without the event, and joins all: who calls has made sure that nothing uses what was freed.
  void all_marked() noexcept
  {
    note_marked();
    static_cast<void>(join_marked());
    return_claims();
  }

  /// Joins all that was marked while it was recent with the ranges, as far as there is host memory. Returns whether there was
  /// any: then the ranges may have what they lacked.
  bool join_marked() noexcept
  {
    if (!is_joining()) { return false; }
    join(joining_count_);
    return true;
  }

  /// Moves the `most` oldest marked entries of a stack to the ranges. Returns whether there are any places free now.
  bool shorten_stack(std::size_t granules, std::size_t most) noexcept
  {
    auto* const entries = &entries_[small_stacks.first(granules)];
    auto const count    = std::min<std::size_t>(most, marked_[granules]);
    std::size_t moved   = 0;
    while (moved != count && try_put_back({entries[moved], granules * heap_granule})) { ++moved; }
    if (moved == 0) { return filled_[granules] < small_stacks.places(granules); }
    std::memmove(entries, entries + moved, (filled_[granules] - moved) * sizeof *entries);
    filled_[granules]   = static_cast<std::uint8_t>(filled_[granules] - moved);
    marked_[granules]   = static_cast<std::uint8_t>(marked_[granules] - moved);
    next_run_[granules] = static_cast<std::uint8_t>(next_run_[granules] / 2);
    return true;
  }

  /// Moves all that is marked to the ranges, as far as there is host memory.
  void empty_stacks() noexcept
  {
    static_cast<void>(join_marked());
    for (std::size_t granules = 1; granules <= small_sizes; ++granules) {
      if (marked_[granules] != 0) { static_cast<void>(shorten_stack(granules, marked_[granules])); }
    }
  }

  [[nodiscard]] std::int64_t claims() const noexcept { return claims_; }

  /// Takes a block where no cache could, in a set with room: see C3.
  [[nodiscard]] bool try_add_without_memory(address_range block) noexcept
  {
    if (ranges_.count() == ranges_.capacity()) { return false; }
    ranges_.insert(block, 0, seams());
    --claims_;
    return true;
  }

  /// Gets room in `ranges` for `more` ranges beside those that C3 keeps room for. Returns whether there is.
  [[nodiscard]] bool try_make_room(std::size_t more) noexcept
  {
    auto const claimed = claims_ > 0 ? static_cast<std::size_t>(claims_) : 0;
    return ranges_.try_reserve(ranges_.count() + claimed + more);
  }

  /// A range that is free for this stream after the cache's event, or altogether. Requires try_make_room(1).
  void add_range(address_range range) noexcept { ranges_.insert(range, 0, seams()); }

  /// A block that was cut elsewhere goes out through this cache, or comes in without becoming free in it.
  void note_live(std::int64_t bytes) noexcept { live_bytes_ += bytes; }

  /// A block that another set gives room for: it will come back here. False if the host has no memory for that.
  [[nodiscard]] bool try_claim() noexcept
  {
    if (!try_make_room(1)) { return false; }
    ++claims_;
    return true;
  }

  void cancel_claim() noexcept { --claims_; }

  [[nodiscard]] bool has_marked(std::size_t granules) const noexcept { return marked_[granules] != 0; }
  /// Whether anything marked is not in the ranges.
  [[nodiscard]] bool has_marked_blocks() const noexcept
  {
    return is_joining() || std::any_of(marked_.begin(), marked_.end(), [](std::uint8_t marked) { return marked != 0; });
  }
  [[nodiscard]] bool has_unmarked() const noexcept { return unmarked_frees_ != 0; }
  [[nodiscard]] std::size_t unmarked_count() const noexcept { return unmarked_frees_; }
  [[nodiscard]] std::size_t unmarked_bytes() const noexcept { return unmarked_bytes_; }

  /// The ranges; whoever takes one from them keeps to C3.
  [[nodiscard]] range_set& ranges() noexcept { return ranges_; }
  [[nodiscard]] range_set const& ranges() const noexcept { return ranges_; }

  [[nodiscard]] owned_event const& event() const noexcept { return event_; }
  [[nodiscard]] owned_event take_event() noexcept { return std::move(event_); }
  [[nodiscard]] std::int64_t live_bytes() const noexcept { return live_bytes_; }

  /// Calls visit(range, marked) for all that is free here.
  template <class Visit>
  void for_each_free(Visit&& visit) const
  {
    ranges_.for_each([&](address_range range, std::uint64_t) { visit(range, true); });
    for (std::size_t granules = 1; granules <= small_sizes; ++granules) {
      auto const* const entries = &entries_[small_stacks.first(granules)];
      for (std::size_t i = 0; i < filled_[granules]; ++i) {
        visit(address_range{entries[i], granules * heap_granule}, i < marked_[granules]);
      }
    }
    for (std::size_t i = 0; i < joining_count_; ++i) { visit(joining_[i], true); }
    for (std::size_t i = 0; i < recent_count_; ++i) { visit(recent_[i], false); }
  }

  /// Whether C2, C3 and those of the ranges hold; O(free).
  [[nodiscard]] bool check_invariants() const
  {
    std::size_t frees{};
    std::size_t bytes{};
    for_each_free([&](address_range range, bool marked) {
      frees += marked ? 0U : 1U;
      bytes += marked ? 0U : range.bytes;
    });
    bool good = frees == unmarked_frees_ && bytes == unmarked_bytes_;
    for (std::size_t granules = 1; granules <= small_sizes; ++granules) {
      good = good && marked_[granules] <= filled_[granules] && filled_[granules] <= small_stacks.places(granules);
    }
    auto const room = static_cast<std::int64_t>(ranges_.capacity() - ranges_.count());
    return good && room >= claims_ && ranges_.validate(seams());
  }

 private:
  static constexpr std::size_t recent_looks  = 4;
  static constexpr std::size_t joins_at_once = 24;  // so that all are joined long before the next mark
  static constexpr std::size_t longest_run   = 16;

  [[nodiscard]] RMM_COLD bool ask_identity() noexcept
  {
    auto const ends = ends_ != nullptr ? ends_->load(std::memory_order_acquire) : 0;
    if (identity_of_running_stream(stream_) != identity_) { return false; }
    trusted_ends_ = ends;
    return true;
  }

  [[nodiscard]] seam_list const* seams() const noexcept { return limits_.seams(); }

  void note_unmarked(std::size_t bytes) noexcept
  {
    ++unmarked_frees_;
    unmarked_bytes_ += bytes;
  }

  void note_marked() noexcept
  {
    static_cast<void>(join_marked());  // hardly ever any are left
    marked_         = filled_;
    unmarked_frees_ = 0;
    unmarked_bytes_ = 0;
    if (!is_joining()) {
      std::copy(recent_.data(), recent_.data() + recent_count_, joining_.data());
      joining_count_ = std::exchange(recent_count_, 0);
      if (live_bytes_ < 0) { static_cast<void>(join_marked()); }
    } else {  // no host memory: what is recent stays that
      for (std::size_t at = 0; at != recent_count_; ++at) { note_unmarked(recent_[at].bytes); }
    }
  }

  void return_claims() noexcept
  {
    if (claims_ < 0) { limits_.returned_claims.fetch_add(-std::exchange(claims_, 0), std::memory_order_relaxed); }
  }

  [[nodiscard]] void* take_recent(std::size_t at) noexcept
  {
    auto const block = recent_[at];
    std::copy(&recent_[at] + 1, recent_.data() + recent_count_, &recent_[at]);
    --recent_count_;
    --unmarked_frees_;
    unmarked_bytes_ -= block.bytes;
    live_bytes_ += static_cast<std::int64_t>(block.bytes);
    return reinterpret_cast<void*>(block.begin);  // NOLINT
  }

  /// Keeps C3 after `blocks` blocks were taken from `ranges`; they lay at `taken`.
  void claim(address_range taken, std::size_t blocks)
  {
    claims_ += static_cast<std::int64_t>(blocks);
    if (has_room() || try_grow_room()) { return; }
    claims_ -= static_cast<std::int64_t>(blocks);
    ranges_.insert(taken, 0, seams());  // joins with what is left of its range, or has that one's place
    throw std::bad_alloc{};
  }

  [[nodiscard]] bool has_room() const noexcept
  {
    return static_cast<std::int64_t>(ranges_.capacity() - ranges_.count()) >= claims_;
  }

  /// Room for what is claimed. Claims of blocks that came back to other caches are given up first.
  [[nodiscard]] RMM_COLD bool try_grow_room() noexcept
  {
    auto const returned = limits_.returned_claims.exchange(0, std::memory_order_relaxed);
    auto const given_up = std::min(returned, claims_);
    claims_ -= given_up;
    if (given_up != returned) { limits_.returned_claims.fetch_add(returned - given_up, std::memory_order_relaxed); }
    return has_room() || ranges_.try_reserve(ranges_.count() + static_cast<std::size_t>(claims_));
  }

  [[nodiscard]] bool is_joining() const noexcept { return joining_count_ != 0; }

  /// Joins `most` of what is to be joined, beginning with the latest.
  void join(std::size_t most) noexcept
  {
    auto const end = joining_count_ - std::min(most, joining_count_);
    while (joining_count_ != end && try_put_back(joining_[joining_count_ - 1])) { --joining_count_; }
  }

  [[nodiscard]] bool try_put_back(address_range block) noexcept
  {
    if (ranges_.count() == ranges_.capacity() && !ranges_.try_reserve(ranges_.count() + 1)) { return false; }
    ranges_.insert(block, 0, seams());
    --claims_;
    return true;
  }

  owner_lock lock_;
  cudaStream_t stream_;
  std::uint64_t identity_;
  std::atomic<std::uint64_t> const* ends_;  // null: nobody tells when the stream ends
  std::uint64_t trusted_ends_{};
  std::atomic<bool> has_ended_{false};
  heap_limits& limits_;

  std::unique_ptr<std::uintptr_t[]> entries_;
  std::size_t unmarked_frees_{};
  std::size_t unmarked_bytes_{};
  std::int64_t live_bytes_{};  // allocated less freed here: negative where the frees of others' blocks come in
  std::array<std::uint8_t, small_sizes + 1> filled_{};
  std::array<std::uint8_t, small_sizes + 1> marked_{};
  std::array<std::uint8_t, small_sizes + 1> next_run_{};

  std::size_t recent_count_{};
  std::array<address_range, most_unmarked_frees> recent_;
  std::size_t joining_count_{};
  std::array<address_range, most_unmarked_frees> joining_;
  range_set ranges_;
  std::int64_t claims_{};
  owned_event event_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
