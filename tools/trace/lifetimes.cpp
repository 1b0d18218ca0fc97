// SPDX-License-Identifier: Apache-2.0
#include <tools/trace/lifetimes.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace rmm::tools {

namespace {

using rmm::recorded::kind;

/// The live allocations: numbers by address. Uses open addressing, because there are millions of changes.
class live_table {
 public:
  live_table() : slots_(1024) {}

  /// Sets a number. Returns the previous one, or `none`.
  std::uint32_t enter(std::uint64_t address, std::uint32_t number)
  {
    if (2 * (size_ + 1) > slots_.size()) { grow(); }
    auto& found       = slots_[place_of(address)];
    auto const before = found.number;
    size_ += before == none ? 1 : 0;
    found = {address, number};
    return before;
  }

  /// Removes a number and returns it, or `none`.
  std::uint32_t take_out(std::uint64_t address)
  {
    auto hole         = place_of(address);
    auto const number = slots_[hole].number;
    if (number == none) { return none; }
    --size_;
    // Moves later entries into the hole if they belong there.
    for (auto next = after(hole); slots_[next].number != none; next = after(next)) {
      auto const wanted = wanted_place(slots_[next].address);
      if (((next - wanted) & (slots_.size() - 1)) >= ((next - hole) & (slots_.size() - 1))) {
        slots_[hole] = slots_[next];
        hole         = next;
      }
    }
    slots_[hole] = {};
    return number;
  }

 private:
  struct slot {
    std::uint64_t address{};
    std::uint32_t number{none};
  };

  [[nodiscard]] std::size_t wanted_place(std::uint64_t address) const
  {
    auto mixed = address * 0x9E3779B97F4A7C15U;
    mixed ^= mixed >> 32U;
    return static_cast<std::size_t>(mixed) & (slots_.size() - 1);
  }
  [[nodiscard]] std::size_t after(std::size_t place) const { return (place + 1) & (slots_.size() - 1); }
  [[nodiscard]] std::size_t place_of(std::uint64_t address) const
  {
    auto place = wanted_place(address);
    while (slots_[place].number != none && slots_[place].address != address) { place = after(place); }
    return place;
  }

  void grow()
  {
    auto const before = std::exchange(slots_, std::vector<slot>(2 * slots_.size()));
    for (auto const& each : before) {
      if (each.number != none) { slots_[place_of(each.address)] = each; }
    }
  }

  std::vector<slot> slots_;  // the size is a power of two; at most half are in use
  std::size_t size_{0};
};

}  // namespace

lifetimes::lifetimes(rmm::recorded::recorded_trace const& trace)
{
  if (trace.events.size() >= none) { throw std::runtime_error{"the trace has too many events"}; }
  of_event_.assign(trace.events.size(), none);
  std::map<std::int32_t, live_table> live;  // by device
  for (std::uint32_t i = 0; i < trace.events.size(); ++i) {
    auto const& event = trace.events[i];
    auto& table       = live[trace.places[event.place].device];
    if (event.what == kind::allocate) {
      if (event.bytes == 0 || event.address == 0) { continue; }
      auto const number = static_cast<std::uint32_t>(all_.size());
      all_.push_back({event.address, event.bytes, i, none});
      of_event_[i]      = number;
      auto const before = table.enter(event.address, number);
      if (before != none) {
        all_[before].end = i;
        replaced_.emplace(i, before);
      }
    } else if (event.what == kind::free && event.address != 0) {
      auto const number = table.take_out(event.address);
      if (number == none) {
        unknown_frees_ += event.bytes == 0 ? 0 : 1;
      } else {
        all_[number].end = i;
        of_event_[i]     = number;
      }
    }
  }
}

namespace {

constexpr std::uint64_t region_gap = std::uint64_t{2} << 20U;  // ranges closer than this are one region

/// Returns ranges of addresses of the device's allocations, with the first event of each.
std::vector<region> touched_regions(rmm::recorded::recorded_trace const& trace, lifetimes const& of_trace, int device)
{
  std::map<std::uint64_t, region> found;  // by first address
  for (auto const& each : of_trace.all()) {
    if (trace.places[trace.events[each.begin].place].device != device) { continue; }
    auto const most = std::numeric_limits<std::uint64_t>::max() - region_gap;
    region made{each.address, 0, each.begin, none};
    made.end = std::max(
      each.address,
      std::min(most,
               each.address + std::min(std::max<std::uint64_t>(each.bytes, 1), most - std::min(most, each.address))));
    auto next = found.upper_bound(made.begin);
    if (next != found.begin() && std::prev(next)->second.end + region_gap >= made.begin) {
      --next;
      if (next->second.end >= made.end) { continue; }
    }
    while (next != found.end() && next->first <= made.end + region_gap) {
      made.begin       = std::min(made.begin, next->first);
      made.end         = std::max(made.end, next->second.end);
      made.begin_event = std::min(made.begin_event, next->second.begin_event);
      next             = found.erase(next);
    }
    found[made.begin] = made;
  }
  std::vector<region> result;
  for (auto const& [begin, each] : found) { result.push_back(each); }
  return result;
}

}  // namespace

std::vector<region> regions_of(rmm::recorded::recorded_file const& file,
                               lifetimes const& of_file,
                               int device,
                               std::size_t most)
{
  std::vector<region> result;
  auto const last = file.trace.events.empty() ? 0 : file.trace.events.size() - 1;
  for (auto const& each : file.regions) {
    if (each.device != device || each.bytes == 0) { continue; }
    auto const end = each.address + std::min(each.bytes, std::numeric_limits<std::uint64_t>::max() - each.address);
    result.push_back({each.address,
                      end,
                      static_cast<std::uint32_t>(std::min(each.begin, last)),
                      each.end > last ? none : static_cast<std::uint32_t>(each.end)});
  }
  std::sort(result.begin(), result.end(), [](region const& lhs, region const& rhs) {
    return std::tie(lhs.begin, lhs.begin_event, lhs.end_event) < std::tie(rhs.begin, rhs.begin_event, rhs.end_event);
  });
  if (!result.empty() && result.size() <= most) { return result; }
  result = touched_regions(file.trace, of_file, device);
  // If there are too many, merges those with the smallest gaps.
  for (auto gap = 2 * region_gap; result.size() > most; gap = gap > (~gap) ? ~std::uint64_t{0} : gap * 2) {
    std::vector<region> merged;
    for (auto const& each : result) {
      if (!merged.empty() && each.begin - merged.back().end <= gap) {
        merged.back().end         = each.end;
        merged.back().begin_event = std::min(merged.back().begin_event, each.begin_event);
      } else {
        merged.push_back(each);
      }
    }
    result = std::move(merged);
  }
  return result;
}

}  // namespace rmm::tools
