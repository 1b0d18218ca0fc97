// SPDX-License-Identifier: Apache-2.0
#include <tools/recorded/pickle.hpp>
#include <tools/recorded/recorded_file.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace rmm::recorded {

namespace {

using type = pickle::type;

/// An event in the history of one device.
struct entry {
  enum class what : unsigned char { allocate, free, free_later, failure, segment, segment_end };

  what act{};
  std::uint64_t address{};
  std::uint64_t bytes{};
  std::uint64_t stream{};
  std::uint64_t time_us{};
  std::uint32_t stack{no_stack};
};

/// Bytes of ranges, by their first address. Neighbours are kept separate.
using range_map = std::map<std::uint64_t, std::uint64_t>;

class snapshot_reader {
 public:
  snapshot_reader(std::string_view content, std::string const& name) : name_{name}, pickle_{read(content, name)} {}

  recorded_file run()
  {
    auto const root     = pickle_.root();
    auto const segments = root.is(type::list) ? root : pickle_.find(root, "segments");
    auto const traces   = pickle_.find(root, "device_traces");
    if (!segments.is(type::list)) { fail("the snapshot has no list 'segments'"); }
    result_.format = "pytorch snapshot";
    result_.trace.threads.push_back(0);

    std::map<int, std::vector<pickle::value>> segments_by_device;
    for (auto const each : pickle_.list(segments)) {
      if (!each.is(type::dict)) { fail("a segment is not a dict"); }
      auto const device = number(each, "device", 0);
      if (device >= most_devices) { fail("a segment has an impossible device number"); }
      segments_by_device[static_cast<int>(device)].push_back(each);
    }
    std::map<int, std::vector<entry>> histories;
    if (traces.is(type::list)) {
      if (pickle_.list(traces).size() > most_devices) { fail("the snapshot has too many devices"); }
      int device = 0;
      for (auto const each : pickle_.list(traces)) { histories[device++] = history_of(each); }
    } else if (!traces.is(type::none)) {
      fail("'device_traces' is not a list");
    }
    for (auto const& [device, unused] : segments_by_device) { histories.try_emplace(device); }
    for (auto& [device, history] : histories) { complete(history, segments_by_device[device]); }
    merge(histories);
    return std::move(result_);
  }

 private:
  [[nodiscard]] static pickle read(std::string_view content, std::string const& name)
  {
    try {
      return pickle::read(content);
    } catch (bad_pickle const& error) {
      std::string const message{error.what()};
      throw bad_trace{name, error.offset(), message.substr(message.find(": ") + 2)};
    }
  }

  [[noreturn]] void fail(std::string const& problem) const { throw bad_trace{name_, 0, problem}; }

  [[nodiscard]] std::uint64_t number(pickle::value in,
                                     std::string_view key,
                                     std::optional<std::uint64_t> otherwise) const
  {
    auto const found = pickle_.find(in, key);
    if (found.is(type::integer)) { return found.bits(); }
    if (found.is(type::negative)) { fail(std::string{key}.append(" is negative")); }
    if (!found.is(type::none) || !otherwise) { fail(std::string{key}.append(" is not a number")); }
    return *otherwise;
  }

  [[nodiscard]] std::string_view text(pickle::value in, std::string_view key) const
  {
    auto const found = pickle_.find(in, key);
    return found.is(type::text) ? pickle_.text(found) : std::string_view{};
  }

  [[nodiscard]] std::vector<entry> history_of(pickle::value list)
  {
    if (!list.is(type::list)) { fail("the history of a device is not a list"); }
    std::vector<entry> history;
    history.reserve(pickle_.list(list).size());
    for (auto const each : pickle_.list(list)) {
      if (!each.is(type::dict)) { fail("an event is not a dict"); }
      auto const act = act_of(text(each, "action"));
      if (!act) { continue; }
      entry made;
      made.act     = *act;
      made.address = made.act == entry::what::failure ? 0 : number(each, "addr", std::nullopt);
      made.bytes   = number(each, "size", std::nullopt);
      made.stream  = number(each, "stream", 0);
      made.time_us = number(each, "time_us", 0);
      made.stack   = stack_of(pickle_.find(each, "frames"));
      history.push_back(made);
    }
    return history;
  }

  [[nodiscard]] static std::optional<entry::what> act_of(std::string_view name)
  {
    using what = entry::what;
    if (name == "alloc") { return what::allocate; }
    if (name == "free_requested" || name == "free") { return what::free; }
    if (name == "free_completed") { return what::free_later; }
    if (name == "oom") { return what::failure; }
    if (name == "segment_alloc" || name == "segment_map") { return what::segment; }
    if (name == "segment_free" || name == "segment_unmap") { return what::segment_end; }
    return std::nullopt;
  }

  /// Returns the stack of some frames. Positions of names in the trace stand for addresses.
  [[nodiscard]] std::uint32_t stack_of(pickle::value frames)
  {
    if (!frames.is(type::list) || pickle_.list(frames).empty()) { return no_stack; }
    auto const [known, is_new] = stacks_of_lists_.try_emplace(frames.bits(), no_stack);
    if (!is_new) { return known->second; }
    std::vector<std::uint64_t> addresses;
    for (auto const frame : pickle_.list(frames)) {
      auto const [address, is_new_frame] =
        frames_of_dicts_.try_emplace(frame.is(type::dict) ? frame.bits() : no_dict, 0);
      if (is_new_frame) { address->second = frame_of(frame); }
      addresses.push_back(address->second);
    }
    auto& stacks       = result_.trace.stacks;
    auto const entered = stacks_.try_emplace(addresses, static_cast<std::uint32_t>(stacks.size()));
    if (entered.second) { stacks.push_back(std::move(addresses)); }
    known->second = entered.first->second;
    return known->second;
  }

  [[nodiscard]] std::uint64_t frame_of(pickle::value frame)
  {
    auto name       = std::string{text(frame, "name")};
    auto const file = text(frame, "filename");
    auto const line = pickle_.find(frame, "line");
    if (!file.empty() && file != "??") {
      name += (name.empty() ? "" : " at ") + std::string{file};
      if (line.is(type::integer) && line.bits() != 0) { name.append(":").append(std::to_string(line.bits())); }
    }
    if (name.empty()) { name.assign(1, '?'); }
    auto const entered = frames_.try_emplace(name, frames_.size() + 1);
    if (entered.second) { result_.trace.frame_names.emplace(entered.first->second, name); }
    return entered.first->second;
  }

  /// Puts allocations from before the history first, as events.
  void complete(std::vector<entry>& history, std::vector<pickle::value> const& segments)
  {
    std::vector<entry> before;
    std::unordered_map<std::uint64_t, std::uint64_t> live;  // bytes by address
    range_map mapped;
    auto const start = history.empty() ? 0 : history.front().time_us;
    auto const begin = [&](entry each, entry::what act) {
      each.act     = act;
      each.time_us = start;
      each.stack   = act == entry::what::allocate ? each.stack : no_stack;
      before.push_back(each);
    };
    std::unordered_map<std::uint64_t, std::size_t> freed;  // by address: frees that were requested and not completed
    std::vector<entry> kept;
    kept.reserve(history.size());
    for (auto each : history) {
      switch (each.act) {
        case entry::what::allocate:
          live[each.address] = each.bytes;
          freed.erase(each.address);
          break;
        case entry::what::free:
        case entry::what::free_later: {
          if (each.act == entry::what::free_later && freed.erase(each.address) != 0) { continue; }
          if (each.act == entry::what::free) { freed[each.address] = each.bytes; }
          each.act         = entry::what::free;
          auto const found = live.find(each.address);
          if (found == live.end()) {
            begin(each, entry::what::allocate);
            before.back().stack = no_stack;  // the free's stack is not the allocation's
          } else {
            each.bytes = found->second;
            live.erase(found);
          }
          break;
        }
        case entry::what::segment:
          mapped[each.address] = each.bytes;
          break;
        case entry::what::segment_end: {
          auto const parts = cut(mapped, each.address, each.bytes);
          for (auto const& [address, bytes] : parts) {
            entry missing   = each;
            missing.address = address;
            missing.bytes   = bytes;
            begin(missing, entry::what::segment);
          }
          break;
        }
        case entry::what::failure:
          break;
      }
      kept.push_back(each);
    }
    for (auto const segment : segments) {
      entry whole;
      whole.address = number(segment, "address", std::nullopt);
      whole.bytes   = number(segment, "total_size", std::nullopt);
      whole.stream  = number(segment, "stream", 0);
      for (auto const& [address, bytes] : cut(mapped, whole.address, whole.bytes)) {  // ranges that the history lacks
        entry missing   = whole;
        missing.address = address;
        missing.bytes   = bytes;
        begin(missing, entry::what::segment);
      }
      auto const blocks = pickle_.find(segment, "blocks");
      if (!blocks.is(type::list)) { continue; }
      auto address = whole.address;
      for (auto const block : pickle_.list(blocks)) {
        if (!block.is(type::dict)) { fail("a block is not a dict"); }
        auto const size = number(block, "size", std::nullopt);
        entry held      = whole;
        held.address    = number(block, "address", address);
        held.bytes      = number(block, "requested_size", size);
        held.stack      = stack_of(pickle_.find(block, "frames"));
        address         = held.address + size;
        if (text(block, "state") != "active_allocated" || live.count(held.address) != 0) { continue; }
        begin(held, entry::what::allocate);
      }
    }
    history.clear();
    for (bool const of_segments : {true, false}) {  // segments come first
      std::copy_if(before.begin(), before.end(), std::back_inserter(history), [&](entry const& each) {
        return (each.act == entry::what::segment) == of_segments;
      });
    }
    history.insert(history.end(), kept.begin(), kept.end());
  }

  /// Removes a range. Returns its parts that were not in the set.
  [[nodiscard]] static std::vector<std::pair<std::uint64_t, std::uint64_t>> cut(range_map& ranges,
                                                                                std::uint64_t begin,
                                                                                std::uint64_t bytes)
  {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> missing;
    auto const end = begin + std::min(bytes, std::numeric_limits<std::uint64_t>::max() - begin);
    auto at        = begin;
    auto next      = ranges.lower_bound(begin);
    if (next != ranges.begin() && std::prev(next)->first + std::prev(next)->second > begin) { --next; }
    while (next != ranges.end() && next->first < end) {
      auto const [first, size] = *next;
      next                     = ranges.erase(next);
      if (first < begin) { ranges[first] = begin - first; }
      if (first > at) { missing.emplace_back(at, first - at); }
      at = std::max(at, first + size);
      if (first + size > end) { ranges[end] = first + size - end; }
    }
    if (at < end) { missing.emplace_back(at, end - at); }
    return missing;
  }

  [[nodiscard]] std::uint32_t place_of(int device, std::uint64_t stream)
  {
    auto& places               = result_.trace.places;
    auto const [found, is_new] = places_.try_emplace({device, stream}, static_cast<std::uint32_t>(places.size()));
    if (is_new) { places.push_back({device, 0, stream, 0}); }
    return found->second;
  }

  void merge(std::map<int, std::vector<entry>> const& histories)
  {
    struct source {
      int device;
      std::vector<entry> const* entries;
      std::size_t next;
    };
    std::vector<source> sources;
    std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
    for (auto const& [device, history] : histories) {
      if (history.empty()) { continue; }
      sources.push_back({device, &history, 0});
      first = std::min(first, history.front().time_us);
    }
    std::map<std::pair<int, std::uint64_t>, std::size_t> open;  // regions, by device and address
    auto& trace      = result_.trace;
    std::uint64_t ns = 0;
    for (;;) {
      source* earliest = nullptr;
      for (auto& each : sources) {
        bool const has_more = each.next < each.entries->size();
        if (has_more && (earliest == nullptr ||
                         (*each.entries)[each.next].time_us < (*earliest->entries)[earliest->next].time_us)) {
          earliest = &each;
        }
      }
      if (earliest == nullptr) { break; }
      auto const& each = (*earliest->entries)[earliest->next++];
      // If the history has no times, each event takes a microsecond. Times do not go back.
      ns =
        first == 0 ? trace.events.size() * 1000 : std::max(ns, (each.time_us - std::min(first, each.time_us)) * 1000);
      if (each.act == entry::what::segment) {
        open[{earliest->device, each.address}] = result_.regions.size();
        result_.regions.push_back(
          {earliest->device, each.address, each.bytes, trace.events.size(), std::numeric_limits<std::size_t>::max()});
      } else if (each.act == entry::what::segment_end) {
        end_regions(earliest->device, each.address, each.bytes, open);
      } else {
        auto const what = each.act == entry::what::allocate  ? kind::allocate
                          : each.act == entry::what::failure ? kind::allocate_failure
                                                             : kind::free;
        trace.events.push_back(
          {ns, each.address, each.bytes, 0, place_of(earliest->device, each.stream), each.stack, what});
      }
    }
    for (auto& each : result_.regions) { each.end = std::min(each.end, trace.events.size()); }
    trace.header.wall_time_ns = sources.empty() ? 0 : first * 1000;
  }

  /// Ends regions in a range. Their parts outside of the range become new regions.
  void end_regions(int device,
                   std::uint64_t begin,
                   std::uint64_t bytes,
                   std::map<std::pair<int, std::uint64_t>, std::size_t>& open)
  {
    auto const now = result_.trace.events.size();
    auto const end = begin + std::min(bytes, std::numeric_limits<std::uint64_t>::max() - begin);
    auto next      = open.lower_bound({device, begin});
    if (next != open.begin()) {
      auto const before  = std::prev(next);
      auto const& region = result_.regions[before->second];
      if (before->first.first == device && region.address + region.bytes > begin) { next = before; }
    }
    auto const open_anew = [&](std::uint64_t from, std::uint64_t size) {
      open[{device, from}] = result_.regions.size();
      result_.regions.push_back({device, from, size, now, std::numeric_limits<std::size_t>::max()});
    };
    while (next != open.end() && next->first.first == device && next->first.second < end) {
      auto& region    = result_.regions[next->second];
      region.end      = now;
      auto const from = region.address;
      auto const to   = region.address + region.bytes;
      next            = open.erase(next);
      if (from < begin) { open_anew(from, begin - from); }
      if (to > end) { open_anew(end, to - end); }
    }
  }

  static constexpr std::uint64_t no_dict = std::numeric_limits<std::uint64_t>::max();

  std::string const& name_;
  pickle pickle_;
  recorded_file result_{};
  std::unordered_map<std::uint64_t, std::uint32_t> stacks_of_lists_;
  std::unordered_map<std::uint64_t, std::uint64_t> frames_of_dicts_;
  std::unordered_map<std::string, std::uint64_t> frames_;
  std::map<std::vector<std::uint64_t>, std::uint32_t> stacks_;
  std::map<std::pair<int, std::uint64_t>, std::uint32_t> places_;
};

}  // namespace

recorded_file read_torch_snapshot(std::string_view content, std::string const& name)
{
  return snapshot_reader{content, name}.run();
}

}  // namespace rmm::recorded
