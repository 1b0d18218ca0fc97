// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// The blocks that a heap has from upstream, and the seams between them.
///
/// Where one block begins right after another, free ranges must not coalesce: each block goes back to upstream whole. Such an
/// address is a seam. Blocks that grow in place coalesce without one.
///
/// Invariants:
///  B1  blocks are not empty, none begins at address 0, and they do not overlap; they are ascending
///  B2  the seams are the addresses where two blocks touch, ascending
///  B3  total_bytes() is the sum of the blocks, usable_bytes() that of their whole granules
///  B4  the published list is the seams, in the memory where they are now
///
/// Not thread-safe. Other threads read the published list, so the caller locks them out when add() or try_cut() may change a seam. When
/// clear() is called, no other thread uses the list any more.
class block_map {
 public:
  explicit block_map(seam_list& published) noexcept : published_{published} {}
  block_map(block_map const&)            = delete;
  block_map& operator=(block_map const&) = delete;

  [[nodiscard]] std::size_t total_bytes() const noexcept { return total_bytes_; }
  [[nodiscard]] std::size_t usable_bytes() const noexcept { return usable_bytes_; }

  /// Whether a new block would touch another, which makes a new seam.
  [[nodiscard]] bool touches(address_range block) const noexcept
  {
    auto const next = first_above(block.begin);
    return (next != blocks_.begin() && (next - 1)->end() == block.begin) ||
           (next != blocks_.end() && next->begin == block.end());
  }

  /// Adds a block, with seams where it touches others. If it throws std::bad_alloc, nothing has changed.
  void add(address_range block)
  {
    RMM_ASSERT(block.begin != 0 && block.bytes != 0 && block.begin < block.end());
    RMM_ASSERT(is_unused(block));
    blocks_.reserve(grown(blocks_.size() + 1, blocks_.capacity()));
    if (touches(block)) {
      seams_.reserve(grown(seams_.size() + 2, seams_.capacity()));
      publish();
    }
    auto const next = first_above(block.begin);
    if (next != blocks_.begin() && (next - 1)->end() == block.begin) { add_seam(block.begin); }
    if (next != blocks_.end() && next->begin == block.end()) { add_seam(block.end()); }
    blocks_.insert(next, block);
    total_bytes_ += block.bytes;
    usable_bytes_ += usable(block);
    if (seams_.size() != published_.count) { publish(); }
    RMM_ASSERT(is_block(block));
    RMM_ASSERT_EXPENSIVE(!is_check_due<block_map>(blocks_.size()) || check_invariants());
  }

  /// Adds memory to the blocks that it touches, which become one block. If it throws std::bad_alloc, nothing has changed.
  void extend(address_range added)
  {
    RMM_ASSERT(added.begin != 0 && added.bytes != 0 && added.bytes % heap_granule == 0);
    RMM_ASSERT(is_unused(added));
    blocks_.reserve(grown(blocks_.size() + 1, blocks_.capacity()));
    auto next           = first_above(added.begin);
    bool const at_end   = next != blocks_.begin() && (next - 1)->end() == added.begin;
    bool const at_begin = next != blocks_.end() && next->begin == added.end();
    if (at_end) {
      (next - 1)->bytes += added.bytes;
      if (at_begin) {
        (next - 1)->bytes += next->bytes;
        blocks_.erase(next);
      }
    } else if (at_begin) {
      next->begin = added.begin;
      next->bytes += added.bytes;
    } else {
      blocks_.insert(next, added);
    }
    total_bytes_ += added.bytes;
    usable_bytes_ += added.bytes;
    RMM_ASSERT(holds(added) && !touches(*find(added.begin)));
    RMM_ASSERT_EXPENSIVE(!is_check_due<block_map>(blocks_.size()) || check_invariants());
  }

  /// Takes a range out of its block. If the range ends with the last whole granule of the block, also takes the bytes behind it, a
  /// rest of less than a granule. Returns false, and changes nothing, if the range lies in no block, or if host memory for a second block
  /// runs out.
  [[nodiscard]] bool try_cut(address_range range) noexcept
  {
    RMM_ASSERT(range.bytes != 0 && range.bytes % heap_granule == 0);
    auto const block = find(range.begin);
    if (block == blocks_.end() || range.end() > block->end()) { return false; }
    RMM_ASSERT((range.begin - block->begin) % heap_granule == 0);
    bool const to_end = range.end() - block->begin == align_down(block->bytes, heap_granule);
    address_range const above{range.end(), block->end() - range.end()};
    address_range const below{block->begin, range.begin - block->begin};
    if (!to_end && below.bytes != 0) {
      try {
        blocks_.insert(block + 1, above);
      } catch (std::exception const&) {
        return false;
      }
      find(range.begin)->bytes = below.bytes;
    } else if (below.bytes != 0) {
      block->bytes = below.bytes;
    } else if (!to_end) {
      *block = above;
    } else {
      blocks_.erase(block);
    }
    auto const cut = to_end ? range.bytes + above.bytes : range.bytes;
    total_bytes_ -= cut;
    usable_bytes_ -= range.bytes;
    remove_seam(range.begin);
    remove_seam(range.begin + cut);
    publish();
    RMM_ASSERT(is_unused({range.begin, cut}));
    RMM_ASSERT_EXPENSIVE(!is_check_due<block_map>(blocks_.size()) || check_invariants());
    return true;
  }

  /// Whether the range is a whole block.
  [[nodiscard]] bool is_block(address_range range) const noexcept
  {
    auto const block = const_cast<block_map*>(this)->find(range.begin);
    return block != blocks_.end() && block->begin == range.begin && block->bytes == range.bytes;
  }

  /// Whether the range lies in one block.
  [[nodiscard]] bool holds(address_range range) const noexcept
  {
    auto const block = const_cast<block_map*>(this)->find(range.begin);
    return block != blocks_.end() && range.end() <= block->end();
  }

  /// Returns all blocks, ascending.
  [[nodiscard]] std::vector<address_range> const& all() const noexcept { return blocks_; }

  void clear() noexcept
  {
    blocks_.clear();
    seams_.clear();
    total_bytes_  = 0;
    usable_bytes_ = 0;
    publish();
    RMM_ASSERT_EXPENSIVE(check_invariants());
  }

  /// Whether B1 to B4 hold; O(blocks).
  [[nodiscard]] bool check_invariants() const noexcept
  {
    std::size_t total{};
    std::size_t usable_total{};
    std::size_t seam{};
    for (std::size_t i = 0; i != blocks_.size(); ++i) {
      auto const block = blocks_[i];
      if (block.begin == 0 || block.bytes == 0 || (i != 0 && block.begin < blocks_[i - 1].end())) {
        return false;
      }  // B1
      bool const is_seam = i != 0 && block.begin == blocks_[i - 1].end();
      bool const is_next = seam != seams_.size() && seams_[seam] == block.begin;
      if (is_seam != is_next) { return false; }  // B2
      seam += is_seam ? 1U : 0U;
      total += block.bytes;
      usable_total += usable(block);
    }
    return seam == seams_.size() && total == total_bytes_ && usable_total == usable_bytes_ &&           // B2, B3
           published_.count == seams_.size() && (seams_.empty() || published_.first == seams_.data());  // B4
  }

 private:
  using iterator = std::vector<address_range>::iterator;

  [[nodiscard]] static std::size_t usable(address_range block) noexcept
  {
    return align_down(block.bytes, heap_granule);
  }

  [[nodiscard]] static std::size_t grown(std::size_t needed, std::size_t capacity) noexcept
  {
    return needed <= capacity ? needed : detail::max(needed, 2 * capacity);
  }

  [[nodiscard]] std::vector<address_range>::const_iterator first_above(std::uintptr_t address) const noexcept
  {
    return detail::upper_bound(
      blocks_.begin(), blocks_.end(), address, [](std::uintptr_t at, address_range block) { return at < block.begin; });
  }
  [[nodiscard]] iterator first_above(std::uintptr_t address) noexcept
  {
    return blocks_.begin() + (static_cast<block_map const*>(this)->first_above(address) - blocks_.cbegin());
  }

  /// Whether no address of the range is in a block.
  [[nodiscard]] bool is_unused(address_range range) const noexcept
  {
    auto const above = first_above(range.begin);
    return (above == blocks_.begin() || (above - 1)->end() <= range.begin) &&
           (above == blocks_.end() || range.end() <= above->begin);
  }

  /// Returns the block of an address.
  [[nodiscard]] iterator find(std::uintptr_t address) noexcept
  {
    auto const above = first_above(address);
    return above != blocks_.begin() && address < (above - 1)->end() ? above - 1 : blocks_.end();
  }

  void add_seam(std::uintptr_t address) noexcept
  {
    RMM_ASSERT(seams_.size() < seams_.capacity());
    seams_.insert(detail::lower_bound(seams_.begin(), seams_.end(), address), address);  // there is capacity
  }

  void remove_seam(std::uintptr_t address) noexcept
  {
    auto const seam = detail::lower_bound(seams_.begin(), seams_.end(), address);
    if (seam != seams_.end() && *seam == address) { seams_.erase(seam); }
  }

  void publish() noexcept { published_ = {seams_.data(), seams_.size()}; }

  std::vector<address_range> blocks_;
  std::vector<std::uintptr_t> seams_;
  seam_list& published_;
  std::size_t total_bytes_{};
  std::size_t usable_bytes_{};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
