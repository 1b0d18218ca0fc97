// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>
#include <rmm/detail/stream/asker.hpp>
#include <rmm/detail/stream/cache_set.hpp>
#include <rmm/detail/stream/device_waits.hpp>
#include <rmm/detail/stream/free_sets.hpp>
#include <rmm/detail/stream/free_store.hpp>
#include <rmm/detail/stream/piece_list.hpp>
#include <rmm/detail/stream/shared_free_lists.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace RMM_NAMESPACE {
namespace detail {

/// The search of a heap for memory after a call that looks only into the caller's cache found none. allocate_shared() flushes that cache if
/// it holds more than its share, and takes the first memory that fits, in this order:
///
///   1. the cache's own stacks, recent frees and ranges, because the thread may have been locked out of its cache before
///   2. the idle store, from which the cache takes somewhat more than the request; the idle store again, after memory whose events are
///      found reached has moved there; then the stream's own store, with the large blocks that the cache has kept
///   3. the cache's own stacks again, emptied and coalesced with its ranges
///   4. one range of another stream's store, after a wait for its event on the device
///   5. one range of another cache, whose owner is locked out meanwhile; after a wait if the cache is for another stream
///   6. a run of neighbours from different caches and stores, coalesced, after waits for the streams that freed them
///
/// If nothing fits, and events were recorded for all free memory whose stream is alive, allocate_fenced() takes a run of neighbours. If
/// one is large enough but lacks events, the host waits for the devices of the streams that freed it.
///
/// Large requests (cache_set::is_large()) skip step 1 and begin with the stores, where the memory of all streams coalesces. If the stream's
/// own store has a range of exactly the size, they take it before step 2 asks any event, most of the time.
///
/// Invariants:
///  Q1  a block that is returned has a claim of the reserve and counts as live; if null is returned, or if the search throws, neither has
///      changed
///  Q2  the caller's stream has waited for each other stream that freed a part of the block, as far as the event was not reached
///  Q3  allocate_fenced() returns null only if no run of neighbours, wherever its pieces lie, is large enough; or if the host cannot wait
///      for the devices, or lacks memory
///  Q4  after note_no_run_of() the caches stay closed: the same request fails without a search until memory is freed or added
///
/// Guarded by the heap's lock. A template only so that translation units that make no heap do not compile its members.
template <class Unused>
class basic_memory_search {
 public:
  using all_closed  = typename basic_cache_set<Unused>::closed;
  using free_pieces = basic_piece_list<Unused>;

  explicit basic_memory_search(basic_free_sets<Unused>& free) noexcept
    : free_{free}, caches_{free.caches()}, shared_{free.shared()}
  {}

  /// The whole search; the comment of the class lists its steps. Returns null if no step finds memory. Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD void* allocate_shared(std::size_t bytes, asker const& who)
  {
    RMM_ASSERT(bytes % heap_granule == 0);
    if (knows_no_run_of(bytes)) { return nullptr; }
    caches_.reopen(who.cache);
    if (who.cache != nullptr) { caches_.flush_beyond_share(*who.cache); }
    caches_.note_scarcity(who.cache);
    auto* own                = shared_.find(who.identity);
    bool const through_cache = who.cache != nullptr && !caches_.is_large(bytes);
    if (own != nullptr && !(through_cache && may_leave_unfenced(*own))) { shared_.fence_left(*own, who.stream); }
    if (through_cache) {
      if (void* const ptr = take_through_cache(bytes, who, own)) { return ptr; }
      if (own != nullptr) { shared_.fence_left(*own, who.stream); }
    }

    if (!caches_.try_claim(who.cache)) { throw std::bad_alloc{}; }
    scope_guard cancel{[&]() noexcept { caches_.return_claim(who.cache); }};
    taken_range taken{};
    if (!through_cache) {
      taken = take_large(bytes, who, own);  // 2
      if (!taken && who.cache != nullptr) {
        if (void* const ptr = caches_.take_coalesced(*who.cache, bytes)) { return ptr; }  // 3: has claimed for itself
      }
    }
    if (!taken) { taken = shared_.take_from_other(bytes, own, who); }  // 4
    if (!taken) { taken = take_from_caches(bytes, own, who); }         // 5, 6
    if (!taken) { return nullptr; }
    cancel.dismiss();
    return hand_out(taken, bytes, who.cache);
  }

  /// Takes memory after the caller has fenced what it could. Waits for the devices only if that serves the request, and if `may` allows it.
  /// Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD void* allocate_fenced(std::size_t bytes, asker const& who, device_waits::permission may)
  {
    all_closed closed{caches_, who.cache};
    if (knows_no_run_of(bytes)) { return nullptr; }
    if (!caches_.try_claim(who.cache)) { throw std::bad_alloc{}; }
    scope_guard cancel{[&]() noexcept { caches_.return_claim(who.cache); }};
    auto taken = take_coalesced(bytes, who, closed);
    if (!taken && !caches_.has_no_run_of(bytes) && free_.try_wait_for_devices(may)) {
      caches_.begin_eager_fences();
      taken = take_coalesced(bytes, who, closed);
    }
    RMM_ASSERT_EXPENSIVE(free_.check_sum(taken ? bytes : 0));
    if (!taken) { return nullptr; }
    cancel.dismiss();
    return hand_out(taken, bytes, who.cache);
  }

  /// Takes idle memory for graph_arena. Returns an empty range if no idle piece is large enough. Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD address_range take_idle(std::size_t bytes)
  {
    if (!caches_.try_claim(nullptr)) { throw std::bad_alloc{}; }
    scope_guard cancel{[&]() noexcept { caches_.return_claim(nullptr); }};
    RMM_ASSERT(bytes != 0 && bytes % heap_granule == 0);
    auto& idle = shared_.idle().ranges();
    auto taken = idle.take_good(bytes);
    if (!taken) {
      shared_.poll(max_value<std::size_t>);
      taken = idle.take_good(bytes);
    }
    if (!taken) {
      all_closed const closed{caches_};
      collect_idle();
      taken = idle.take_good(bytes);
    }
    if (!taken) { return {}; }
    cancel.dismiss();
    static_cast<void>(hand_out(taken, bytes, nullptr));
    return {taken.begin, bytes};
  }

  /// Whether no run of neighbours has `bytes` bytes, as a search has found, and nothing has changed since.
  [[nodiscard]] bool knows_no_run_of(std::size_t bytes)
  {
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_memory_search>(shared_.idle().ranges().count()) || has_no_run());  // Q4
    return caches_.has_no_run_of(bytes);
  }

  /// Whether a run of neighbours may have `bytes` bytes, as far as sums tell. Notes the answer no.
  [[nodiscard]] bool may_have_run_of(std::size_t bytes, all_closed& closed) noexcept
  {
    if (free_.bound_of_runs() >= bytes) { return true; }
    caches_.note_no_run_of(bytes, closed);
    return false;
  }

  /// Lists free memory by address. Requires that all caches but the caller's are closed. Throws std::bad_alloc.
  [[nodiscard]] free_pieces list_pieces(wanted_runs const& wanted)
  {
    free_pieces made{free_, wanted};
    pieces_searched_ += made.count();
    return made;
  }

  /// Returns how often coalescing neighbours from different sets served a request.
  [[nodiscard]] std::uint64_t coalesced() const noexcept { return coalesced_; }

 private:
  static constexpr std::size_t most_polls   = 8;  // with one miss
  static constexpr std::size_t most_left    = 256;
  static constexpr std::size_t most_unasked = 16;  // misses in a row that ask no event
  static constexpr std::size_t many_pieces  = 4096;

  /// Whether what ended threads have left in a store can stay there without an event for now: memory is plenty, and these are few pieces.
  [[nodiscard]] bool may_leave_unfenced(free_store& store) const noexcept
  {
    return caches_.has_plenty() && store.unfenced().size() < most_left;
  }

  /// Whether S4 of the caches holds: compares with a list of everything. Throws std::bad_alloc.
  [[nodiscard]] bool has_no_run() const
  {
    auto const bytes = caches_.no_run_of();
    return bytes == range_set::no_limit || !free_pieces{free_, {0, nullptr, true, true}}.has_run(bytes);
  }

  /// Steps 1 to 3 for a block that is not large. `own`: the store of the caller's stream, which may be made. Throws std::bad_alloc.
  [[nodiscard]] void* take_through_cache(std::size_t bytes, asker const& who, free_store*& own)
  {
    auto& cache = *who.cache;
    if (void* const ptr = caches_.take(cache, bytes)) { return ptr; }  // 1: it may have been kept out before
    if (!cache.try_make_room(1)) { throw std::bad_alloc{}; }
    bool refilled = caches_.refill(cache, shared_.idle(), bytes);  // 2
    if (!refilled) {
      shared_.poll(most_polls);
      refilled = caches_.refill(cache, shared_.idle(), bytes);
    }
    if (!refilled) {
      if (caches_.give_kept(cache, who.stream, true)) { own = shared_.find(who.identity); }
      refilled = caches_.refill_from_own(cache, own, bytes);
    }
    void* const ptr = refilled ? caches_.take(cache, bytes) : nullptr;
    return ptr != nullptr ? ptr : caches_.take_coalesced(cache, bytes);  // 3
  }

  /// Steps 5 and 6: takes memory of other caches, or a run of neighbours from several caches and stores.
  [[nodiscard]] taken_range take_from_caches(std::size_t bytes, free_store* own, asker const& who)
  {
    bool const collects = caches_.is_shared() && pieces_searched_ > many_pieces;
    if (auto const some = caches_.first_of_many(); some.count != 0 && !collects) {
      all_closed closed{caches_, some, who.cache};
      if (auto const taken = caches_.take_from_other(bytes, some, who)) { return taken; }
    }
    all_closed closed{caches_, who.cache};
    if (!may_have_run_of(bytes, closed)) { return {}; }
    taken_range taken{};
    // Large blocks need neighbours that lie in different caches. Once they have coalesced, they serve the next requests too.
    if (collects) {
      collect_idle();
      taken = shared_.take_own_or_idle(bytes, own);
    }
    if (!taken) { taken = caches_.take_from_other(bytes, caches_.all(), who); }
    if (!taken) { taken = take_coalesced(bytes, who, closed); }
    RMM_ASSERT_EXPENSIVE(free_.check_sum(taken ? bytes : 0));
    return taken;
  }

  /// Step 2 for a large block. `own`: the store of the caller's stream, which may be made.
  [[nodiscard]] taken_range take_large(std::size_t bytes, asker const& who, free_store*& own) noexcept
  {
    auto const polls = unasked_ == most_unasked ? most_polls + 2 * most_unasked : most_polls;  // catches up
    if (auto const taken = take_exact_own(bytes, own)) { return taken; }
    shared_.poll(polls);
    if (caches_.most_gathered() != 0) {  // what is gathered shall share an event
      if (auto const taken = shared_.take_own_or_idle(bytes, own)) { return taken; }
    }
    if (who.cache != nullptr && caches_.give_kept(*who.cache, who.stream, true)) { own = shared_.find(who.identity); }
    return shared_.take_own_or_idle(bytes, own);
  }

  /// Takes a range of exactly `bytes` bytes from the caller's own store, which may be null. The caller needs no event for it. Takes none if
  /// the last calls did, so that events are asked now and then.
  [[nodiscard]] taken_range take_exact_own(std::size_t bytes, free_store* own) noexcept
  {
    bool const has_one = own != nullptr && unasked_ != most_unasked && own->ranges().good_fit(bytes) == bytes;
    unasked_           = has_one ? unasked_ + 1 : 0;
    return has_one ? own->ranges().take_good(bytes) : taken_range{};
  }

  /// Step 6: coalesces neighbours from different caches and stores. Requires that all caches but the caller's are closed.
  [[nodiscard]] taken_range take_coalesced(std::size_t bytes, asker const& who, all_closed& closed)
  {
    shared_.poll(max_value<std::size_t>);  // memory whose work is done needs no wait
    auto pieces      = list_pieces({bytes, nullptr, true});
    auto const taken = pieces.take(bytes, who);
    coalesced_ += taken ? 1U : 0U;
    if (!taken && !pieces.has_run(bytes)) { caches_.note_no_run_of(bytes, closed); }
    return taken;
  }

  /// Moves idle memory from caches and stores to the idle store. Requires that all caches but the caller's are closed.
  void collect_idle() noexcept
  {
    capture_exemption const exemption;
    shared_.poll(max_value<std::size_t>);
    if (caches_.collect_idle()) { pieces_searched_ = 0; }
  }

  /// Counts a block, which has its claim, as live (Q1), and returns its address.
  [[nodiscard]] void* hand_out(taken_range taken, std::size_t bytes, stream_cache* cache) noexcept
  {
    RMM_ASSERT(taken && free_.blocks().holds({taken.begin, bytes}));
    caches_.note_live(cache, static_cast<std::int64_t>(bytes));
    return to_pointer(taken.begin);
  }

  basic_free_sets<Unused>& free_;
  basic_cache_set<Unused>& caches_;
  shared_free_lists& shared_;
  std::size_t pieces_searched_{};  // in other caches and stores, since the last collect_idle()
  std::size_t unasked_{};          // misses in a row that asked no event
  std::uint64_t coalesced_{};
};

RMM_COMPILED_ONCE(basic_memory_search<void>);

}  // namespace detail
}  // namespace RMM_NAMESPACE
