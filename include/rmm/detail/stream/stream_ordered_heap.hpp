// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/free_ranges.hpp>
#include <rmm/detail/heap/node_reserve.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// Hands out parts of upstream blocks, so that memory freed on one stream reaches another only in the order of their work.
///
/// What is free lies in lanes: one for each stream that freed something, and one for memory that no work can use any more.
/// A stream takes from its own lane at once. It takes from another's after it was made to wait, on the device, for the event
/// that the other's last free recorded. The handle of a stream is used only in calls that the program makes on that very
/// stream: it may be destroyed as soon as its last call is made.
///
/// Invariants:
///  I1  sum(free) + sum(allocated) == sum(blocks)
///  I2  a free range is in exactly one lane
///  I3  whatever may still use the ranges of a lane is before the lane's event, or is work of the lane's own stream
///  I4  the node reserve has two nodes for each allocation, so that deallocate() asks for no host memory
///
/// Thread-safe. Events are recorded and waited for under the lock: what a lane holds and what its event marks have to
/// change together.
class stream_ordered_heap {
 public:
  stream_ordered_heap()                                      = default;
  stream_ordered_heap(stream_ordered_heap const&)            = delete;
  stream_ordered_heap& operator=(stream_ordered_heap const&) = delete;

  /// Takes `bytes` bytes, a multiple of CUDA_ALLOCATION_ALIGNMENT, that `stream` may use at once. Null if no free range has
  /// so many, also after those of all lanes are joined.
  [[nodiscard]] void* try_allocate(std::size_t bytes, cuda_stream_view stream)
  {
    auto const identity = stream_identity(stream.value());
    std::lock_guard<std::mutex> const lock{mutex_};
    reserve_.ensure(nodes_per_range * (allocations_ + 1));
    auto const begin = take(bytes, identity, stream.value());
    if (!begin) { return nullptr; }
    ++allocations_;
    allocated_bytes_ += bytes;
    return reinterpret_cast<void*>(*begin);  // NOLINT: the heap works on addresses
  }

  /// Gives back what try_allocate() returned for the same `bytes`.
  void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    auto const identity = stream_identity(stream.value());
    std::lock_guard<std::mutex> const lock{mutex_};
    RMM_ASSERT(allocations_ > 0 && allocated_bytes_ >= bytes);
    add_free({reinterpret_cast<std::uintptr_t>(ptr), bytes}, identity, stream.value());
    --allocations_;
    allocated_bytes_ -= bytes;
  }

  /// Adds a block that upstream gave for use on `stream`, and takes its first `bytes` bytes. Throws std::bad_alloc, and
  /// has not taken the block then.
  [[nodiscard]] void* add_block_and_allocate(void* block,
                                             std::size_t block_bytes,
                                             std::size_t bytes,
                                             cuda_stream_view stream)
  {
    auto const identity = stream_identity(stream.value());
    auto const begin    = reinterpret_cast<std::uintptr_t>(block);
    std::lock_guard<std::mutex> const lock{mutex_};
    reserve_.ensure(nodes_per_range * (allocations_ + 2));
    borders_.insert(begin);
    try {
      blocks_.emplace(begin, block_bytes);
    } catch (...) {
      borders_.erase(begin);
      throw;
    }
    block_bytes_ += block_bytes;
    if (bytes != block_bytes) { add_free({begin + bytes, block_bytes - bytes}, identity, stream.value()); }
    if (bytes == 0) { return nullptr; }
    ++allocations_;
    allocated_bytes_ += bytes;
    return block;
  }

  /// Makes free for all what no work uses any more, as far as CUDA says so without waiting. Not for hot paths.
  void settle() noexcept
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    for (auto& [identity, each] : lanes_) {
      if (each.event.is_reached()) { ready_.take_all(each.ranges, borders_); }
    }
  }

  /// Waits for what the events of the lanes mark, calls release(pointer, bytes) for each block and forgets it.
  template <class Release>
  void release_blocks(Release&& release) noexcept
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    for (auto const& [identity, each] : lanes_) { each.event.synchronize_no_throw(); }
    lanes_.clear();
    ready_.clear();
    borders_.clear();
    for (auto const& [begin, bytes] : blocks_) {
      release(reinterpret_cast<void*>(begin), bytes);  // NOLINT: the heap works on addresses
    }
    blocks_.clear();
    block_bytes_ = 0;
  }

  /// Bytes of all blocks.
  [[nodiscard]] std::size_t block_bytes() const noexcept
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    return block_bytes_;
  }

  /// Live figures of a heap.
  struct figures {
    std::size_t allocated_bytes;
    std::size_t free_bytes;
    std::size_t largest_free;  ///< of one lane
    std::size_t blocks;
  };

  [[nodiscard]] figures current_figures() const
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    std::size_t largest = ready_.largest();
    for (auto const& [identity, each] : lanes_) { largest = std::max(largest, each.ranges.largest()); }
    return {allocated_bytes_, block_bytes_ - allocated_bytes_, largest, blocks_.size()};
  }

  /// Whether I1, I2, I4 and those of the ranges hold; O(ranges).
  [[nodiscard]] bool check_invariants() const
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    std::map<std::uintptr_t, std::size_t> all;
    std::size_t free_bytes{};
    bool good        = reserve_.spare() >= nodes_per_range * allocations_;
    auto const visit = [&](address_range range) {
      free_bytes += range.bytes;
      good = good && all.emplace(range.begin, range.bytes).second;
    };
    ready_.for_each(visit);
    good = good && ready_.check_invariants(borders_);
    for (auto const& [identity, each] : lanes_) {
      each.ranges.for_each(visit);
      good = good && each.ranges.check_invariants(borders_);
    }
    std::uintptr_t previous_end{};
    for (auto const& [begin, bytes] : all) {
      good         = good && begin >= previous_end;
      previous_end = begin + bytes;
    }
    return good && free_bytes + allocated_bytes_ == block_bytes_;
  }

 private:
  static constexpr std::size_t nodes_per_range = 2;   // one by address, one by size
  static constexpr std::size_t many_lanes      = 64;  // above, those that hold nothing are thrown away

  struct lane {
    explicit lane(node_reserve& reserve) : ranges{reserve} {}
    free_ranges ranges;
    owned_event event;
  };

  [[nodiscard]] std::optional<std::uintptr_t> take(std::size_t bytes, std::uint64_t identity, cudaStream_t stream)
  {
    auto const own = lanes_.find(identity);
    if (own != lanes_.end()) {
      if (auto const begin = own->second.ranges.take_best_fit(bytes)) { return begin; }
    }
    if (auto const begin = ready_.take_best_fit(bytes)) { return begin; }
    for (auto& [other, each] : lanes_) {  // one block of another stream, and not all that it has
      if (other == identity || each.ranges.largest() < bytes) { continue; }
      if (each.event.try_make_wait(stream)) { return each.ranges.take_best_fit(bytes); }
    }
    return join_lanes_and_take(bytes, identity, stream);
  }

  /// Makes `stream` wait for all lanes and joins their ranges, since together they may be large enough.
  [[nodiscard]] std::optional<std::uintptr_t> join_lanes_and_take(std::size_t bytes,
                                                                  std::uint64_t identity,
                                                                  cudaStream_t stream)
  {
    bool const anything =
      std::any_of(lanes_.begin(), lanes_.end(), [](auto const& entry) { return !entry.second.ranges.empty(); });
    if (!anything) { return std::nullopt; }
    auto* const mine = find_or_make_lane(identity);
    if (mine == nullptr) { return std::nullopt; }
    mine->ranges.take_all(ready_, borders_);
    for (auto& [other, each] : lanes_) {
      if (&each == mine || each.ranges.empty() || !each.event.try_make_wait(stream)) { continue; }
      mine->ranges.take_all(each.ranges, borders_);
    }
    mark(*mine, stream);
    auto const begin = mine->ranges.take_best_fit(bytes);
    return begin ? begin : ready_.take_best_fit(bytes);
  }

  /// Adds a range that is free once the work is done that `stream` has now. Needs two nodes of the reserve.
  void add_free(address_range range, std::uint64_t identity, cudaStream_t stream) noexcept
  {
    auto* const its_lane = find_or_make_lane(identity);
    if (its_lane == nullptr) {
      static_cast<void>(try_synchronize_device());  // nothing to mark it with: wait, and it is free for all
      ready_.insert(range, borders_);
      return;
    }
    its_lane->ranges.insert(range, borders_);
    mark(*its_lane, stream);
  }

  /// Records the lane's event, or makes it unnecessary.
  void mark(lane& marked, cudaStream_t stream) noexcept
  {
    if (marked.event.try_record(stream)) { return; }
    static_cast<void>(try_synchronize_device());
    ready_.take_all(marked.ranges, borders_);
  }

  /// Null if there is none and none can be made, or the identity is unknown.
  [[nodiscard]] lane* find_or_make_lane(std::uint64_t identity) noexcept
  {
    if (identity == 0) { return nullptr; }
    auto const found = lanes_.find(identity);
    if (found != lanes_.end()) { return &found->second; }
    try {
      if (lanes_.size() >= many_lanes) { drop_empty_lanes(); }
      return &lanes_.try_emplace(identity, reserve_).first->second;
    } catch (std::exception const&) {
      return nullptr;
    }
  }

  /// Streams come and go; an empty lane has nothing to remember.
  void drop_empty_lanes() noexcept
  {
    for (auto at = lanes_.begin(); at != lanes_.end();) {
      at = at->second.ranges.empty() ? lanes_.erase(at) : std::next(at);
    }
  }

  mutable std::mutex mutex_;
  node_reserve reserve_;  // outlives the ranges that take from it
  border_set borders_;    // first addresses of the blocks
  std::map<std::uintptr_t, std::size_t> blocks_;
  std::unordered_map<std::uint64_t, lane> lanes_;  // by identity of the stream
  free_ranges ready_{reserve_};                    // free for all
  std::size_t block_bytes_{};
  std::size_t allocated_bytes_{};
  std::size_t allocations_{};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
