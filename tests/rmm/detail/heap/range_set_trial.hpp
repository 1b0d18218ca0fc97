// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shadow_ranges.hpp"

#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>
#include <rmm/detail/heap/range_set_validation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <vector>

namespace rmm::test {

/// Random use of a range_set, compared with a model after every step. Throws std::logic_error if they differ.
///
/// The ranges come from blocks that touch in memory, with seams between them. A function `choose(n)`, which returns a number below
/// n, makes all decisions: from random numbers, or from the bytes of a fuzzer.
class range_set_trial {
 public:
  range_set_trial(std::size_t block_count, std::size_t granules)
    : block_count_{block_count},
      block_bytes_{granules * detail::heap_granule},
      seams_{make_seams(block_count, block_bytes_)},
      model_{std::set<std::uintptr_t>(seams_.begin(), seams_.end())}
  {
    reserve();
    for (std::size_t block = 0; block != block_count; ++block) {
      insert({first_address + block * block_bytes_, block_bytes_});
    }
  }

  [[nodiscard]] std::size_t live_blocks() const { return live_.size(); }

  /// Makes one call like those of a pool.
  template <class Choose>
  void step(Choose&& choose)
  {
    reserve();
    switch (choose(16)) {
      default:
        return give_back(choose);
      case 5:
      case 6:
        return draining_ ? give_back(choose) : take(choose_bytes(choose));
      case 7:
      case 8:
        return take(choose_bytes(choose));
      case 9:
      case 11:
      case 12:
        return take_good(choose_bytes(choose));
      case 10:
        return choose(4) == 0 ? take_highest(choose_bytes(choose)) : take_back(choose_bytes(choose));
      case 13:
        return take_exact(choose);
      case 14:
        return take_up_to(choose(8) == 0 ? detail::range_set::no_limit : choose_bytes(choose));
      case 15:
        return rare_step(choose);
    }
  }

  /// Compares everything with the model.
  void check() const
  {
    require(set_.validate(&list_), "invariant");
    require(model_.matches(set_), "the same ranges as the model");
  }

  /// Frees all live blocks in an order that `choose` makes. Checks that only the whole blocks remain.
  template <class Choose>
  void finish(Choose&& choose)
  {
    while (!live_.empty()) { give_back(choose); }
    check();
    require(set_.count() == block_count_, "one range for each block");
    require(set_.total_bytes() == block_count_ * block_bytes_, "all bytes are back");
    require(set_.largest() == block_bytes_, "coalesced up to the seams, and not further");
  }

 private:
  static constexpr std::uintptr_t first_address = 0x7F00'0000'0000;

  static std::vector<std::uintptr_t> make_seams(std::size_t block_count, std::size_t block_bytes)
  {
    std::vector<std::uintptr_t> result;
    for (std::size_t block = 1; block < block_count; ++block) { result.push_back(first_address + block * block_bytes); }
    return result;
  }

  static void require(bool holds, char const* what)
  {
    if (!holds) { throw std::logic_error{what}; }
  }

  template <class Choose>
  [[nodiscard]] std::size_t choose_bytes(Choose&& choose) const
  {
    auto const granules = block_bytes_ / detail::heap_granule;
    auto const most     = choose(4) != 0 ? std::min<std::size_t>(granules, 8) : granules;
    return (1 + choose(most)) * detail::heap_granule;
  }

  template <class Choose>
  [[nodiscard]] std::uint64_t choose_stamp(Choose&& choose) const
  {
    return choose(static_cast<std::size_t>(clock_) + 1);
  }

  /// Reserves as a pool does before it allocates: room for one more range per live block, and for a range that is cut in two.
  void reserve()
  {
    require(set_.count() <= live_.size() + block_count_, "not more ranges than gaps between live blocks");
    require(set_.try_reserve(live_.size() + block_count_ + 2), "host memory");
  }

  void insert(detail::address_range range)
  {
    ++clock_;
    auto const epoch = clock_ % 3 == 0 ? clock_ / 2 : clock_;  // some ranges are older than their neighbours
    model_.insert(range, epoch);
    set_.insert(range, epoch, &list_);
  }

  template <class Choose>
  void give_back(Choose&& choose)
  {
    if (live_.empty()) { return; }
    std::swap(live_[choose(live_.size())], live_.back());
    insert(live_.back());
    live_.pop_back();
  }

  template <class Choose>
  void rare_step(Choose&& choose)
  {
    switch (choose(16)) {
      default:
        return give_part_back(choose);
      case 1:
        draining_ = !draining_;
        return;
      case 2:
        return move_away_and_back();
    }
  }

  template <class Choose>
  void give_part_back(Choose&& choose)
  {
    if (live_.empty()) { return; }
    auto& block     = live_[choose(live_.size())];
    auto const part = choose(block.bytes / detail::heap_granule) * detail::heap_granule;
    if (part == 0) { return; }
    insert({block.begin, part});
    block = {block.begin + part, block.bytes - part};
  }

  /// Records a range that was taken. Returns the size of the range that it was cut from.
  std::size_t took(detail::address_range range, std::uint64_t epoch)
  {
    auto const whole = model_.remove(range);
    require(whole.epoch == epoch, "epoch of the range that was cut");
    live_.push_back(range);
    return whole.bytes;
  }

  /// Returns a size that is certainly in a larger bin than `bytes`.
  [[nodiscard]] static std::size_t next_bin(std::size_t bytes) { return bytes + bytes / 32 + detail::heap_granule; }

  void take(std::size_t bytes)
  {
    auto const best   = model_.best_fit(next_bin(bytes));
    auto const result = set_.take(bytes);
    if (!result) { return require(best == 0, "finds any range that is not of nearly the same size"); }
    auto const whole = took({result.begin, bytes}, result.epoch);
    require(best == 0 || whole < next_bin(best), "cuts no range that is much larger than need be");
  }

  void take_back(std::size_t bytes)
  {
    auto const best   = model_.best_fit(next_bin(bytes));
    auto const result = set_.take_back(bytes);
    if (!result) { return require(best == 0, "finds any range that is not of nearly the same size"); }
    require(model_.are_an_end({result.begin, bytes}), "cuts the end of a range");
    auto const whole = took({result.begin, bytes}, result.epoch);
    require(best == 0 || whole < next_bin(best), "cuts no range that is much larger than need be");
  }

  void take_highest(std::size_t bytes)
  {
    auto const highest = model_.highest_fit(bytes);
    auto const result  = set_.take_highest(bytes);
    require(static_cast<bool>(result) == (highest.bytes != 0), "finds a range if there is one");
    if (!result) { return; }
    // Those in its bin are looked at, too, and may be smaller by a 32nd.
    bool const few = model_.count_of(bytes - detail::min(bytes, bytes / 32 + detail::heap_granule)) <= 16;
    require(!few || result.begin + bytes == highest.end(), "of few ranges, takes the end of the highest that fits");
    require(model_.are_an_end({result.begin, bytes}), "takes the end of a range");
    static_cast<void>(took({result.begin, bytes}, result.epoch));
  }

  void take_good(std::size_t bytes)
  {
    auto const best = model_.best_fit(bytes);
    auto const good = set_.good_fit(bytes);
    require(best == 0 ? good == 0 : good >= best, "knows of a range if there is one");
    require(good == best || set_.count() > 64, "looks at all of a few ranges");
    auto const result = set_.take_good(bytes);
    require(static_cast<bool>(result) == (good != 0), "takes what it knows of");
    if (!result) { return; }
    require(took({result.begin, bytes}, result.epoch) == good, "from the range that it knows of");
  }

  template <class Choose>
  void take_exact(Choose&& choose)
  {
    auto const granule = choose(block_count_ * block_bytes_ / detail::heap_granule);
    detail::address_range const wanted{first_address + granule * detail::heap_granule, choose_bytes(choose)};
    bool const possible = model_.holds(wanted);
    auto const result   = set_.take_exact(wanted);
    require(possible == static_cast<bool>(result), "takes these addresses if all are in one range");
    if (!result) { return; }
    require(result.begin == wanted.begin, "these addresses and no others");
    static_cast<void>(took(wanted, result.epoch));
  }

  void take_up_to(std::size_t most)
  {
    auto const largest = model_.largest();
    auto const result  = set_.take_up_to(most);
    require(result.range.bytes == std::min(largest, most), "as much as there is in one range");
    if (!result) { return; }
    require(took(result.range, result.epoch) == largest, "from the largest range");
  }

  void move_away_and_back()
  {
    detail::range_set other;
    require(other.try_reserve(set_.count()), "host memory");
    auto const before = set_.count();
    auto const part   = before / 2;
    require(set_.move_to(other, &list_, part) == (before == part), "moves a part");
    require(other.count() == part && set_.count() == before - part && set_.validate(&list_), "has moved a part");
    require(set_.total_bytes() + other.total_bytes() == model_.total_bytes(), "has lost nothing");
    if (clock_ % 2 == 0 && set_.try_reserve(before)) {
      other.take_all_of(set_, &list_);
    } else {
      require(set_.move_to(other, &list_), "moves the rest");
    }
    require(set_.empty() && set_.total_bytes() == 0 && set_.validate(&list_), "empty after all has moved");
    require(other.validate(&list_) && model_.matches(other), "has what the model has");
    reserve();  // take_all_of() swapped the memory of the sets, and finish() reserves none
    other.move_to(set_, &list_);
  }

  std::size_t block_count_;
  std::size_t block_bytes_;
  std::vector<std::uintptr_t> seams_;
  detail::seam_list list_{seams_.data(), seams_.size()};
  shadow_ranges model_;
  detail::range_set set_;
  std::vector<detail::address_range> live_;
  std::uint64_t clock_{};
  bool draining_{};  // whether it frees more than it takes
};

}  // namespace rmm::test
