// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/bits.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// The identity of a stream in a capture. CUDA gives no id of such a stream, so its handle identifies it as long as it lives. The handle
/// of a per-thread default stream does so in one thread only.
///
/// Not detected: a stream that rmm::cuda_stream did not make is destroyed during the capture, and a new stream with its handle joins the
/// capture from a point before the end of the old one.
struct captured_stream {
  std::uint64_t capture{};
  std::uint64_t handle{};
  std::uint64_t thread{};  // 0 if the handle names the same stream in all threads
  std::uint64_t ends{};    // how many streams had ended: a handle is reused only after another end

  friend bool operator==(captured_stream a, captured_stream b) noexcept
  {
    return a.capture == b.capture && a.handle == b.handle && a.thread == b.thread && a.ends == b.ends;
  }
};

/// The memory that a heap holds for the graphs of one rmm::graph_memory.
///
/// It consists of a few chunks, each an allocation of the heap, which only work of these graphs uses. A graph writes to its addresses
/// whenever it runs. So memory that is freed here is reused only by captures with the same graph_memory:
///
///   freed in a capture           by the same stream in that capture, because its nodes follow each other; after the capture, by all
///   freed outside of captures    by all captures, once its event is reached
///
/// That is safe because graphs that share a graph_memory do not run at the same time, and none reads what another has left.
///
/// Invariants:
///  G1  the bytes of the chunks are the sum of live blocks, idle_, freed_, pending_ and unnoted_bytes_; no two of these overlap, and no
///      range lies in two chunks
///  G2  memory in idle_ is used only by graphs of this memory, and by none whose capture is under way
///  G3  memory in an element of freed_ was freed by the stream and in the capture that the element names. Until that capture is over,
///      only that stream in that capture gets it
///  G4  a chunk leaves when the memory is released and all its blocks are freed, and not before
///  G5  no free needs host memory: a block that cannot be noted is not reused until its chunk leaves
///  G6  chunks are ascending, not empty and do not overlap; chunk_bytes() and kept_bytes() are sums of their parts
///  G7  once a block was freed without an event, forget_free() returns false: no event shows when all work that uses the chunks is done
///
/// Guarded by the lock of its graph_arena. A template only so that translation units that make no heap do not compile its members.
template <class Unused>
class basic_captured_memory {
 public:
  /// `number`: the number of the graph_memory.
  explicit basic_captured_memory(std::uint64_t number) noexcept : number_{number} {}

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

  /// Notes that the last handle is gone: no graph runs again, and no capture uses this memory.
  void set_released() noexcept { released_ = true; }
  [[nodiscard]] bool is_released() const noexcept { return released_; }
  /// Whether each chunk has a live block.
  [[nodiscard]] bool is_all_live() const noexcept
  {
    return detail::all_of(chunks_.begin(), chunks_.end(), [](chunk const& each) { return each.live_bytes != 0; });
  }
  [[nodiscard]] bool is_empty() const noexcept { return chunks_.empty() && kept_.empty(); }

  /// Returns the bytes of chunks and kept blocks, without live blocks.
  [[nodiscard]] std::size_t bytes() const noexcept
  {
    auto const unused = chunk_bytes_ - live_bytes_;
    RMM_ASSERT(unused <= chunk_bytes_ && live_bytes_ <= chunk_bytes_);
    return unused + kept_bytes_;
  }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }
  [[nodiscard]] std::size_t kept_bytes() const noexcept { return kept_bytes_; }

  [[nodiscard]] bool owns(std::uintptr_t address) const noexcept { return find_chunk(address) != no_chunk; }

  /// Gets host memory for one chunk more. Throws std::bad_alloc.
  void make_room_for_chunk()
  {
    seams_.reserve(chunks_.size() + 1);
    chunks_.reserve(chunks_.size() + 1);
    if (!idle_.try_reserve(idle_.count() + 1)) { throw std::bad_alloc{}; }
  }

  /// Adds a chunk that no work uses, after make_room_for_chunk().
  void add_chunk(address_range range) noexcept
  {
    RMM_ASSERT(!released_ && range.begin != 0 && range.bytes != 0);
    RMM_ASSERT(!owns(range.begin) && !owns(range.end() - 1) && chunks_.size() < chunks_.capacity());
    auto const at = static_cast<std::ptrdiff_t>(chunks_up_to(range.begin));
    chunks_.insert(chunks_.begin() + at, chunk{range, 0});
    seams_.insert(detail::lower_bound(seams_.begin(), seams_.end(), range.begin), range.begin);
    chunk_bytes_ += range.bytes;
    insert_idle(range);
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_captured_memory>(check_steps()) || check_invariants());
  }

  /// Takes `bytes` bytes that work of `who` may use at once. Returns null if no piece is large enough. `others_capture`: whether another
  /// capture may use this memory now, so that memory freed in other captures cannot be reused yet.
  [[nodiscard]] void* try_allocate(std::size_t bytes, captured_stream who, bool others_capture) noexcept
  {
    if (!others_capture) { retire_captures_but(who.capture); }
    taken_range taken{};
    if (auto* const own = find_freed(who)) { taken = own->ranges.take_good(bytes); }
    if (!taken) { taken = idle_.take_good(bytes); }
    if (!taken && collect_reached()) { taken = idle_.take_good(bytes); }
    if (!taken) { return nullptr; }
    RMM_ASSERT(find_chunk(taken.begin) != no_chunk);
    chunks_[find_chunk(taken.begin)].live_bytes += bytes;
    live_bytes_ += bytes;
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_captured_memory>(check_steps()) || check_invariants());
    return reinterpret_cast<void*>(taken.begin);  // NOLINT: addresses are integers here
  }

  /// Frees a block of this memory for a stream in a capture that was announced with it.
  void free_in_capture(address_range block, captured_stream who) noexcept
  {
    note_free(block);
    if (released_) { return; }
    auto* const own = find_or_make_freed(who);
    if (own == nullptr || !own->ranges.try_reserve(own->ranges.count() + 1)) { return; }
    auto const seams = seam_addresses();
    own->ranges.insert(block, 0, &seams);
    unnoted_bytes_ -= block.bytes;
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_captured_memory>(check_steps()) || check_invariants());
  }

  /// Frees a block outside of captures; `event` was recorded after the free. Returns false, and changes nothing, if host memory runs out.
  [[nodiscard]] bool free_after(address_range block, owned_event& event) noexcept
  {
    RMM_ASSERT(!released_);
    try {
      pending_.emplace_back(block, std::move(event));  // moves the event once there is memory for it
    } catch (std::exception const&) {
      return false;
    }
    note_free(block);
    unnoted_bytes_ -= block.bytes;
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_captured_memory>(check_steps()) || check_invariants());
    return true;
  }

  /// Frees a block that no event covers. Its chunk can be reused only after the devices were synchronised.
  void free_without_event(address_range block) noexcept
  {
    note_free(block);
    needs_wait_ = true;
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_captured_memory>(check_steps()) || check_invariants());
  }

  /// Keeps a block that was allocated before a capture and is freed in it, because the graph may use it. Returns false if host memory runs
  /// out.
  [[nodiscard]] bool try_keep(address_range block) noexcept
  {
    RMM_ASSERT(!released_ && block.bytes != 0 && !owns(block.begin));
    try {
      kept_.push_back(block);
    } catch (std::exception const&) {
      return false;
    }
    kept_bytes_ += block.bytes;
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_captured_memory>(check_steps()) || check_invariants());
    return true;
  }

  /// Calls give_back(range, true) for each chunk without live blocks, and then give_back(range, false) for each kept block. Removes those
  /// for which it returns true. Requires that the memory is released.
  template <class GiveBack>
  void leave(GiveBack&& give_back) noexcept
  {
    RMM_ASSERT(released_);
    auto const leaves = [&](chunk const& each) {
      if (each.live_bytes != 0 || !give_back(each.range, true)) { return false; }
      RMM_ASSERT(chunk_bytes_ >= each.range.bytes);
      chunk_bytes_ -= each.range.bytes;
      unnoted_bytes_ -= each.range.bytes;
      return true;
    };
    chunks_.erase(detail::remove_if(chunks_.begin(), chunks_.end(), leaves), chunks_.end());
    while (!kept_.empty() && give_back(kept_.back(), false)) {
      kept_bytes_ -= kept_.back().bytes;
      kept_.pop_back();
    }
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_captured_memory>(check_steps()) || check_invariants());
  }

  /// Forgets the freed memory of a released graph_memory, so that whole chunks can leave. If there is a stream, makes it wait for the
  /// events of that memory. Returns whether all work that uses the chunks is then ordered before later work of the stream.
  [[nodiscard]] bool forget_free(bool has_stream, cudaStream_t stream) noexcept
  {
    RMM_ASSERT(released_);
    idle_.clear();
    freed_.clear();
    bool ordered = has_stream && !needs_wait_;
    for (auto const& each : pending_) {
      ordered = ordered && (each.event.is_reached() || each.event.try_make_wait(stream));
    }
    pending_.clear();
    unnoted_bytes_ = chunk_bytes_ - live_bytes_;
    RMM_ASSERT(idle_.empty() && freed_.empty() && (!ordered || has_stream));
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_captured_memory>(check_steps()) || check_invariants());
    return ordered;
  }

  /// Returns the first address of all chunks, and the address behind the last one; zeros if there is no chunk.
  [[nodiscard]] std::pair<std::uintptr_t, std::uintptr_t> bounds() const noexcept
  {
    if (chunks_.empty()) { return {0, 0}; }
    return {chunks_.front().range.begin, chunks_.back().range.end()};
  }

  /// Calls visit(range) for each chunk.
  template <class Visit>
  void for_each_chunk(Visit&& visit) const
  {
    for (auto const& each : chunks_) { visit(each.range); }
  }

  /// Calls visit(range) for each kept block, and for the free parts of chunks that are noted (G5).
  template <class Visit>
  void for_each_unused(Visit&& visit) const
  {
    idle_.for_each([&](address_range range, std::uint64_t) { visit(range); });
    for (auto const& each : freed_) {
      each->ranges.for_each([&](address_range range, std::uint64_t) { visit(range); });
    }
    for (auto const& each : pending_) { visit(each.range); }
    for (auto const range : kept_) { visit(range); }
  }

  /// Whether G1 and G6 hold; O(ranges * (log ranges + chunks)). Defined in capture_memory_validation.hpp.
  [[nodiscard]] bool check_invariants() const noexcept;

 private:
  struct chunk {
    address_range range;
    std::size_t live_bytes;
  };
  struct freed_in_capture {
    captured_stream who;
    range_set ranges;
  };
  struct pending_range {
    pending_range(address_range freed, owned_event&& recorded) noexcept : range{freed}, event{std::move(recorded)} {}

    address_range range;
    owned_event event;
  };
  static constexpr std::size_t no_chunk = max_value<std::size_t>;

  [[nodiscard]] std::size_t check_steps() const noexcept;
  [[nodiscard]] bool has_retired_captures_but(std::uint64_t capture) const noexcept;

  /// Returns the number of chunks that begin at an address or below.
  [[nodiscard]] std::size_t chunks_up_to(std::uintptr_t address) const noexcept
  {
    auto const above =
      detail::upper_bound(chunks_.begin(), chunks_.end(), address, [](std::uintptr_t at, chunk const& each) {
        return at < each.range.begin;
      });
    return static_cast<std::size_t>(above - chunks_.begin());
  }

  /// Returns the index of the chunk of an address; no_chunk if there is none.
  [[nodiscard]] std::size_t find_chunk(std::uintptr_t address) const noexcept
  {
    auto const count = chunks_up_to(address);
    return count != 0 && address < chunks_[count - 1].range.end() ? count - 1 : no_chunk;
  }

  void note_free(address_range block) noexcept
  {
    RMM_ASSERT(block.bytes != 0 && find_chunk(block.begin) != no_chunk);
    auto& in = chunks_[find_chunk(block.begin)];
    RMM_ASSERT(in.live_bytes >= block.bytes && block.end() <= in.range.end());
    in.live_bytes -= block.bytes;
    live_bytes_ -= block.bytes;
    unnoted_bytes_ += block.bytes;
  }

  [[nodiscard]] seam_list seam_addresses() const noexcept { return {seams_.data(), seams_.size()}; }

  void insert_idle(address_range range) noexcept
  {
    auto const seams = seam_addresses();
    idle_.insert(range, 0, &seams);
  }

  [[nodiscard]] freed_in_capture* find_freed(captured_stream who) noexcept
  {
    auto const found =
      detail::find_if(freed_.begin(), freed_.end(), [&](auto const& each) { return each->who == who; });
    return found == freed_.end() ? nullptr : found->get();
  }

  [[nodiscard]] freed_in_capture* find_or_make_freed(captured_stream who) noexcept
  {
    if (auto* const found = find_freed(who)) { return found; }
    try {
      freed_.push_back(detail::make_owned<freed_in_capture>());
    } catch (std::exception const&) {
      return nullptr;
    }
    freed_.back()->who = who;
    return freed_.back().get();
  }

  /// Makes memory idle that was freed in captures that are over, which are all but `capture`.
  void retire_captures_but(std::uint64_t capture) noexcept
  {
    auto const seams   = seam_addresses();
    auto const is_over = [&](auto const& each) {
      if (each->who.capture == capture) { return false; }
      if (!idle_.try_reserve(idle_.count() + each->ranges.count())) { return false; }
      each->ranges.move_to(idle_, &seams);
      return true;
    };
    freed_.erase(detail::remove_if(freed_.begin(), freed_.end(), is_over), freed_.end());
    RMM_ASSERT_EXPENSIVE(has_retired_captures_but(capture));
  }

  /// Makes memory idle that was freed outside of captures and whose event is reached. Returns whether there was any.
  [[nodiscard]] bool collect_reached() noexcept
  {
    auto const is_idle = [&](pending_range& each) {
      if (!each.event.is_reached() || !idle_.try_reserve(idle_.count() + 1)) { return false; }
      insert_idle(each.range);
      return true;
    };
    auto const rest  = detail::remove_if(pending_.begin(), pending_.end(), is_idle);
    bool const found = rest != pending_.end();
    pending_.erase(rest, pending_.end());
    RMM_ASSERT(!found || !idle_.empty());
    return found;
  }

  std::uint64_t number_;
  bool released_{false};
  bool needs_wait_{false};  // a block was freed without an event
  std::size_t chunk_bytes_{};
  std::size_t live_bytes_{};
  std::size_t unnoted_bytes_{};  // freed, and not reused before its chunk leaves
  std::size_t kept_bytes_{};
  std::vector<chunk> chunks_;          // ascending; few
  std::vector<std::uintptr_t> seams_;  // where chunks begin
  range_set idle_;
  std::vector<detail::owned_ptr<freed_in_capture>> freed_;
  std::vector<pending_range> pending_;
  std::vector<address_range> kept_;
};

using captured_memory = basic_captured_memory<void>;
RMM_COMPILED_ONCE(basic_captured_memory<void>);

}  // namespace detail
}  // namespace RMM_NAMESPACE

#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
#include <rmm/detail/stream/capture_memory_validation.hpp>
#endif
