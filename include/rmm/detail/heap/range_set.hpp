// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/bits.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/growing_memory.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// A list of seams, ascending: addresses where one upstream block begins right after another, across which ranges do not coalesce. Does
/// not own the list.
struct seam_list {
  std::uintptr_t const* first{};
  std::size_t count{};

  [[nodiscard]] bool contains(std::uintptr_t address) const noexcept
  {
    return detail::binary_search(first, first + count, address);
  }
};

/// A range of free addresses, and its epoch; see range_set.
struct fenced_range {
  address_range range{};
  std::uint64_t epoch{};

  /// Whether there is a range.
  [[nodiscard]] explicit constexpr operator bool() const noexcept { return range.bytes != 0; }
};

/// The result of a search in a range_set; `begin` is 0 if nothing fits.
struct taken_range {
  std::uintptr_t begin{};
  std::uint64_t epoch{};

  [[nodiscard]] explicit constexpr operator bool() const noexcept { return begin != 0; }
};

/// A set of free address ranges that finds ranges by size, and coalesces neighbours, in constant time.
///
/// A range is a node in three lists: the list of its bin, which holds ranges of nearly one size, and two hash chains, one for its first
/// address and one for its end. Each bin that is not empty has a bit, and each non-zero word of such bits has one: they lead from a size
/// to the next larger range. Each range has an epoch, a number that grows with time. A coalesced range has the largest epoch of its parts,
/// and a part that is cut off keeps the epoch of the whole.
///
/// Invariants:
///  I1  ranges do not overlap, none is empty, none begins at address 0, sizes are multiples of heap_granule
///  I2  two ranges touch only at a seam
///  I3  each range is in the list of its bin, in the chain of its begin and in that of its end, once each
///  I4  the bit of a bin is set if, and only if, its list is not empty; the bit of a word of these bits, if the word is not 0. Of the bits
///      behind those of the bins, the first is set, so that searches end there, and the others are not
///  I5  count() ranges have total_bytes() bytes together; count() <= capacity()
///  I6  the chains of a range are those of the slots that slot_of() returns for its begin and its end; there are at least
///      least_slots(capacity()) slots
///
/// Only try_reserve() asks for host memory. No function throws. Not thread-safe.
///
/// Growth is spread over many calls. A small set grows by a quarter: it copies its nodes and builds all chains again. A large
/// set grows by `extension` ranges: its nodes are not copied, and it splits a few chains. So no call of try_reserve() that asks
/// for one range more takes a millisecond. A call that asks for many more takes time in proportion to their number.
///
/// Most time goes into branches that the processor cannot predict, such as whether a freed range has a free neighbour. So there are few of
/// them, and `choose()` selects without a branch.
class range_set {
 public:
  static constexpr std::size_t no_limit      = max_value<std::size_t> / heap_granule * heap_granule;
  static constexpr std::size_t largest_range = (std::size_t{1} << 48U) - heap_granule;
  static constexpr std::uint64_t any_epoch   = max_value<std::uint64_t>;

  range_set() noexcept { filled_bins_[end_word] = 1; }
  range_set(range_set const&)            = delete;
  range_set& operator=(range_set const&) = delete;

  /// Gets host memory for `ranges` ranges altogether. Returns false, and changes nothing, if the host has none.
  [[nodiscard]] bool try_reserve(std::size_t ranges) noexcept { return ranges <= capacity_ || try_grow(ranges); }

  /// Adds a range that overlaps no other, and coalesces it with the ranges that it touches, except at a seam. Requires a size that is a
  /// multiple of heap_granule and, if it coalesces with none, count() < capacity().
  void insert(address_range range, std::uint64_t epoch, seam_list const* seams = nullptr) noexcept
  {
    RMM_ASSERT(range.begin != 0 && range.bytes != 0 && range.bytes % heap_granule == 0);
    RMM_ASSERT(range.bytes <= largest_range);
    RMM_ASSERT(find_beginning_at(range.begin) == none && find_ending_at(range.end()) == none);
    RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || has_none_of(range));
    total_bytes_ += range.bytes;
    auto& at_begin = slot_of(range.begin);
    auto& at_end   = slot_of(range.end());
    auto* to_left  = &at_begin.by_end;
    auto* to_right = &at_end.by_begin;
    while (node_at(*to_left).end() != range.begin && node_at(*to_left).next_by_end != none) {
      to_left = &node_at(*to_left).next_by_end;
    }
    while (node_at(*to_right).begin != range.end() && node_at(*to_right).next_by_begin != none) {
      to_right = &node_at(*to_right).next_by_begin;
    }
    // Both lookups are under way before the first branch that depends on one.
    auto left  = choose(node_at(*to_left).end() == range.begin, *to_left, none);
    auto right = choose(node_at(*to_right).begin == range.end(), *to_right, none);
    if (seams != nullptr) {
      if (left != none && seams->contains(range.begin)) { left = none; }
      if (right != none && seams->contains(range.end())) { right = none; }
    }
    if (left != none) {
      auto& coalesced  = node_at(left);
      auto const bytes = coalesced.bytes;
      *to_left         = coalesced.next_by_end;
      coalesced.bytes += range.bytes;
      coalesced.epoch = detail::max(coalesced.epoch, epoch);
      if (right != none) {
        *to_right = node_at(right).next_by_begin;
        coalesced.bytes += node_at(right).bytes;
        coalesced.epoch = detail::max(coalesced.epoch, node_at(right).epoch);
        unlink_end(right);
        unlink_bin(right);
        forget(right);
      }
      link_end(left, right != none ? slot_of(coalesced.end()) : at_end);
      change_bin(left, bytes);
    } else if (right != none) {
      auto& coalesced  = node_at(right);
      auto const bytes = coalesced.bytes;
      *to_right        = coalesced.next_by_begin;
      coalesced.begin  = range.begin;
      coalesced.bytes += range.bytes;
      coalesced.epoch = detail::max(coalesced.epoch, epoch);
      link_begin(right, at_begin);
      change_bin(right, bytes);
    } else {
      add(range, epoch, at_begin, at_end);
    }
    RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || (validate(seams) && has_all_of(range, epoch)));
  }

  /// Takes the first `bytes` bytes of a range, in constant time. Looks at two ranges of the bin of this size. If neither is large enough,
  /// takes the first range of the next bin that is not empty, however large it is. So it passes over a range that fits behind two that are
  /// a little too small; take_good() does not.
  [[nodiscard]] taken_range take(std::size_t bytes) noexcept
  {
    auto const at = find_fit(bytes);
    return at == none ? taken_range{} : cut_front(at, bytes);
  }

  /// As take(), but takes the last `bytes` bytes of the range. Use it for small blocks, so that they keep to the other end of free memory
  /// than large ones.
  [[nodiscard]] taken_range take_back(std::size_t bytes) noexcept
  {
    auto const at = find_fit(bytes);
    return at == none ? taken_range{} : cut_back(at, bytes);
  }

  /// Looks at a bounded number of ranges, and takes the first `bytes` bytes of the smallest of them that is large enough, of equal ones the
  /// lowest. The set may have a smaller one that is large enough, too. Takes one if there is any: looks at all ranges of a bin if all
  /// bins above are empty.
  [[nodiscard]] taken_range take_good(std::size_t bytes) noexcept
  {
    auto const at = find_good_fit(bytes);
    return at == none ? taken_range{} : cut_front(at, bytes);
  }

  /// Returns the bytes of the range from which take_good(bytes) would take; 0 if there is none.
  [[nodiscard]] std::size_t good_fit(std::size_t bytes) const noexcept
  {
    auto const at = find_good_fit(bytes);
    return at == none ? 0 : node_at(at).bytes;
  }

  /// Takes the last `bytes` bytes of the highest range that is large enough, or if many are, of the highest among the smallest of them.
  [[nodiscard]] taken_range take_highest(std::size_t bytes) noexcept
  {
    RMM_ASSERT(bytes != 0 && bytes % heap_granule == 0);
    if (bytes > total_bytes_) { return {}; }
    index best     = none;
    unsigned looks = 0;
    for (auto bin = next_filled_bin(bin_of(bytes)); bin != bin_count && (best == none || looks < high_looks);) {
      auto const next = next_filled_bin(bin + 1);
      for (auto at = head_of(bin); at != none; at = node_at(at).next, ++looks) {
        bool const fits = node_at(at).bytes >= bytes;  // in all bins but the first, each range does
        if (looks >= high_looks && (best != none || (!fits && next != bin_count))) { break; }
        if (fits && (best == none || node_at(at).begin > node_at(best).begin)) { best = at; }
      }
      bin = next;
    }
    RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || is_highest(best, bytes));
    return best == none ? taken_range{} : cut_back(best, bytes);
  }

  /// Takes the largest range, or its first `most` bytes if it has more. Returns nothing if the set is empty. If very many ranges are nearly
  /// as large, takes one of those.
  [[nodiscard]] fenced_range take_up_to(std::size_t most) noexcept
  {
    RMM_ASSERT(most != 0 && most % heap_granule == 0);
    auto const which = find_largest();
    RMM_ASSERT((which == none) == empty());
    if (which == none) { return {}; }
    auto const bytes = detail::min(most, node_at(which).bytes);
    auto const taken = cut_front(which, bytes);
    RMM_ASSERT(bytes <= most && taken.begin != 0);
    return {{taken.begin, bytes}, taken.epoch};
  }

  /// Takes exactly these addresses. Returns nothing if they do not lie in one range. `begin`: the first address of that range, if the caller
  /// knows it, and never that of another range. Constant time if it is given, or if the range begins or ends with the wanted addresses;
  /// else O(ranges). Requires count() < capacity() unless the range begins or ends with them.
  [[nodiscard]] taken_range take_exact(address_range wanted, std::uintptr_t begin = 0) noexcept
  {
    RMM_ASSERT(wanted.begin != 0 && wanted.bytes != 0 && wanted.bytes % heap_granule == 0);
    auto const at = find_holding(wanted, begin != 0 ? begin : wanted.begin);
    if (at == none) { return {}; }
    auto const whole = range_at(at);
    auto const epoch = node_at(at).epoch;
    erase(at);
    if (whole.begin != wanted.begin) { add({whole.begin, wanted.begin - whole.begin}, epoch); }
    if (whole.end() != wanted.end()) { add({wanted.end(), whole.end() - wanted.end()}, epoch); }
    total_bytes_ -= wanted.bytes;
    RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || (is_sound() && has_none_of(wanted)));
    return {wanted.begin, epoch};
  }

  /// Moves all ranges to `other`, or the `most` largest or nearly largest ones. They get `epoch`, or keep their own if it is any_epoch.
  /// Returns whether all were moved. Requires that `other` has room for them.
  bool move_to(range_set& other,
               seam_list const* seams = nullptr,
               std::size_t most       = no_limit,
               std::uint64_t epoch    = any_epoch) noexcept
  {
    RMM_ASSERT(this != &other && other.count_ + detail::min(count_, most) <= other.capacity_);
    auto const move = [&](index at) {
      other.insert(range_at(at), epoch == any_epoch ? node_at(at).epoch : epoch, seams);
    };
    if (count_ <= most) {
      for_each_node(move);
      clear();
      return true;
    }
    for (; most != 0; --most) {
      auto const word = highest_bit(filled_words_);
      auto const at   = head_of(word * 64 + highest_bit(filled_bins_[word]));
      move(at);
      total_bytes_ -= node_at(at).bytes;
      erase(at);
      RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || is_sound());
    }
    RMM_ASSERT(count_ != 0 && total_bytes_ != 0);
    return false;
  }

  /// Takes all ranges of a set that has more of them than this one. O(ranges of this set). Requires that `larger` has room for the ranges
  /// of this set.
  void take_all_of(range_set& larger, seam_list const* seams = nullptr) noexcept
  {
    RMM_ASSERT(count_ <= larger.count_);
    move_to(larger, seams);
    std::swap(nodes_, larger.nodes_);
    std::swap(slots_, larger.slots_);
    std::swap(room_, larger.room_);
    std::swap(filled_words_, larger.filled_words_);
    std::swap(unsplit_below_, larger.unsplit_below_);
    std::swap(hash_shift_, larger.hash_shift_);
    std::swap(spare_, larger.spare_);
    std::swap(unused_, larger.unused_);
    std::swap(count_, larger.count_);
    std::swap(capacity_, larger.capacity_);
    std::swap(total_bytes_, larger.total_bytes_);
    std::swap(filled_bins_, larger.filled_bins_);
    RMM_ASSERT(larger.empty() && larger.total_bytes_ == 0);
    RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || validate(seams));
  }

  /// Removes all ranges, and keeps the host memory. O(ranges). Writes what names a range, but does not read it: another thread may have
  /// written it last, and then each read is a cache miss that has to be waited for.
  void clear() noexcept
  {
    for_each_node([&](index at) {
      slot_of(node_at(at).begin) = {};
      slot_of(node_at(at).end()) = {};
    });
    for (auto bin = next_filled_bin(0); bin != bin_count; bin = next_filled_bin(bin + 1)) { word_at(bin) = none; }
    for (; filled_words_ != 0; filled_words_ &= filled_words_ - 1) { filled_bins_[lowest_bit(filled_words_)] = 0; }
    spare_       = none;
    unused_      = first_node;
    count_       = 0;
    total_bytes_ = 0;
    RMM_ASSERT(next_filled_bin(0) == bin_count);
    RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || is_sound());
  }

  /// Calls visit(address_range, epoch) for each range, in no particular order. O(ranges).
  template <class Visit>
  void for_each(Visit&& visit) const
  {
    for_each_node([&](index at) { visit(range_at(at), node_at(at).epoch); });
  }

  /// Calls visit(address_range, epoch) for the ranges in the next `most` places, and advances `next`, so that repeated calls visit all
  /// ranges in turn. Begin with `next` 0.
  template <class Visit>
  void for_some(std::size_t& next, std::size_t most, Visit&& visit) const
  {
    auto const places = static_cast<std::size_t>(unused_ - first_node) / node_units;
    if (next >= places) { next = 0; }
    for (auto const end = detail::min(places, next + most); next != end; ++next) {
      auto const at = first_node + static_cast<index>(next) * node_units;
      if (node_at(at).bytes != 0) { visit(range_at(at), node_at(at).epoch); }
    }
  }

  /// Calls visit(fenced_range) for each range of at least `bytes` bytes. O(ranges of that size and those a little smaller).
  template <class Visit>
  void for_each_of_at_least(std::size_t bytes, Visit&& visit) const
  {
    if (count_ == 0) { return; }
    for (auto bin = next_filled_bin(bin_of(bytes)); bin != bin_count; bin = next_filled_bin(bin + 1)) {
      for (auto at = head_of(bin); at != none; at = node_at(at).next) {
        if (node_at(at).bytes >= bytes) { visit(fenced_range{range_at(at), node_at(at).epoch}); }
      }
    }
  }

  /// Returns the range that begins, or ends, at an address; nothing if there is none. Constant time.
  [[nodiscard]] fenced_range range_beginning_at(std::uintptr_t address) const noexcept
  {
    auto const at = count_ == 0 ? none : find_beginning_at(address);
    return at == none ? fenced_range{} : fenced_range{range_at(at), node_at(at).epoch};
  }
  [[nodiscard]] fenced_range range_ending_at(std::uintptr_t address) const noexcept
  {
    auto const at = count_ == 0 ? none : find_ending_at(address);
    return at == none ? fenced_range{} : fenced_range{range_at(at), node_at(at).epoch};
  }

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t total_bytes() const noexcept { return total_bytes_; }

  /// Returns the number of ranges for which there is host memory.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// Bytes of host memory in use, without the object itself.
  [[nodiscard]] std::size_t metadata_bytes() const noexcept
  {
    return capacity_ == 0 ? 0 : node_bytes(capacity_) + slot_count() * sizeof(slot);
  }

  /// Whether a range has at least `bytes` bytes. O(ranges of nearly that size).
  [[nodiscard]] bool has_range_of(std::size_t bytes) const noexcept
  {
    if (count_ == 0 || bytes > total_bytes_) { return false; }
    auto const bin = bin_of(bytes);
    if (next_filled_bin(bin + 1) != bin_count) { return true; }
    auto at = head_of(bin);
    while (at != none && node_at(at).bytes < bytes) { at = node_at(at).next; }
    return at != none;
  }

  /// Returns the bytes of the largest range; 0 if there is none. If very many are nearly as large, returns those of one of them.
  [[nodiscard]] std::size_t largest() const noexcept
  {
    auto const which = find_largest();
    return which == none ? 0 : node_at(which).bytes;
  }

  /// Returns a size that no `ranges` ranges exceed together. Constant time; exact for few ranges, or if few are large.
  [[nodiscard]] std::size_t most_bytes_of(std::size_t ranges) const noexcept
  {
    std::size_t sum{};
    std::size_t looks{};
    for (auto words = filled_words_; words != 0; words &= ~(std::uint64_t{1} << highest_bit(words))) {
      auto const word = highest_bit(words);
      for (auto bits = filled_bins_[word]; bits != 0; bits &= ~(std::uint64_t{1} << highest_bit(bits))) {
        auto const bin = word * 64 + highest_bit(bits);
        for (auto at = head_of(bin); at != none; at = node_at(at).next) {
          if (ranges == 0) { return sum; }
          if (++looks > good_looks) { return detail::min(total_bytes_, sum + ranges * largest_in(bin)); }
          sum += node_at(at).bytes;
          --ranges;
        }
      }
    }
    return sum;
  }

  /// A size that no more than `ranges` ranges exceed. O(ranges).
  [[nodiscard]] std::size_t size_of_all_but(std::size_t ranges) const noexcept
  {
    for (auto words = filled_words_; words != 0; words &= ~(std::uint64_t{1} << highest_bit(words))) {
      auto const word = highest_bit(words);
      for (auto bits = filled_bins_[word]; bits != 0; bits &= ~(std::uint64_t{1} << highest_bit(bits))) {
        auto const bin = word * 64 + highest_bit(bits);
        for (auto at = head_of(bin); at != none; at = node_at(at).next) {
          if (ranges-- == 0) { return largest_in(bin); }
        }
      }
    }
    return 0;
  }

  /// Whether I1 to I6 hold. O(ranges * log ranges). Defined in range_set_validation.hpp.
  [[nodiscard]] bool validate(seam_list const* seams = nullptr) const noexcept;

 private:
  // --- two arrays in host memory: nodes, with node 0 and the heads of the bins in front; and slots ---

  /// Names a node by its distance from node 0, in units of 8 bytes.
  using index = std::uint32_t;

  /// Node 0 is not a range: searches ignore it, and it takes writes to links that lead nowhere.
  static constexpr index none = 0;

  /// The order of the members keeps compilers from writing two of them with one instruction, which would delay separate reads.
  struct node {
    std::uintptr_t begin;
    std::uint64_t epoch;
    std::size_t bytes;  // 0: a spare node
    index link;         // the word that names this node in the list of its bin
    index next_by_begin;
    index next;  // in the bin; for an unused node, the next unused one
    index next_by_end;

    [[nodiscard]] std::uintptr_t end() const noexcept { return begin + bytes; }
  };

  // 32 bins for each doubling; below 16 KiB one for each size. Addresses have 48 bits, so no range has more than 2^48 bytes.
  static constexpr unsigned bins_per_doubling_bits = 5;
  static constexpr std::size_t bin_count           = std::size_t{36} << bins_per_doubling_bits;
  static constexpr std::size_t end_word            = bin_count / 64;  // the bit of bin_count, always set, ends searches

  // Enough words of bits for the bin of any std::size_t, and for the bin after it, so that no size leads out of the array.
  static constexpr std::size_t bin_words = (std::size_t{52} << bins_per_doubling_bits) / 64 + 1;

  static constexpr unsigned good_looks    = 64;
  static constexpr unsigned high_looks    = 16;
  static constexpr unsigned largest_looks = 1024;
  static constexpr std::size_t few = 8;  // with at most so many nodes for each range, a set is walked node by node

  static constexpr std::size_t index_unit    = 8;
  static constexpr index node_units          = sizeof(node) / index_unit;
  static constexpr std::size_t head_count    = bin_count + 2;  // the head of bin_count always names none
  static constexpr index first_node          = node_units + static_cast<index>(head_count * sizeof(index) / index_unit);
  static constexpr std::size_t most_capacity = std::size_t{1} << 28U;  // words are counted with 32 bits
  static constexpr std::size_t least_capacity = 8;

  static constexpr std::size_t most_rebuilt = 2048;  // a set with more capacity is large
  static constexpr std::size_t extension    = 128;   // by so many ranges a large set grows

  /// `yes` if the condition holds, else `no`, without a branch.
  [[nodiscard]] static constexpr index choose(bool condition, index yes, index no) noexcept
  {
    return no ^ ((yes ^ no) & (index{0} - index{condition}));
  }

  /// How often a size can be halved until it is below 16 KiB.
  [[nodiscard]] static unsigned doubling_of(std::size_t granules) noexcept
  {
    return highest_bit(granules | (std::size_t{1} << bins_per_doubling_bits)) - bins_per_doubling_bits;
  }

  [[nodiscard]] static std::size_t bin_of(std::size_t granules, unsigned doubling) noexcept
  {
    RMM_ASSERT(doubling + bins_per_doubling_bits < 64 && granules >> doubling < std::size_t{2}
                                                                                  << bins_per_doubling_bits);
    return (std::size_t{doubling} << bins_per_doubling_bits) + (granules >> doubling);
  }

  [[nodiscard]] static std::size_t bin_of(std::size_t bytes) noexcept
  {
    auto const granules = bytes / heap_granule;
    return bin_of(granules, doubling_of(granules));
  }

  /// Returns the largest size of a bin.
  [[nodiscard]] static std::size_t largest_in(std::size_t bin) noexcept
  {
    auto const doublings = bin >> bins_per_doubling_bits;
    auto const doubling  = doublings == 0 ? 0 : doublings - 1;
    auto const granules  = bin - (doubling << bins_per_doubling_bits);
    auto const bytes     = (((granules + 1) << doubling) - 1) * heap_granule;
    RMM_ASSERT(bin_of(bytes) == bin && bin_of(bytes + heap_granule) == bin + 1);
    return bytes;
  }

  [[nodiscard]] static bool is_smaller(node const& lhs, node const& rhs) noexcept
  {
    return lhs.bytes != rhs.bytes ? lhs.bytes < rhs.bytes : lhs.begin < rhs.begin;
  }

  [[nodiscard]] node& node_at(index at) noexcept { return *static_cast<node*>(at_distance(index_unit * at)); }
  [[nodiscard]] node const& node_at(index at) const noexcept
  {
    return *static_cast<node const*>(at_distance(index_unit * at));
  }
  [[nodiscard]] address_range range_at(index at) const noexcept { return {node_at(at).begin, node_at(at).bytes}; }

  /// The nodes and the heads as an array of words. Word 0 is the head of bin 0, so that a bin is the word of its head.
  [[nodiscard]] index& word_at(std::size_t word) const noexcept
  {
    return *static_cast<index*>(at_distance(sizeof(node) + sizeof(index) * word));
  }

  [[nodiscard]] void* at_distance(std::size_t bytes) const noexcept
  {
    return static_cast<std::byte*>(nodes_.begin()) + bytes;
  }

  // --- checks, in range_set_validation.hpp ---

  [[nodiscard]] inline std::size_t check_steps() const noexcept;
  [[nodiscard]] inline bool check_ranges(bool are_seams_known, seam_list const* seams) const noexcept;
  struct empty_words;
  [[nodiscard]] inline bool check_lists() const noexcept;
  [[nodiscard]] inline bool check_bins() const noexcept;
  [[nodiscard]] inline bool check_slots(std::size_t first, std::size_t last, std::size_t& in_chains) const noexcept;
  [[nodiscard]] inline bool is_sound() const noexcept;
  [[nodiscard]] inline bool has_none_of(address_range range) const noexcept;
  [[nodiscard]] inline bool has_all_of(address_range range, std::uint64_t least_epoch) const noexcept;
  [[nodiscard]] inline bool has_no_fit(std::size_t bytes) const noexcept;
  [[nodiscard]] inline bool is_good(index found, std::size_t bytes) const noexcept;
  [[nodiscard]] inline bool is_fit(index found, std::size_t bytes) const noexcept;
  [[nodiscard]] inline bool is_highest(index found, std::size_t bytes) const noexcept;
  [[nodiscard]] inline bool is_largest(index found) const noexcept;
  [[nodiscard]] inline bool holds_nowhere(address_range range) const noexcept;

  // --- bins: lists of nodes ---
  //
  // A node knows the word that names it, a head or the `next` of another node, so taking it out of its list is the same for both. A node
  // that lies above the first node of its list becomes the second. That is enough order to pack memory well (more did not help on traces of
  // real programs), and it costs no branch.

  [[nodiscard]] static constexpr index word_of_head(std::size_t bin) noexcept { return static_cast<index>(bin); }

  [[nodiscard]] static constexpr index word_of_next(index at) noexcept
  {
    return at * static_cast<index>(index_unit / sizeof(index)) -
           static_cast<index>((sizeof(node) - offsetof(node, next)) / sizeof(index));
  }

  [[nodiscard]] index head_of(std::size_t bin) const noexcept { return word_at(bin); }

  /// Returns the first bin from `bin` on that is not empty; bin_count if there is none.
  [[nodiscard]] std::size_t next_filled_bin(std::size_t bin) const noexcept
  {
    auto const here = filled_bins_[bin / 64] >> (bin % 64);
    if (here != 0) { return bin + lowest_bit(here); }
    auto const above = filled_words_ & (~std::uint64_t{1} << (bin / 64));
    auto const word  = lowest_bit(above | std::uint64_t{1} << end_word);
    return word * 64 + lowest_bit(filled_bins_[word]);
  }

  void link_bin(index at, std::size_t bin) noexcept
  {
    auto& linked       = node_at(at);
    auto const head    = word_of_head(bin);
    auto const first   = word_at(head);
    auto const link    = choose(node_at(first).begin < linked.begin, word_of_next(first), head);
    auto const next    = word_at(link);
    linked.link        = link;
    linked.next        = next;
    word_at(link)      = at;
    node_at(next).link = word_of_next(at);
    filled_bins_[bin / 64] |= std::uint64_t{1} << (bin % 64);
    filled_words_ |= std::uint64_t{1} << (bin / 64);
  }

  /// Takes a range out of its bin. Whether the bin is then empty is unpredictable, so there is no branch.
  void unlink_bin(index at) noexcept
  {
    auto const link    = node_at(at).link;
    auto const next    = node_at(at).next;
    word_at(link)      = next;
    node_at(next).link = link;
    static_assert(word_of_next(first_node) >= bin_count, "no link to a node looks like a bin");
    std::size_t const bin = link;                                     // if it is a head
    bool const emptied    = bin + 2 * std::size_t{next} < bin_count;  // `next` is none, or 2 * next is too large
    auto const word       = choose(emptied, link / 64, 0);
    auto const bits       = filled_bins_[word] & ~(std::uint64_t{emptied} << (bin % 64));
    filled_bins_[word]    = bits;
    filled_words_ &= ~(std::uint64_t{bits == 0} << word);
  }

  /// Moves a range, which had `bytes` bytes before, to the bin of its size.
  void change_bin(index at, std::size_t bytes) noexcept
  {
    auto const granules = node_at(at).bytes / heap_granule;
    auto const doubling = doubling_of(granules);
    if ((granules ^ bytes / heap_granule) >> doubling == 0) { return; }
    unlink_bin(at);
    link_bin(at, bin_of(granules, doubling));
  }

  [[nodiscard]] index find_largest() const noexcept
  {
    if (filled_words_ == 0) { return none; }
    auto const word = highest_bit(filled_words_);
    auto looks      = largest_looks;
    index best      = none;
    for (auto at = head_of(word * 64 + highest_bit(filled_bins_[word])); at != none && looks-- != 0;
         at      = node_at(at).next) {
      if (best == none || node_at(at).bytes > node_at(best).bytes) { best = at; }
    }
    RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || is_largest(best));
    return best;
  }

  [[nodiscard]] static unsigned lowest_bit(std::uint64_t bits) noexcept
  {
#if defined(__GNUC__)
    return static_cast<unsigned>(__builtin_ctzll(bits));
#else
    return highest_bit(bits & (~bits + 1));
#endif
  }

  // --- addresses ---

  // The highest bits of the hash of an address are the number of its slot. With one bit more, slot c becomes slots 2c and 2c + 1.
  // A large set doubles the number of its slots in this way, one slot after the other, the last first. Meanwhile slots 0 ... u - 1
  // are not split yet, and slots 2u ... 2n - 1 are the result of a split. The slots between them are not in use. Hashes below
  // unsplit_below_ belong to slots that are not split.

  /// The first range in each of two chains: of the ranges that begin, and of those that end, at addresses with one hash. A free looks at
  /// both chains for both ends of its range.
  struct slot {
    index by_begin;
    index by_end;
  };

  [[nodiscard]] slot* slots() const noexcept { return static_cast<slot*>(slots_.begin()); }

  /// The number of slots in use.
  [[nodiscard]] std::size_t slot_count() const noexcept { return slots_end() - unsplit(); }

  /// 2n: the number of slots when all are split.
  [[nodiscard]] std::size_t slots_end() const noexcept { return std::size_t{1} << (64U - hash_shift_); }

  /// u: the number of slots that are not split yet.
  [[nodiscard]] std::size_t unsplit() const noexcept { return std::size_t{unsplit_below_ >> (hash_shift_ + 1U)}; }

  [[nodiscard]] slot& slot_of(std::uintptr_t address) const noexcept
  {
    auto const hash = std::uint64_t{address} * 0x9E3779B97F4A7DU;  // of granules: by 2^64 / the golden ratio
    return slots()[hash >> (hash_shift_ + unsigned{hash < unsplit_below_})];
  }

  [[nodiscard]] index find_beginning_at(std::uintptr_t address) const noexcept
  {
    auto at = slot_of(address).by_begin;
    while (at != none && node_at(at).begin != address) { at = node_at(at).next_by_begin; }
    return at;
  }

  [[nodiscard]] index find_ending_at(std::uintptr_t address) const noexcept
  {
    auto at = slot_of(address).by_end;
    while (at != none && node_at(at).end() != address) { at = node_at(at).next_by_end; }
    return at;
  }

  void link_begin(index at, slot& where) noexcept
  {
    node_at(at).next_by_begin = where.by_begin;
    where.by_begin            = at;
  }

  void link_end(index at, slot& where) noexcept
  {
    node_at(at).next_by_end = where.by_end;
    where.by_end            = at;
  }

  void unlink_begin(index at) noexcept
  {
    auto* link = &slot_of(node_at(at).begin).by_begin;
    while (*link != at) { link = &node_at(*link).next_by_begin; }
    *link = node_at(at).next_by_begin;
  }

  void unlink_end(index at) noexcept
  {
    auto* link = &slot_of(node_at(at).end()).by_end;
    while (*link != at) { link = &node_at(*link).next_by_end; }
    *link = node_at(at).next_by_end;
  }

  [[nodiscard]] index find_holding(address_range wanted, std::uintptr_t begin) const noexcept
  {
    auto const holds = [&](index at) { return node_at(at).begin <= wanted.begin && wanted.end() <= node_at(at).end(); };
    if (count_ == 0) { return none; }
    if (auto const at = find_beginning_at(begin); at != none) { return holds(at) ? at : none; }
    if (auto const at = find_ending_at(wanted.end()); at != none) { return holds(at) ? at : none; }
    for (auto at = first_node; at != unused_; at += node_units) {
      if (holds(at)) { return at; }
    }
    RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || holds_nowhere(wanted));
    return none;
  }

  // --- whole ranges ---

  /// Calls visit(index) for each range. A set that had very many more ranges is walked by its bins.
  template <class Visit>
  void for_each_node(Visit&& visit) const
  {
    if (count_ == 0) { return; }
    if (static_cast<std::size_t>(unused_ - first_node) <= few * node_units * count_) {
      for (auto at = first_node; at != unused_; at += node_units) {
        if (node_at(at).bytes != 0) { visit(at); }
      }
      return;
    }
    for (auto bin = next_filled_bin(0); bin != bin_count; bin = next_filled_bin(bin + 1)) {
      for (auto at = head_of(bin); at != none; at = node_at(at).next) { visit(at); }
    }
  }

  /// Adds a range that coalesces with none. Does not change total_bytes_; neither does erase().
  void add(address_range range, std::uint64_t epoch) noexcept
  {
    add(range, epoch, slot_of(range.begin), slot_of(range.end()));
  }

  void add(address_range range, std::uint64_t epoch, slot& at_begin, slot& at_end) noexcept
  {
    RMM_ASSERT(count_ < capacity_ && range.bytes != 0);
    auto at = spare_;
    if (at != none) {
      RMM_ASSERT(node_at(at).bytes == 0);
      spare_ = node_at(at).next;
    } else {
      at = unused_;
      unused_ += node_units;
    }
    ++count_;
    node_at(at).begin = range.begin;
    node_at(at).bytes = range.bytes;
    node_at(at).epoch = epoch;
    link_begin(at, at_begin);
    link_end(at, at_end);
    link_bin(at, bin_of(range.bytes));
  }

  void erase(index at) noexcept
  {
    unlink_begin(at);
    unlink_end(at);
    unlink_bin(at);
    forget(at);
  }

  /// Adds a node that is in no list to the unused ones.
  void forget(index at) noexcept
  {
    RMM_ASSERT(count_ != 0 && node_at(at).bytes != 0);
    node_at(at).bytes = 0;
    node_at(at).next  = spare_;
    spare_            = at;
    --count_;
  }

  [[nodiscard]] index find_fit(std::size_t bytes) const noexcept
  {
    RMM_ASSERT(bytes != 0 && bytes % heap_granule == 0);
    if (bytes > total_bytes_) { return none; }
    auto const own = bin_of(bytes);
    auto at        = head_of(own);
    if (node_at(at).bytes != bytes) {
      auto const second = node_at(at).next;
      auto const larger = head_of(next_filled_bin(own + 1));
      at                = choose(node_at(at).bytes < bytes, choose(node_at(second).bytes < bytes, larger, second), at);
    }
    RMM_ASSERT(at == none || node_at(at).bytes >= bytes);
    RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || is_fit(at, bytes));
    return at;
  }

  /// Bins above the bin of `bytes` hold only ranges that fit, so the search ends early there.
  [[nodiscard]] index find_good_fit(std::size_t bytes) const noexcept
  {
    RMM_ASSERT(bytes != 0 && bytes % heap_granule == 0);
    if (bytes > total_bytes_) { return none; }
    for (auto bin = next_filled_bin(bin_of(bytes)); bin != bin_count;) {
      auto const next_bin = next_filled_bin(bin + 1);
      auto looks          = good_looks;
      index best          = none;
      for (auto at = head_of(bin); at != none; at = node_at(at).next) {
        if (node_at(at).bytes >= bytes && (best == none || is_smaller(node_at(at), node_at(best)))) { best = at; }
        if (looks > 1) {
          --looks;
        } else if (best != none || next_bin != bin_count) {
          break;
        }
      }
      RMM_ASSERT_EXPENSIVE(best == none || !is_check_due<range_set>(check_steps()) || is_good(best, bytes));
      if (best != none) { return best; }
      bin = next_bin;
    }
    RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || is_good(none, bytes));
    return none;
  }

  taken_range cut_back(index at, std::size_t bytes) noexcept
  {
    auto& whole = node_at(at);
    if (whole.bytes == bytes) { return cut_front(at, bytes); }
    RMM_ASSERT(whole.bytes > bytes && total_bytes_ >= whole.bytes);
    unlink_end(at);
    whole.bytes -= bytes;
    total_bytes_ -= bytes;
    link_end(at, slot_of(whole.end()));
    change_bin(at, whole.bytes + bytes);
    RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || (is_sound() && has_none_of({whole.end(), bytes})));
    return {whole.end(), whole.epoch};
  }

  taken_range cut_front(index at, std::size_t bytes) noexcept
  {
    auto& whole = node_at(at);
    taken_range const result{whole.begin, whole.epoch};
    RMM_ASSERT(bytes != 0 && whole.bytes >= bytes && total_bytes_ >= whole.bytes);
    total_bytes_ -= bytes;
    if (whole.bytes == bytes) {
      erase(at);
    } else {
      unlink_begin(at);
      whole.begin += bytes;
      whole.bytes -= bytes;
      link_begin(at, slot_of(whole.begin));
      change_bin(at, whole.bytes + bytes);
    }
    RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || (is_sound() && has_none_of({result.begin, bytes})));
    return result;
  }

  // --- host memory ---

  /// Returns the least number of slots for a capacity: 1.5 for each range in a small set, 2.5 in a large one, where a miss costs more.
  [[nodiscard]] static constexpr std::size_t least_slots(std::size_t capacity) noexcept
  {
    return capacity + capacity / 2 + (capacity <= most_rebuilt ? 0 : capacity);
  }

  /// For the least sufficient number of slots that is a power of two, which is less than twice the sufficient number.
  [[nodiscard]] static unsigned hash_shift_for(std::size_t capacity) noexcept
  {
    return 63U - highest_bit(least_slots(capacity) - 1);
  }

  [[nodiscard]] static std::size_t node_bytes(std::size_t capacity) noexcept
  {
    return (first_node + capacity * node_units) * index_unit;
  }

  /// Enough for all capacities up to this one.
  [[nodiscard]] static std::size_t slot_bytes(std::size_t capacity) noexcept
  {
    return (std::size_t{1} << (64U - hash_shift_for(capacity))) * sizeof(slot);
  }

  /// The numbers of ranges for which a large set reserves addresses: many, or fewer if the system refuses.
  [[nodiscard]] static constexpr std::array<std::size_t, 2> rooms_for(std::size_t capacity) noexcept
  {
    return {detail::min(8 * capacity, most_capacity), detail::min(capacity + capacity / 4, most_capacity)};
  }

  [[nodiscard]] RMM_COLD inline bool try_grow(std::size_t ranges) noexcept;
  [[nodiscard]] inline bool try_rebuild(std::size_t capacity) noexcept;
  [[nodiscard]] inline bool try_extend(std::size_t capacity) noexcept;
  [[nodiscard]] inline bool try_get_room(std::size_t capacity) noexcept;
  inline void split_slot() noexcept;

  // What only growth changes comes first, then what each range that comes or goes changes: two threads that move ranges through one set in
  // turn share few cache lines.
  growing_memory nodes_;
  growing_memory slots_;
  std::uint64_t unsplit_below_{};  // smaller hashes belong to slots that are not split
  unsigned hash_shift_{};          // for the other hashes; one more for those
  std::size_t room_{};             // the number of ranges that a large set has addresses for; 0 if the set is small
  std::size_t capacity_{};
  index spare_{};             // the first of the nodes that were used before and are not now
  index unused_{first_node};  // this node and those above are not in use, whatever they hold
  std::size_t count_{};
  std::size_t total_bytes_{};
  std::uint64_t filled_words_{};
  std::array<std::uint64_t, bin_words> filled_bins_{};
};

bool range_set::try_grow(std::size_t ranges) noexcept
{
  if (ranges > most_capacity) { return false; }
  auto const more   = room_ != 0 ? extension : capacity_ / 4;
  auto const grown  = detail::min(detail::max({ranges, capacity_ + more, least_capacity}), most_capacity);
  bool const worked = room_ != 0 ? try_extend(grown) : try_rebuild(grown);
  RMM_ASSERT(!worked || ranges <= capacity_);
  RMM_ASSERT_EXPENSIVE(!is_check_due<range_set>(check_steps()) || is_sound());
  return worked;
}

/// Gives a small set new arrays. If they are large, so is the set afterwards.
bool range_set::try_rebuild(std::size_t capacity) noexcept
{
  growing_memory nodes;
  growing_memory slots;
  std::size_t room{};
  if (capacity <= most_rebuilt) {
    nodes = growing_memory::allocate(node_bytes(capacity));
    slots = growing_memory::allocate(slot_bytes(capacity));
  } else {
    for (auto const wanted : rooms_for(capacity)) {
      nodes = {};
      slots = {};
      nodes = growing_memory::map(node_bytes(wanted));
      slots = growing_memory::map(slot_bytes(wanted));
      room  = wanted;
      if (nodes && slots) { break; }
    }
  }
  if (!nodes || !slots) { return false; }
  RMM_ASSERT(capacity >= count_ && (capacity_ == 0 || unused_ <= first_node + capacity_ * node_units));
  if (capacity_ != 0) { std::memcpy(nodes.begin(), nodes_.begin(), unused_ * index_unit); }
  nodes_              = std::move(nodes);
  slots_              = std::move(slots);
  room_               = room;
  capacity_           = capacity;
  hash_shift_         = hash_shift_for(capacity);
  node_at(none).begin = max_value<std::uintptr_t>;
  for (auto at = first_node; at != unused_; at += node_units) {
    if (node_at(at).bytes == 0) { continue; }
    link_begin(at, slot_of(node_at(at).begin));
    link_end(at, slot_of(node_at(at).end()));
  }
  return true;
}

/// Lets a large set use more of the memory that it has addresses for.
bool range_set::try_extend(std::size_t capacity) noexcept
{
  if (capacity > room_ && !try_get_room(capacity)) { return false; }
  RMM_ASSERT(capacity >= capacity_ && capacity <= room_);
  capacity_ = capacity;
  while (slot_count() < least_slots(capacity)) { split_slot(); }
  RMM_ASSERT(slot_count() >= least_slots(capacity));  // I6
  return true;
}

/// Reserves more addresses for a large set. If only one of the arrays gets them, it does not use them.
bool range_set::try_get_room(std::size_t capacity) noexcept
{
  for (auto const room : rooms_for(capacity)) {
    if (nodes_.try_resize(node_bytes(room)) && slots_.try_resize(slot_bytes(room))) {
      room_ = room;
      return true;
    }
  }
  return false;
}

/// Splits the last slot that is not split. If all are split, doubling begins again with the last one.
void range_set::split_slot() noexcept
{
  auto which = unsplit();
  if (which == 0) {
    which = slots_end();
    --hash_shift_;
  }
  --which;
  RMM_ASSERT(2 * which + 1 < slots_end());
  auto const old         = slots()[which];
  slots()[2 * which]     = {};
  slots()[2 * which + 1] = {};
  unsplit_below_         = std::uint64_t{which} << (hash_shift_ + 1U);
  for (auto at = old.by_begin; at != none;) {
    auto const next = node_at(at).next_by_begin;
    link_begin(at, slot_of(node_at(at).begin));
    at = next;
  }
  for (auto at = old.by_end; at != none;) {
    auto const next = node_at(at).next_by_end;
    link_end(at, slot_of(node_at(at).end()));
    at = next;
  }
}

}  // namespace detail
}  // namespace RMM_NAMESPACE

#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
#include <rmm/detail/heap/range_set_validation.hpp>
#endif
