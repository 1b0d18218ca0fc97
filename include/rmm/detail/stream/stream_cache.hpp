// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/biased_lock.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/base/spinning_mutex.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/deallocation_reserve.hpp>
#include <rmm/detail/heap/range_set.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// Blocks up to this size are small: each multiple of heap_granule has a stack of its own, so that no block is larger than its request.
inline constexpr std::size_t small_block_limit = std::size_t{64} << 10;
inline constexpr std::size_t small_sizes       = small_block_limit / heap_granule;

/// Returns the number of blocks that the stack of a small size holds. Larger blocks get fewer places.
[[nodiscard]] constexpr std::size_t stack_places(std::size_t granules) noexcept
{
  return detail::clamp(std::size_t{1024} / granules, std::size_t{8}, std::size_t{64});
}

/// Limits, seams and reserve of a heap, which its caches use without the heap's lock.
///
/// All threads read the limits in each call, and write to the reserve. So the reserve shares no cache line with anything else.
///
/// Order: the limits guard no data, so they are relaxed. A thread that reads an old one records an event earlier or later than it should.
/// The seams are plain: they change while all owners are locked out, and O2 of biased_lock makes owners see the change.
struct heap_limits {
  using cache_line = std::array<std::byte, 64>;

  std::atomic<std::size_t> most_unfenced_bytes{0};               // in one cache
  std::atomic<std::size_t> most_unfenced_of_young{0};            // in one whose stream may end soon
  std::atomic<std::size_t> most_run_bytes{range_set::no_limit};  // that a cache cuts at once for blocks of one size
  std::atomic<std::size_t> scarce_bytes{
    range_set::no_limit};             // a cache with fewer bytes in ranges coalesces with each fence
  seam_list seam_addresses{};         // where ranges are not coalesced; changes while all caches are closed
  std::size_t most_unused_stores{8};  // with the lock: as many as streams may soon use again
  cache_line unused_before_reserve{};
  deallocation_reserve reserve{};
  cache_line unused_after_reserve{};

  [[nodiscard]] seam_list const* seams() const noexcept
  {
    return seam_addresses.count == 0 ? nullptr : &seam_addresses;
  }
};

/// A cache of the memory that one thread freed on one stream. The thread may take the memory again on that stream at once.
///
/// Blocks up to small_block_limit lie in stacks, one for each size. Larger blocks are `recent` at first, and then lie in `ranges`,
/// coalesced with their neighbours.
///
/// A free is fenced when the cache's event was recorded after it. Then other streams may have the memory after a wait for the event. The
/// event is recorded for many frees at a time, and only while the stream is known to be alive: in calls that the program makes on it, or
/// while the library keeps it from ending. If the stream can end without notice, the cache records the event after the first free, then
/// after twice as many frees each time, and until its 64th event with each large free. So a stream that lives for a few requests leaves
/// little unfenced memory.
///
/// Recent blocks coalesce after the event, a few at a time in the frees that follow, so that no call is much slower than others. There are
/// two exceptions. A cache that frees what others allocated coalesces all recent blocks with the event. So does, for some blocks, a cache
/// that is the only one and whose ranges hold less than half of the memory; it also empties a few stack entries that were not taken since
/// the event before, because they keep their neighbours apart.
///
/// A cache can also keep two large blocks, which otherwise go past caches. Their owner takes them for a request of the same size. So a
/// program whose large blocks have few sizes needs no lock of the heap for them. If the library learns when the stream ends, kept blocks
/// have no event, and first go to a store, with an event, when others need them. If the stream can end without notice, the cache records
/// its event with each block that it keeps, and others move the block to the ranges. A cache keeps only blocks of sizes that it is often
/// asked for: other blocks are of more use where they coalesce.
///
/// While memory is scarce, a cache gathers large blocks of all sizes instead, up to eight and without an event. They move to a store together,
/// behind one event, with the next large free, or when the owner finds nothing else. Streams that may end soon, without notice, gather none.
///
/// Cost  host memory: about 7 KiB with few sizes of blocks, 50 KiB with all of them.
///
/// Invariants:
///  C1  `ranges`, `coalescing` blocks, the entries below `fenced` of each stack, and the kept blocks if kept_have_event_ is
///      set, may be used after the cache's event
///  C2  unfenced frees are the other entries of the stacks and the recent blocks: unfenced_count() blocks of unfenced_bytes_ bytes
///  C3  each block that was cut here has a claim of the heap's reserve; a bounded number of spare_claims_ is held in advance
///  C4  stacks share no entries; in each, fenced entries <= entries <= places
///  C5  no two free pieces overlap, and none is empty
///  C6  there are at most recent_capacity_ recent blocks, and at most as many coalescing ones
///  C7  the kept blocks of a lasting stream are unfenced, whatever events the cache has recorded; those of another stream are fenced with
///      its unfenced frees. No kept block counts in C2
///
/// The owner enters a cache through lock(), except for what only owners use, as next_event(). Other threads use it while their heap keeps
/// the owner out. No function locks anything but the reserve.
///
/// Order: members are plain, and O2 of biased_lock makes the owner and other threads see what the other wrote. has_ended_ is relaxed: the
/// owner drops the cache when it sees it, and until then is_trusted() decides whether the handle may be used. Relaxed is enough there, too:
/// a call with the handle of a new stream happens after that stream was made, and so after the old one ended and was counted. The
/// count to trust is loaded in calls that use the stream, which the program does not destroy meanwhile.
class stream_cache {
 public:
  static constexpr std::size_t most_unfenced_frees = 128;
  static constexpr std::size_t most_kept_blocks    = 8;
  static constexpr std::size_t most_kept_of_sizes  = 2;  // because their sizes are frequent
  static constexpr unsigned most_refills_counted   = 255;

  /// The stream of a cache.
  struct stream_name {
    cudaStream_t handle{};
    cudaStream_t
      key{};  // threads find the cache by it: the handle, or a number that differs for default streams of different devices
    std::uint64_t identity{};
    int device{-1};
  };

  /// `ends`  counts streams that have ended, and changes when this stream ends; null if the library is not told of that.
  /// `is_lasting`  whether the library will learn when the stream ends, or it never ends.
  /// `event`  of the stream's device, or none: then makes one.
  /// Throws std::bad_alloc or cuda_error.
  stream_cache(stream_name const& name,
               std::atomic<std::uint64_t> const* ends,
               bool is_lasting,
               heap_limits& limits,
               owned_event event = owned_event{nullptr})
    : is_lasting_{is_lasting},
      frees_left_{is_lasting ? std::int32_t{most_unfenced_frees} : 1},
      ends_{ends},
      most_unfenced_{is_lasting ? &limits.most_unfenced_bytes : &limits.most_unfenced_of_young},
      limits_{limits},
      frees_to_fence_{frees_left_},
      name_{name},
      fences_while_young_{is_lasting ? std::uint8_t{0} : fences_of_young},
      event_{event ? std::move(event) : owned_event{name.device}}
  {
    if (ends_ != nullptr) { trusted_ends_ = ends_->load(std::memory_order_acquire); }
  }

  // A cache begins at a cache line. Without alignas: programs may lack the aligned operator new (-fno-aligned-new), and tests let the plain
  // one fail.
  [[nodiscard]] static void* operator new(std::size_t bytes)
  {
    auto const memory = reinterpret_cast<std::uintptr_t>(::operator new(bytes + cache_line));
    auto* const begin = reinterpret_cast<void*>((memory / cache_line + 1) * cache_line);  // NOLINT
    *memory_of(begin) = memory;
    return begin;
  }
  static void operator delete(void* ptr) noexcept
  {
    ::operator delete(reinterpret_cast<void*>(*memory_of(ptr)));  // NOLINT
  }

  [[nodiscard]] biased_lock& lock() noexcept { return lock_; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return name_.handle; }
  [[nodiscard]] cudaStream_t key() const noexcept { return name_.key; }
  [[nodiscard]] std::uint64_t identity() const noexcept { return name_.identity; }
  [[nodiscard]] int device() const noexcept { return name_.device; }
  [[nodiscard]] bool is_lasting() const noexcept { return is_lasting_; }

  // --- the identity of the handle ---

  /// Whether the handle certainly still names the stream that the cache was made for, without asking CUDA.
  [[nodiscard]] RMM_ALWAYS_INLINE bool is_trusted() const noexcept
  {
    return ends_ != nullptr && ends_->load(std::memory_order_relaxed) == trusted_ends_;
  }

  /// Whether the handle still names that stream; asks CUDA if necessary. Call it only in calls that the program makes with this handle.
  [[nodiscard]] bool is_current() noexcept { return is_trusted() || ask_identity(); }

  /// Notes that the stream has ended, so that the owner drops the cache. Any thread may call it; the owner may see it late.
  void set_ended() noexcept { has_ended_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_.load(std::memory_order_relaxed); }

  // --- hot paths ---

  /// Takes a block of `granules` granules from its stack. Returns null if the stack is empty.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_pop(std::size_t granules) noexcept
  {
    RMM_ASSERT(granules != 0 && granules <= small_sizes);
    auto const filled = filled_[granules];
    if (filled == 0) { return nullptr; }
    auto const bytes    = granules * heap_granule;
    auto const left     = static_cast<std::uint8_t>(filled - 1);
    bool const unfenced = left >= fenced_[granules];
    filled_[granules]   = left;
    fenced_[granules]   = unfenced ? fenced_[granules] : left;
    frees_left_ += unfenced ? 1 : 0;
    unfenced_bytes_ -= unfenced ? bytes : 0;
    live_bytes_ += static_cast<std::int64_t>(bytes);
    RMM_ASSERT(fenced_[granules] <= left);
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
    return reinterpret_cast<void*>(stack_of(granules)[left]);  // NOLINT: addresses are integers here
  }

  /// Puts a block onto its stack. Returns false if the stack has no place.
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_push(void* ptr, std::size_t granules) noexcept
  {
    RMM_ASSERT(ptr != nullptr && granules != 0 && granules <= small_sizes);
    auto const filled = filled_[granules];
    if (filled == stacks_[granules].places) { return false; }
    auto const bytes           = granules * heap_granule;
    stack_of(granules)[filled] = reinterpret_cast<std::uintptr_t>(ptr);
    filled_[granules]          = static_cast<std::uint8_t>(filled + 1);
    note_unfenced(bytes);
    live_bytes_ -= static_cast<std::int64_t>(bytes);
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
    return true;
  }

  /// Takes the latest of the recent blocks if it has this size. Returns null otherwise.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_take_latest(std::size_t bytes) noexcept
  {
    return has_latest(bytes) ? take_recent(recent_count_ - 1) : nullptr;
  }

  /// Frees a larger block. Returns false if there is no place; fence() makes some.
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_add_recent(void* ptr, std::size_t bytes) noexcept
  {
    RMM_ASSERT(ptr != nullptr && bytes != 0 && bytes % heap_granule == 0);
    if ((is_coalescing() || recent_count_ == recent_capacity_) && !prepare_recent()) { return false; }
    recent_[recent_count_++] = {reinterpret_cast<std::uintptr_t>(ptr), bytes};
    note_unfenced(bytes);
    live_bytes_ -= static_cast<std::int64_t>(bytes);
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
    return true;
  }

  /// Whether enough frees are unfenced for the next event.
  [[nodiscard]] RMM_ALWAYS_INLINE bool is_fence_due() const noexcept
  {
    return frees_left_ <= 0 || unfenced_bytes_ > most_unfenced_->load(std::memory_order_relaxed);
  }

  // --- less frequent calls ---

  /// Gets host memory for the stack of a size. Returns false if the stack has it already, or if host memory runs out.
  [[nodiscard]] bool try_add_stack(std::size_t granules) noexcept
  {
    if (stacks_[granules].places != 0) { return false; }
    auto const places = stack_places(granules);
    if (entries_used_ + places > entries_capacity_) {
      auto const grown = detail::max(std::size_t{2} * entries_capacity_, entries_used_ + places);
      detail::owned_ptr<std::uintptr_t[]> moved{new (std::nothrow) std::uintptr_t[grown]};
      if (moved == nullptr) { return false; }
      detail::copy(entries_.get(), entries_.get() + entries_used_, moved.get());
      entries_          = std::move(moved);
      entries_capacity_ = static_cast<std::uint32_t>(grown);
    }
    stacks_[granules].first  = static_cast<std::uint16_t>(entries_used_);
    stacks_[granules].places = static_cast<std::uint8_t>(places);
    entries_used_ += static_cast<std::uint32_t>(places);
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
    return true;
  }

  /// Whether is_fence_due() will be true after a free of that size.
  [[nodiscard]] bool makes_fence_due(std::size_t bytes) const noexcept
  {
    return frees_left_ <= 1 || unfenced_bytes_ + bytes > most_unfenced_->load(std::memory_order_relaxed);
  }

  /// Whether the latest of the recent blocks or a range serves a request for a large block.
  [[nodiscard]] bool has_block_for(std::size_t bytes) const noexcept
  {
    return has_latest(bytes) || ranges_.has_range_of(bytes);
  }

  /// Takes a block of any size from recent frees and ranges. Returns null if nothing fits. Throws std::bad_alloc, and takes nothing, if
  /// there is no host memory for the later free.
  [[nodiscard]] void* take(std::size_t bytes)
  {
    auto const newest = recent_count_ > recent_looks ? recent_count_ - recent_looks : 0;
    for (auto at = recent_count_; at-- > newest;) {
      if (recent_[at].bytes == bytes) { return take_recent(at); }
    }
    return hand_out(ranges_.take(bytes), bytes);
  }

  /// Takes a good fit of all ranges for a block of any size. Do not call it in hot paths. Throws as take() does.
  [[nodiscard]] void* take_good(std::size_t bytes) { return hand_out(ranges_.take_good(bytes), bytes); }

  /// Cuts several blocks of one small size from a range. Returns one, and puts the others on their stack, which is empty. Cuts more
  /// blocks each time that the size is asked for, but few in a small heap, which the unused ones would cut to pieces. With `from_end`, cuts
  /// from the end of a range, to keep its beginning for large blocks. Returns null if no range is large enough for one block. Throws as
  /// take() does.
  [[nodiscard]] void* take_run(std::size_t granules, bool from_end = false)
  {
    RMM_ASSERT(granules != 0 && granules <= small_sizes && filled_[granules] == 0 && fenced_[granules] == 0);
    auto const bytes     = granules * heap_granule;
    bool const has_stack = stacks_[granules].places != 0 || try_add_stack(granules);
    auto const longest   = detail::min<std::size_t>(stacks_[granules].places / 2U, longest_run);
    auto const allowed   = limits_.most_run_bytes.load(std::memory_order_relaxed) / bytes;
    auto const most      = has_stack ? detail::clamp<std::size_t>(allowed, 1, longest) : 1;
    std::size_t run      = detail::clamp<std::size_t>(stacks_[granules].next_run, 1, most);
    for (; run != 0; run /= 2) {
      auto const taken = from_end ? ranges_.take_back(run * bytes) : ranges_.take(run * bytes);
      if (!taken) { continue; }
      claim({taken.begin, run * bytes}, run);
      // Blocks next to memory in use go out first, so that the rest of the run can coalesce with the range.
      auto* const entries = stack_of(granules);
      for (std::size_t i = 0; i + 1 < run; ++i) { entries[i] = taken.begin + (from_end ? i : run - 1 - i) * bytes; }
      filled_[granules]          = static_cast<std::uint8_t>(run - 1);
      fenced_[granules]          = filled_[granules];  // C1: they come from ranges
      may_have_fenced_           = true;
      stacks_[granules].next_run = static_cast<std::uint8_t>(detail::min(2 * run, most));
      live_bytes_ += static_cast<std::int64_t>(bytes);
      RMM_ASSERT(run <= most && filled_[granules] <= stacks_[granules].places);
      RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
      return reinterpret_cast<void*>(taken.begin + (from_end ? run - 1 : 0) * bytes);  // NOLINT
    }
    return nullptr;
  }

  /// Counts a request for a large block of this size. A size that none of the present ones is takes an unused place; if there is none, it
  /// takes one request from each of them (Misra and Gries). So sizes that more than a fifth of the latest requests have are counted.
  void count_large_request(std::size_t bytes) noexcept
  {
    if (large_ == nullptr && !try_make_large_part()) { return; }
    large_size* unused = nullptr;
    for (auto& each : large_->sizes) {
      if (each.requests == 0) {
        unused = &each;
      } else if (each.bytes == bytes) {
        each.requests = detail::min(each.requests + 1, most_requests_counted);
        return;
      }
    }
    if (unused != nullptr) {
      *unused = {bytes, 1};
    } else {
      for (auto& each : large_->sizes) { --each.requests; }
    }
  }

  /// Whether the cache would keep a large block: it has a place, all kept blocks would have at most `most` bytes, the cache is often asked
  /// for this size, and it does not free what others allocate.
  [[nodiscard]] bool would_keep(std::size_t bytes, std::size_t most) const noexcept
  {
    if (large_ == nullptr) { return false; }
    bool const is_frequent = detail::any_of(large_->sizes.begin(), large_->sizes.end(), [&](auto const& each) {
      return each.bytes == bytes && each.requests >= requests_before_keeping;
    });
    bool const has_place   = kept_count_ < most_kept_of_sizes && bytes <= most && kept_bytes_ <= most - bytes;
    return is_frequent && has_place && live_bytes_ >= static_cast<std::int64_t>(bytes);
  }

  /// Whether the cache would gather a large block: it has a place, all kept blocks would have at most `most` bytes, its stream will
  /// hardly end soon without notice, and it does not free what others allocate.
  [[nodiscard]] bool would_gather(std::size_t bytes, std::size_t most) const noexcept
  {
    bool const has_place = kept_count_ < most_kept_blocks && bytes <= most && kept_bytes_ <= most - bytes;
    return has_place && large_ != nullptr && fences_while_young_ == 0 &&
           live_bytes_ >= static_cast<std::int64_t>(bytes);
  }

  /// Keeps a large block without an event: give_kept() will move several behind one. Requires would_gather().
  void gather(void* ptr, std::size_t bytes) noexcept
  {
    RMM_ASSERT(ptr != nullptr && bytes != 0 && bytes % heap_granule == 0 && kept_count_ < most_kept_blocks);
    add_kept(ptr, bytes);
    kept_have_event_ = false;
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
  }

  /// Keeps a large block that the owner frees, in a call that the program makes on the stream, which does not capture. Returns false if the
  /// event that the block needs cannot be recorded. Requires would_keep().
  [[nodiscard]] bool try_keep(void* ptr, std::size_t bytes) noexcept
  {
    RMM_ASSERT(ptr != nullptr && bytes != 0 && bytes % heap_granule == 0 && kept_count_ < most_kept_blocks);
    if (!is_lasting_ && !event_.try_record_running(name_.handle)) { return false; }
    if (!is_lasting_ && has_unfenced()) { note_fenced(); }
    add_kept(ptr, bytes);
    kept_have_event_ = !is_lasting_;
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
    return true;
  }

  /// Takes the kept block of this size that was freed last. Returns null if there is none, or if so many calls took one since the last search that
  /// it is time for another, which finds out whether free memory is still plenty.
  [[nodiscard]] void* try_take_kept(std::size_t bytes) noexcept
  {
    if (kept_hits_ == most_kept_hits) { return nullptr; }
    for (auto at = kept_count_; at-- > 0;) {
      auto* const kept = large_->kept.data();
      if (kept[at].bytes != bytes) { continue; }
      auto const begin = kept[at].begin;
      detail::copy(kept + at + 1, kept + kept_count_, kept + at);
      --kept_count_;
      kept_bytes_ -= bytes;
      ++kept_hits_;
      live_bytes_ += static_cast<std::int64_t>(bytes);
      RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
      return reinterpret_cast<void*>(begin);  // NOLINT: addresses are integers here
    }
    return nullptr;
  }

  /// Notes the live bytes, and returns how many more they are than those noted before.
  [[nodiscard]] std::int64_t note_live() noexcept { return live_bytes_ - std::exchange(noted_live_, live_bytes_); }
  [[nodiscard]] std::int64_t noted_live() const noexcept { return noted_live_; }

  /// Returns how often try_take_kept() took a block since the last call.
  [[nodiscard]] std::size_t take_kept_hits() noexcept { return std::exchange(kept_hits_, std::uint8_t{0}); }

  /// Counts a refill while there is no other cache. Returns the number so far, up to most_refills_counted. Called with the heap's lock.
  [[nodiscard]] std::size_t count_refill() noexcept
  {
    refills_alone_ = static_cast<std::uint8_t>(detail::min(refills_alone_ + 1U, most_refills_counted));
    return refills_alone_;
  }

  /// Calls take(range) for each kept block, which has a claim of the reserve. The cache keeps none of them any more.
  template <class Take>
  void give_kept(Take&& take) noexcept
  {
    for (std::size_t at = 0; at != kept_count_; ++at) { take(large_->kept[at]); }
    kept_count_ = 0;
    kept_bytes_ = 0;
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
  }

  [[nodiscard]] std::size_t kept_count() const noexcept { return kept_count_; }
  [[nodiscard]] std::size_t kept_bytes() const noexcept { return kept_bytes_; }
  [[nodiscard]] bool keeps_fenced() const noexcept { return kept_have_event_ && kept_count_ != 0; }
  [[nodiscard]] bool keeps_unfenced() const noexcept { return !kept_have_event_ && kept_count_ != 0; }

  /// Returns the number of kept blocks without an event, and their bytes.
  [[nodiscard]] std::pair<std::size_t, std::size_t> unfenced_kept() const noexcept
  {
    return keeps_unfenced() ? std::pair{kept_count(), kept_bytes_} : std::pair<std::size_t, std::size_t>{};
  }

  /// Moves fenced kept blocks to the ranges, as far as host memory allows. Returns whether there were any, so that another search of the
  /// ranges may succeed.
  bool coalesce_kept() noexcept
  {
    if (!keeps_fenced()) { return false; }
    auto const& kept = large_->kept;
    for (; kept_count_ != 0 && try_put_back(kept[kept_count_ - 1]); --kept_count_) {
      kept_bytes_ -= kept[kept_count_ - 1].bytes;
    }
    RMM_ASSERT((kept_count_ == 0) == (kept_bytes_ == 0));
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
    return true;
  }

  /// Records the event, which fences all frees. Call it only in calls that the program makes with `stream`, a handle of the cache's
  /// stream. Returns false, and changes nothing, if the event cannot be recorded.
  [[nodiscard]] bool fence(cudaStream_t stream) noexcept
  {
    if (!event_.try_record(stream)) { return false; }
    note_fenced();
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
    return true;
  }

  /// Records next_event() if it will probably be the next fence of the stream's store. The owner calls it without the heap's lock, under
  /// the conditions of fence(). Returns whether it did.
  [[nodiscard]] bool try_record_next() noexcept
  {
    if (!records_next_) { return false; }
    try {
      if (!next_event_) { next_event_ = owned_event{name_.device}; }
    } catch (std::exception const&) {
      return false;
    }
    return next_event_.try_record(name_.handle);
  }

  /// The event of the next fence of the stream's store; not the cache's own event. Only the owner uses it.
  [[nodiscard]] owned_event& next_event() noexcept { return next_event_; }

  /// Counts an event of the stream: one that has many is no longer young.
  void count_fence() noexcept
  {
    if (fences_while_young_ != 0 && --fences_while_young_ == 0) { most_unfenced_ = &limits_.most_unfenced_bytes; }
  }
  void set_records_next(bool on) noexcept { records_next_ = on; }

  /// Makes all frees fenced without an event. Requires that no work uses the freed memory any more.
  void all_fenced() noexcept
  {
    note_fenced();
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
  }

  /// Moves all fenced recent blocks to the ranges, as far as host memory allows. Returns whether there were any, so that another search of
  /// the ranges may succeed.
  bool coalesce_fenced() noexcept
  {
    if (!is_coalescing()) { return false; }
    coalesce(coalescing_count_);
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
    return true;
  }

  /// Moves fenced blocks to the ranges: those of one stack of blocks of at least `bytes` bytes; if all such stacks have none, all coalescing
  /// blocks, whatever their size. Returns whether there were any, so that another search of the ranges may succeed. O(sizes + blocks moved).
  bool coalesce_some_of(std::size_t bytes) noexcept
  {
    for (auto granules = bytes / heap_granule; granules <= small_sizes; ++granules) {
      if (fenced_[granules] != 0) { return shorten_stack(granules, fenced_[granules]); }
    }
    return coalesce_fenced();
  }

  /// Moves the `most` oldest fenced entries of a stack to the ranges. Returns whether the stack has a free place now.
  bool shorten_stack(std::size_t granules, std::size_t most) noexcept
  {
    RMM_ASSERT(granules != 0 && granules <= small_sizes);
    auto* const entries = stack_of(granules);
    auto const count    = detail::min<std::size_t>(most, fenced_[granules]);
    std::size_t moved   = 0;
    while (moved != count && try_put_back({entries[moved], granules * heap_granule})) { ++moved; }
    if (moved == 0) { return filled_[granules] < stacks_[granules].places; }
    std::memmove(entries, entries + moved, (filled_[granules] - moved) * sizeof *entries);
    filled_[granules]          = static_cast<std::uint8_t>(filled_[granules] - moved);
    fenced_[granules]          = static_cast<std::uint8_t>(fenced_[granules] - moved);
    stacks_[granules].next_run = static_cast<std::uint8_t>(stacks_[granules].next_run / 2);
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
    return true;
  }

  /// Moves all fenced blocks to the ranges, as far as host memory allows.
  void empty_stacks() noexcept
  {
    static_cast<void>(coalesce_fenced());
    static_cast<void>(coalesce_kept());
    for_each_filled([&](std::size_t granules) {
      if (fenced_[granules] != 0) { static_cast<void>(shorten_stack(granules, fenced_[granules])); }
    });
  }

  /// Returns the number of claims that are held in advance.
  [[nodiscard]] std::size_t spare_claims() const noexcept { return spare_claims_; }

  /// Takes claims for blocks that are cut. Returns false if host memory runs out.
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_claim(std::size_t blocks = 1) noexcept
  {
    if (spare_claims_ < blocks && !try_get_claims(blocks)) { return false; }
    RMM_ASSERT(spare_claims_ >= blocks);
    spare_claims_ -= blocks;
    return true;
  }

  /// Returns the claim of a block that is part of a free range again.
  RMM_ALWAYS_INLINE void return_claim() noexcept
  {
    if (++spare_claims_ > most_spare_claims) { return_some_claims(); }
  }

  /// Returns all claims that are held in advance to the reserve.
  void return_spare_claims() noexcept
  {
    if (spare_claims_ != 0) { limits_.reserve.release(std::exchange(spare_claims_, 0)); }
  }

  /// Gets room in `ranges` for `more` ranges. Returns false if host memory runs out.
  [[nodiscard]] bool try_make_room(std::size_t more) noexcept { return ranges_.try_reserve(ranges_.count() + more); }

  /// Adds a range that is idle, or that this stream may use after the cache's event. Requires try_make_room(1).
  void add_range(address_range range) noexcept
  {
    ranges_.insert(range, 0, seams());
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
  }

  /// Counts live bytes of a block that this cache hands out but did not cut, or takes back but does not keep.
  void add_live(std::int64_t bytes) noexcept { live_bytes_ += bytes; }

  /// Returns what a section with the heap's lock uses for a large block, if another thread runs it. For the owner, without the lock.
  [[nodiscard]] detail::spinning_mutex::used_lines lines_of_sections() const noexcept
  {
    constexpr std::size_t middle = most_kept_blocks / 2;
    return {&live_bytes_, &noted_live_, &spare_claims_, large_ != nullptr ? &large_->kept[middle] : nullptr};
  }

  [[nodiscard]] bool has_fenced(std::size_t granules) const noexcept { return fenced_[granules] != 0; }
  /// Whether any fenced block is not in the ranges.
  [[nodiscard]] bool has_fenced_blocks() const noexcept
  {
    return is_coalescing() || keeps_fenced() ||
           detail::any_of(fenced_.begin(), fenced_.end(), [](std::uint8_t fenced) { return fenced != 0; });
  }
  [[nodiscard]] bool has_unfenced() const noexcept { return unfenced_count() != 0; }
  [[nodiscard]] std::size_t unfenced_count() const noexcept
  {
    return static_cast<std::size_t>(std::int64_t{frees_to_fence_} - frees_left_);
  }
  [[nodiscard]] std::size_t unfenced_bytes() const noexcept { return unfenced_bytes_; }

  [[nodiscard]] range_set& ranges() noexcept { return ranges_; }
  [[nodiscard]] range_set const& ranges() const noexcept { return ranges_; }

  [[nodiscard]] owned_event const& event() const noexcept { return event_; }
  [[nodiscard]] owned_event take_event() noexcept { return std::move(event_); }
  void give_event_back(owned_event event) noexcept { event_ = std::move(event); }

  // Notes of the heap: the place in its list of caches, and marks of a search.
  [[nodiscard]] std::size_t place() const noexcept { return place_; }
  void set_place(std::size_t place) noexcept { place_ = static_cast<std::uint32_t>(place); }
  void note_wait() noexcept { wait_noted_ = true; }
  void set_flushing(bool on) noexcept { is_flushing_ = on; }
  [[nodiscard]] bool is_flushing() const noexcept { return is_flushing_; }
  [[nodiscard]] bool take_noted_wait() noexcept { return std::exchange(wait_noted_, false); }
  [[nodiscard]] std::int64_t live_bytes() const noexcept { return live_bytes_; }

  /// Returns the number of free pieces, and their bytes.
  [[nodiscard]] std::pair<std::size_t, std::size_t> free_pieces() const noexcept
  {
    auto count = ranges_.count() + coalescing_count_ + recent_count_ + kept_count_;
    auto bytes = ranges_.total_bytes() + kept_bytes_;
    for_each_filled([&](std::size_t granules) {
      count += filled_[granules];
      bytes += filled_[granules] * granules * heap_granule;
    });
    for (std::size_t i = 0; i < coalescing_count_; ++i) { bytes += coalescing_[i].bytes; }
    for (std::size_t i = 0; i < recent_count_; ++i) { bytes += recent_[i].bytes; }
    return {count, bytes};
  }

  /// Returns the bytes of the largest free piece.
  [[nodiscard]] std::size_t largest_piece() const noexcept
  {
    auto largest = ranges_.largest();
    for_each_filled([&](std::size_t granules) { largest = detail::max(largest, granules * heap_granule); });
    for (std::size_t i = 0; i < coalescing_count_; ++i) { largest = detail::max(largest, coalescing_[i].bytes); }
    for (std::size_t i = 0; i < recent_count_; ++i) { largest = detail::max(largest, recent_[i].bytes); }
    for (std::size_t i = 0; i < kept_count_; ++i) { largest = detail::max(largest, large_->kept[i].bytes); }
    return largest;
  }

  /// Calls visit(range, fenced) for each free piece.
  template <class Visit>
  void for_each_free(Visit&& visit) const
  {
    ranges_.for_each([&](address_range range, std::uint64_t) { visit(range, true); });
    for_each_block(visit);
  }

  /// Calls visit(range, fenced) for each free block that does not lie in the ranges. O(sizes + blocks).
  template <class Visit>
  void for_each_block(Visit&& visit) const
  {
    for (std::size_t i = 0; i < coalescing_count_; ++i) { visit(coalescing_[i], true); }
    for (std::size_t i = 0; i < recent_count_; ++i) { visit(recent_[i], false); }
    for (std::size_t i = 0; i < kept_count_; ++i) { visit(large_->kept[i], kept_have_event_); }
    for_each_filled([&](std::size_t granules) {
      for (std::size_t i = 0; i < filled_[granules]; ++i) { visit(entry(granules, i), i < fenced_[granules]); }
    });
  }

  /// Whether C2 to C7 hold, as far as the cache can tell, and those of the ranges; O(free * log free). Defined in
  /// stream_cache_validation.hpp.
  [[nodiscard]] bool check_invariants() const noexcept;

 private:
  static constexpr std::size_t cache_line          = 64;
  static constexpr std::size_t recent_looks        = 4;
  static constexpr std::size_t coalesced_at_a_time = 24;  // enough that all have coalesced long before the next fence
  static constexpr std::size_t moves_at_once       = 64;
  static constexpr std::size_t sizes_at_once       = 8;
  static constexpr std::size_t longest_run         = 16;
  static constexpr std::size_t claims_at_a_time    = 32;
  static constexpr std::size_t most_spare_claims   = 96;
  static constexpr std::size_t first_recent        = 8;
  static constexpr std::size_t requests_before_keeping = 16;
  static constexpr std::uint8_t most_kept_hits         = 64;  // between searches
  static constexpr std::uint8_t fences_of_young        = 64;
  static constexpr std::size_t most_requests_counted   = 64;
  static constexpr std::size_t sizes_counted           = 4;

  /// The place of the address that the memory of a cache has, just below the cache.
  [[nodiscard]] static std::uintptr_t* memory_of(void* cache) noexcept
  {
    return static_cast<std::uintptr_t*>(cache) - 1;
  }

  [[nodiscard]] RMM_OUT_OF_LINE bool ask_identity() noexcept
  {
    auto const ends = ends_ != nullptr ? ends_->load(std::memory_order_acquire) : 0;
    if (has_ended() || identity_of_running_stream(name_.handle) != name_.identity) { return false; }
    trusted_ends_ = ends;
    return true;
  }

  [[nodiscard]] bool has_latest(std::size_t bytes) const noexcept
  {
    return recent_count_ != 0 && recent_[recent_count_ - 1].bytes == bytes;
  }

  [[nodiscard]] seam_list const* seams() const noexcept { return limits_.seams(); }
  [[nodiscard]] inline std::size_t check_steps() const noexcept;

  /// Takes claims in advance, so that at least `blocks` are held.
  [[nodiscard]] RMM_COLD bool try_get_claims(std::size_t blocks) noexcept
  {
    for (auto const more : {blocks - spare_claims_ + claims_at_a_time, blocks - spare_claims_}) {
      if (!limits_.reserve.try_claim(more)) { continue; }
      spare_claims_ += more;
      return true;
    }
    return false;
  }

  RMM_COLD void return_some_claims() noexcept
  {
    RMM_ASSERT(spare_claims_ > most_spare_claims);
    auto const claims = spare_claims_ - (most_spare_claims + 1 - claims_at_a_time);
    spare_claims_ -= claims;
    limits_.reserve.release(claims);
  }

  [[nodiscard]] std::uintptr_t* stack_of(std::size_t granules) const noexcept
  {
    return entries_.get() + stacks_[granules].first;
  }

  [[nodiscard]] address_range entry(std::size_t granules, std::size_t at) const noexcept
  {
    return {stack_of(granules)[at], granules * heap_granule};
  }

  void note_unfenced(std::size_t bytes) noexcept
  {
    --frees_left_;
    unfenced_bytes_ += bytes;
  }

  /// Coalesces some blocks, and returns whether there is a place for one more recent block.
  [[nodiscard]] RMM_OUT_OF_LINE bool prepare_recent() noexcept
  {
    if (is_coalescing()) { coalesce(coalesced_at_a_time); }
    return recent_count_ != recent_capacity_ || try_grow_recent();
  }

  /// Gets places for more recent blocks, and for as many coalescing ones.
  [[nodiscard]] RMM_COLD bool try_grow_recent() noexcept
  {
    if (recent_capacity_ == most_unfenced_frees) { return false; }
    auto const grown = detail::max(2 * recent_capacity_, first_recent);
    detail::owned_ptr<address_range[]> places{new (std::nothrow) address_range[2 * grown]};
    if (places == nullptr) { return false; }
    detail::copy(recent_, recent_ + recent_count_, places.get());
    detail::copy(coalescing_, coalescing_ + coalescing_count_, places.get() + grown);
    recent_          = places.get();
    coalescing_      = places.get() + grown;
    recent_capacity_ = grown;
    recent_places_   = std::move(places);
    RMM_ASSERT(recent_count_ < recent_capacity_ && coalescing_count_ <= recent_capacity_);
    return true;
  }

  void note_fenced() noexcept
  {
    static_cast<void>(coalesce_fenced());  // hardly ever any are left
    bool const is_scarce = ranges_.total_bytes() < limits_.scarce_bytes.load(std::memory_order_relaxed);
    if (is_scarce && may_have_fenced_) { move_unused(); }
    if (unfenced_count() != recent_count_) {  // else all entries of stacks are fenced: C2
      fenced_          = filled_;
      may_have_fenced_ = true;
    }
    frees_to_fence_  = detail::min(2 * frees_to_fence_, static_cast<std::int32_t>(most_unfenced_frees));
    frees_left_      = frees_to_fence_;
    unfenced_bytes_  = 0;
    kept_have_event_ = !is_lasting_;  // C7
    count_fence();
    if (!is_coalescing()) {
      std::swap(recent_, coalescing_);
      coalescing_count_ = std::exchange(recent_count_, 0);
      if (live_bytes_ < 0 || is_scarce) { coalesce(live_bytes_ < 0 ? coalescing_count_ : coalesced_at_a_time); }
    } else {  // no host memory: what is recent stays that
      for (std::size_t at = 0; at != recent_count_; ++at) { note_unfenced(recent_[at].bytes); }
    }
  }

  using counts_of_sizes = std::array<std::uint8_t, small_sizes + 1>;

  /// Returns the counts of sizes_at_once sizes, beginning with `granules`, in one word.
  [[nodiscard]] static std::uint64_t counts_from(counts_of_sizes const& counts, std::size_t granules) noexcept
  {
    std::uint64_t word{};
    static_assert(sizeof word == sizes_at_once && sizeof counts.front() == 1 && small_sizes % sizes_at_once == 0);
    RMM_ASSERT(granules != 0 && granules + sizes_at_once <= counts.size());
    std::memcpy(&word, &counts[granules], sizeof word);
    return word;
  }

  /// Calls visit(granules) for each size whose stack is not empty.
  template <class Visit>
  void for_each_filled(Visit&& visit) const
  {
    for (std::size_t first = 1; first <= small_sizes; first += sizes_at_once) {
      if (counts_from(filled_, first) == 0) { continue; }
      for (auto granules = first; granules != first + sizes_at_once; ++granules) {
        if (filled_[granules] != 0) { visit(granules); }
      }
    }
  }

  /// Moves blocks that lay in their stacks since the last fence to the ranges, because unused blocks keep their neighbours apart. Moves a
  /// few blocks at a time, of the sizes in turn, so that no call is much slower.
  void move_unused() noexcept
  {
    std::uint64_t any{};
    for (std::size_t granules = 1; granules <= small_sizes; granules += sizes_at_once) {
      any |= counts_from(fenced_, granules);
    }
    may_have_fenced_ = any != 0;
    if (may_have_fenced_) { move_some_unused(); }
  }

  /// Begins with the sizes whose turn it is.
  void move_some_unused() noexcept
  {
    std::size_t most = moves_at_once;
    for (std::size_t seen = 0; seen != small_sizes; seen += sizes_at_once) {
      for (auto granules = next_unused_;
           counts_from(fenced_, next_unused_) != 0 && granules != next_unused_ + sizes_at_once;
           ++granules) {
        auto const unused = detail::min<std::size_t>(fenced_[granules], most);
        if (unused == 0) { continue; }
        static_cast<void>(shorten_stack(granules, unused));
        most -= unused;
      }
      next_unused_ = static_cast<std::uint32_t>((next_unused_ + sizes_at_once) % small_sizes);
      if (most == 0) { return; }
    }
  }

  void add_kept(void* ptr, std::size_t bytes) noexcept
  {
    large_->kept[kept_count_++] = {reinterpret_cast<std::uintptr_t>(ptr), bytes};
    kept_bytes_ += bytes;
    live_bytes_ -= static_cast<std::int64_t>(bytes);
  }

  [[nodiscard]] RMM_ALWAYS_INLINE void* take_recent(std::size_t at) noexcept
  {
    RMM_ASSERT(at < recent_count_ && unfenced_bytes_ >= recent_[at].bytes);
    auto const block = recent_[at];
    detail::copy(recent_ + at + 1, recent_ + recent_count_, recent_ + at);
    --recent_count_;
    ++frees_left_;
    unfenced_bytes_ -= block.bytes;
    live_bytes_ += static_cast<std::int64_t>(block.bytes);
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
    return reinterpret_cast<void*>(block.begin);  // NOLINT
  }

  /// Makes a block of memory that was taken from the ranges, if any was.
  RMM_ALWAYS_INLINE void* hand_out(taken_range taken, std::size_t bytes)
  {
    if (!taken) { return nullptr; }
    claim({taken.begin, bytes}, 1);
    live_bytes_ += static_cast<std::int64_t>(bytes);
    RMM_ASSERT_EXPENSIVE(!is_check_due<stream_cache>(check_steps()) || check_invariants());
    return reinterpret_cast<void*>(taken.begin);  // NOLINT
  }

  /// Takes claims for `blocks` blocks that were cut from `ranges` at `taken` (C3). If it throws std::bad_alloc, `taken` is in the ranges
  /// again.
  RMM_ALWAYS_INLINE void claim(address_range taken, std::size_t blocks)
  {
    if (!try_claim(blocks)) { put_back_and_throw(taken); }
  }

  [[noreturn]] RMM_COLD void put_back_and_throw(address_range taken)
  {
    ranges_.insert(taken, 0, seams());  // coalesces with the rest of its range, or takes its place: so there is room
    throw std::bad_alloc{};
  }

  [[nodiscard]] bool is_coalescing() const noexcept { return coalescing_count_ != 0; }

  /// Coalesces `most` of the coalescing blocks, the latest first, as far as host memory allows. All calls in it are inlined, so that
  /// registers are saved once and not with each insertion.
  RMM_FLATTEN void coalesce(std::size_t most) noexcept
  {
    auto count = detail::min(most, coalescing_count_);
    if (!ranges_.try_reserve(ranges_.count() + count)) {
      count = detail::min(count, ranges_.capacity() - ranges_.count());
    }
    RMM_ASSERT(count <= coalescing_count_ && ranges_.count() + count <= ranges_.capacity());
    auto const* const seams = this->seams();
    for (auto const left = coalescing_count_ - count; coalescing_count_ != left; --coalescing_count_) {
      ranges_.insert(coalescing_[coalescing_count_ - 1], 0, seams);
    }
    spare_claims_ += count;
    if (spare_claims_ > most_spare_claims) { return_some_claims(); }
  }

  [[nodiscard]] bool try_put_back(address_range block) noexcept
  {
    if (ranges_.count() == ranges_.capacity() && !ranges_.try_reserve(ranges_.count() + 1)) { return false; }
    ranges_.insert(block, 0, seams());
    return_claim();
    return true;
  }

  /// The places of a small size in entries_.
  struct small_stack {
    std::uint16_t first{};
    std::uint8_t places{};    // 0: the size has none yet
    std::uint8_t next_run{};  // the number of blocks to cut next time
  };

  struct large_size {
    std::size_t bytes{};
    std::size_t requests{};
  };

  /// What a cache has for large blocks.
  struct large_part {
    std::array<address_range, most_kept_blocks> kept{};
    std::array<large_size, sizes_counted> sizes{};
  };

  [[nodiscard]] RMM_COLD bool try_make_large_part() noexcept
  {
    large_ = detail::owned_ptr<large_part>{new (std::nothrow) large_part};
    return large_ != nullptr;
  }

  // Members that each hit needs, together in few cache lines.
  biased_lock lock_;
  std::atomic<bool> has_ended_{false};
  bool is_lasting_;
  std::int32_t frees_left_;                 // until the next event; negative if the event could not be recorded
  std::atomic<std::uint64_t> const* ends_;  // null: the library is not told when the stream ends
  std::uint64_t trusted_ends_{};
  std::atomic<std::size_t> const* most_unfenced_;  // of limits_
  std::size_t unfenced_bytes_{};
  std::int64_t live_bytes_{};  // allocated here minus freed here: negative in a cache that frees blocks of others
  detail::owned_ptr<std::uintptr_t[]> entries_;
  counts_of_sizes filled_{};
  counts_of_sizes fenced_{};
  std::array<small_stack, small_sizes + 1> stacks_{};

  heap_limits& limits_;
  std::int32_t frees_to_fence_;   // the next event is due after so many
  std::uint32_t next_unused_{1};  // the first of the sizes whose turn it is in move_some_unused()
  stream_name name_;
  std::uint32_t entries_used_{};
  std::uint32_t entries_capacity_{};

  detail::owned_ptr<address_range[]> recent_places_;  // one half: recent_, the other one: coalescing_
  std::size_t recent_capacity_{};
  std::size_t recent_count_{};
  std::size_t coalescing_count_{};
  address_range* recent_{};
  address_range* coalescing_{};
  detail::owned_ptr<large_part> large_;  // none before the first large request
  std::size_t kept_bytes_{};
  std::int64_t noted_live_{};
  range_set ranges_;
  std::size_t spare_claims_{};
  std::uint32_t place_{};
  std::uint32_t kept_count_{};
  bool may_have_fenced_{false};  // false only if all of fenced_ is 0
  bool kept_have_event_{false};
  bool wait_noted_{false};
  bool is_flushing_{false};  // a flush of all ranges goes on in the next calls
  bool records_next_{false};
  std::uint8_t fences_while_young_;  // left, while the stream may end without notice and soon
  std::uint8_t kept_hits_{};
  std::uint8_t refills_alone_{};
  owned_event event_;
  owned_event next_event_{nullptr};  // none until it is needed
};

/// A scope in which the owner of a cache has entered it; false if another thread keeps the owner out.
class cache_entered {
 public:
  RMM_ALWAYS_INLINE explicit cache_entered(stream_cache& cache) noexcept
    : cache_{cache}, entered_{cache.lock().try_enter()}
  {}
  RMM_ALWAYS_INLINE ~cache_entered()
  {
    if (entered_) { cache_.lock().leave(); }
  }
  cache_entered(cache_entered const&)            = delete;
  cache_entered& operator=(cache_entered const&) = delete;
  [[nodiscard]] explicit operator bool() const noexcept { return entered_; }

 private:
  stream_cache& cache_;
  bool entered_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE

#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
#include <rmm/detail/stream/stream_cache_validation.hpp>
#endif
