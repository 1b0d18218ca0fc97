// SPDX-License-Identifier: Apache-2.0
#include <tools/trace/json_writer.hpp>
#include <tools/trace/report.hpp>

#include <rmm/version_config.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace rmm::tools {

namespace {

using rmm::recorded::kind;
using rmm::recorded::no_stack;
using rmm::recorded::recorded_trace;

constexpr std::size_t most_groups   = 12;  // that have columns of their own in a timeline
constexpr std::size_t most_blocks   = 40'000;
constexpr std::size_t most_rows     = 200;
constexpr std::size_t most_failures = 100;
constexpr std::size_t most_holders  = 10;
constexpr std::size_t most_instants = 256;
constexpr std::size_t most_cells    = 2048;
constexpr std::size_t most_regions  = 1024;
constexpr std::size_t rate_steps    = 512;
constexpr std::array<std::uint64_t, 9> class_bounds{
  512, 4096, 32768, 262'144, 1'048'576, 8'388'608, 67'108'864, 268'435'456, 1'073'741'824};

[[nodiscard]] std::size_t class_of(std::uint64_t bytes)
{
  return static_cast<std::size_t>(std::lower_bound(class_bounds.begin(), class_bounds.end(), bytes) -
                                  class_bounds.begin());
}

/// Returns the exponent of the smallest power of two that is not less, between the first and the last exponent.
constexpr unsigned first_exponent = 8;
[[nodiscard]] unsigned exponent_of(std::uint64_t bytes)
{
  unsigned exponent = first_exponent;
  while (exponent < 62 && (std::uint64_t{1} << exponent) < bytes) { ++exponent; }
  return exponent;
}

/// The stacks that are shown, renumbered in the order of their first use.
class stack_table {
 public:
  explicit stack_table(recorded_trace const& trace) : trace_{trace} {}

  /// Returns the number of a stack; -1 for no_stack.
  [[nodiscard]] std::int64_t number_of(std::uint32_t stack)
  {
    if (stack == no_stack) { return -1; }
    auto const [found, is_new] = numbers_.try_emplace(stack, stacks_.size());
    if (is_new) {
      auto& frames = stacks_.emplace_back();
      for (auto const address : trace_.stacks[stack]) { frames.push_back(frame_of(address)); }
    }
    return static_cast<std::int64_t>(found->second);
  }

  void write(json_writer& out) const
  {
    out.array("frames", frames_);
    out.key("stacks").begin_array();
    for (auto const& each : stacks_) {
      out.begin_array();
      for (auto const frame : each) { out.value(frame); }
      out.end_array();
    }
    out.end_array();
  }

 private:
  [[nodiscard]] std::size_t frame_of(std::uint64_t address)
  {
    auto const known = trace_.frame_names.find(address);
    auto const name  = known != trace_.frame_names.end() ? known->second : hexadecimal(address);
    auto const entry = frame_numbers_.try_emplace(name, frames_.size());
    if (entry.second) { frames_.push_back(name); }
    return entry.first->second;
  }

  recorded_trace const& trace_;
  std::unordered_map<std::uint32_t, std::size_t> numbers_;
  std::vector<std::vector<std::size_t>> stacks_;
  std::unordered_map<std::string, std::size_t> frame_numbers_;
  std::vector<std::string> frames_;
};

/// The live bytes by a property of allocations.
struct group_totals {
  explicit group_totals(std::size_t groups) : live(groups), count(groups), peak(groups) {}

  void add(std::size_t group, std::uint64_t bytes)
  {
    live[group] += bytes;
    ++count[group];
    peak[group] = std::max(peak[group], live[group]);
  }
  void remove(std::size_t group, std::uint64_t bytes)
  {
    live[group] -= bytes;
    --count[group];
  }

  std::vector<std::uint64_t> live;
  std::vector<std::uint64_t> count;
  std::vector<std::uint64_t> peak;
};

/// Memory that the program held for some time.
struct shown_region {
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t from_ns;
  std::int64_t to_ns;
};

}  // namespace

/// Writes the part of the document about one device.
class report::device {
 public:
  device(report const& whole, device_events const& part)
    : whole_{whole}, part_{part}, trace_{whole.file_.trace}, end_ns_{trace_.events[part.events.back()].time_ns}
  {}

  void write(json_writer& out, stack_table& stacks, std::size_t index)
  {
    find_reserved(index);
    sweep();
    find_regions();
    choose_blocks();
    out.begin_object().member("device", part_.device);
    write_summary(out);
    if (reserved_.empty()) {
      out.null_member("reserved_from");
    } else {
      out.member("reserved_from", reserved_from_);
    }
    write_timeline(out);
    write_rate(out);
    write_sizes(out);
    write_map(out, stacks);
    write_rows(out, stacks, "largest", largest());
    write_rows(out, stacks, "longest", longest());
    write_leaks(out, stacks);
    write_failures(out, stacks);
    out.end_object();
  }

 private:
  using event = rmm::recorded::event;

  /// The timeline by groups: a number for each group and point.
  struct group_columns {
    std::vector<std::int64_t> of;       // group of each column; -1: all others
    std::vector<std::uint32_t> column;  // column of each group
    std::vector<std::vector<std::uint64_t>> bytes;
  };

  struct failure {
    std::uint32_t event;
    std::uint64_t live;
    std::vector<std::tuple<std::size_t, std::uint64_t, std::uint64_t>> holders;
  };

  [[nodiscard]] std::uint64_t ns_of(std::uint32_t number) const
  {
    return trace_.events[number].time_ns - whole_.begin_ns_;
  }
  [[nodiscard]] std::int64_t end_ns_of(lifetime const& each) const
  {
    return each.end == none ? -1 : static_cast<std::int64_t>(ns_of(each.end));
  }
  [[nodiscard]] std::uint64_t duration_of(lifetime const& each) const
  {
    return (each.end == none ? end_ns_ : trace_.events[each.end].time_ns) - trace_.events[each.begin].time_ns;
  }
  [[nodiscard]] std::uint32_t tag_of(std::uint32_t number) const
  {
    return trace_.places[trace_.events[number].place].tag;
  }
  [[nodiscard]] std::uint32_t stream_of(std::uint32_t number) const
  {
    return whole_.stream_of_place_[trace_.events[number].place];
  }

  /// Calls `add` or `remove` for each lifetime that begins or ends, and `after` after each event.
  template <class Add, class Remove, class After>
  void for_each_event(Add const& add, Remove const& remove, After const& after) const
  {
    auto const& all = whole_.lifetimes_.all();
    for (auto const number : part_.events) {
      auto const& each = trace_.events[number];
      auto const of    = whole_.lifetimes_.of_event(number);
      if (of != none) {
        if (each.what == kind::allocate) {
          auto const replaced = whole_.lifetimes_.replaced_by(number);
          if (replaced != none) { remove(all[replaced]); }
          add(all[of]);
        } else {
          remove(all[of]);
        }
      }
      after(number, each);
    }
  }

  /// Returns the reserved bytes at each point.
  void find_reserved(std::size_t index)
  {
    if (!whole_.file_.regions.empty()) {
      reserved_from_ = "recorded";
      std::vector<std::pair<std::size_t, std::int64_t>> changes;
      for (auto const& each : whole_.file_.regions) {
        if (each.device != part_.device) { continue; }
        changes.emplace_back(each.begin, static_cast<std::int64_t>(each.bytes));
        changes.emplace_back(each.end, -static_cast<std::int64_t>(each.bytes));
      }
      std::sort(changes.begin(), changes.end());
      auto next        = changes.begin();
      std::int64_t now = 0;
      std::int64_t top = 0;
      std::size_t at   = 0;
      for (auto const point : part_.points) {
        for (; next != changes.end() && next->first <= point; ++next) {
          now += next->second;
          bool const is_last_of_event = std::next(next) == changes.end() || std::next(next)->first != next->first;
          if (is_last_of_event && now > top) {
            top = now;
            at  = next->first;
          }
        }
        reserved_.push_back(static_cast<std::uint64_t>(std::max<std::int64_t>(now, 0)));
      }
      peak_reserved_    = static_cast<std::uint64_t>(top);
      peak_reserved_ns_ = trace_.events[std::min(at, trace_.events.size() - 1)].time_ns - whole_.begin_ns_;
      return;
    }
    if (whole_.replays_.empty() || index >= whole_.replays_.front().reserved.size()) { return; }
    auto const& replay   = whole_.replays_.front();
    auto const& measured = replay.reserved[index];
    auto const moments   = whole_.moments();
    if (measured.size() != moments.size() || !replay.peak_reserved) { return; }
    reserved_from_ = replay.configuration;
    auto moment    = moments.begin();
    for (auto const point : part_.points) {
      moment = std::lower_bound(moment, moments.end(), std::size_t{point});
      reserved_.push_back(measured[static_cast<std::size_t>(moment - moments.begin())]);
    }
    auto const peak   = std::max_element(reserved_.begin(), reserved_.end());
    peak_reserved_    = *peak;
    peak_reserved_ns_ = ns_of(part_.points[static_cast<std::size_t>(peak - reserved_.begin())]);
  }

  /// Passes over the events twice: for the peaks, then for the columns of the largest groups.
  void sweep()
  {
    group_totals tags{trace_.tags.size()};
    group_totals streams{whole_.streams_.size()};
    group_totals classes{class_bounds.size() + 1};
    std::uint64_t live  = 0;
    std::uint64_t count = 0;
    auto const add      = [&](lifetime const& each) {
      live += each.bytes;
      ++count;
      tags.add(tag_of(each.begin), each.bytes);
      streams.add(stream_of(each.begin), each.bytes);
      classes.add(class_of(each.bytes), each.bytes);
    };
    auto const remove = [&](lifetime const& each) {
      live -= each.bytes;
      --count;
      tags.remove(tag_of(each.begin), each.bytes);
      streams.remove(stream_of(each.begin), each.bytes);
      classes.remove(class_of(each.bytes), each.bytes);
    };
    std::vector<bool> threads(trace_.threads.size());
    std::vector<bool> streams_seen(whole_.streams_.size());
    rate_step_       = std::max<std::uint64_t>(1, (end_ns_ - whole_.begin_ns_) / rate_steps + 1);
    auto const steps = static_cast<std::size_t>((end_ns_ - whole_.begin_ns_) / rate_step_ + 1);
    for (auto* each : {&rate_allocations_, &rate_frees_, &rate_bytes_}) { each->assign(steps, 0); }
    for_each_event(add, remove, [&](std::uint32_t number, event const& each) {
      threads[each.thread]            = true;
      streams_seen[stream_of(number)] = true;
      auto const step                 = static_cast<std::size_t>((each.time_ns - whole_.begin_ns_) / rate_step_);
      if (whole_.lifetimes_.is_left_out(number, each)) { return; }
      if (each.what == kind::allocate) {
        ++allocations_;
        allocated_ += each.bytes;
        ++rate_allocations_[step];
        rate_bytes_[step] += each.bytes;
        auto const exponent = exponent_of(each.bytes);
        ++size_counts_[exponent];
        size_bytes_[exponent] += each.bytes;
      } else if (each.what == kind::free) {
        ++frees_;
        ++rate_frees_[step];
      } else {
        ++failure_count_;
        if (failures_.size() < most_failures) { failures_.push_back(failure_now(number, live, tags)); }
      }
      if (live > peak_live_) {
        peak_live_  = live;
        peak_count_ = count;
        peak_event_ = number;
      }
    });
    threads_           = static_cast<std::size_t>(std::count(threads.begin(), threads.end(), true));
    streams_           = static_cast<std::size_t>(std::count(streams_seen.begin(), streams_seen.end(), true));
    live_at_end_       = live;
    live_at_end_count_ = count;

    tag_columns_    = largest_groups(tags.peak);
    stream_columns_ = largest_groups(streams.peak);
    class_columns_  = present_classes(classes.peak);
    std::vector<std::uint64_t> tag_now(tag_columns_.of.size());
    std::vector<std::uint64_t> stream_now(stream_columns_.of.size());
    std::vector<std::uint64_t> class_now(class_columns_.of.size());
    auto const change = [&](lifetime const& each, std::uint64_t by) {  // modulo 2^64
      tag_now[tag_columns_.column[tag_of(each.begin)]] += by;
      stream_now[stream_columns_.column[stream_of(each.begin)]] += by;
      class_now[class_columns_.column[class_of(each.bytes)]] += by;
      live += by;
      size_live_[exponent_of(each.bytes)] += by;
    };
    live       = 0;
    auto point = part_.points.begin();
    for_each_event([&](lifetime const& each) { change(each, each.bytes); },
                   [&](lifetime const& each) { change(each, 0 - each.bytes); },
                   [&](std::uint32_t number, event const&) {
                     if (number == peak_event_) { size_live_at_peak_ = size_live_; }
                     if (point == part_.points.end() || *point != number) { return; }
                     ++point;
                     live_.push_back(live);
                     note(tag_columns_, tag_now);
                     note(stream_columns_, stream_now);
                     note(class_columns_, class_now);
                   });
  }

  static void note(group_columns& columns, std::vector<std::uint64_t> const& now)
  {
    for (std::size_t i = 0; i < now.size(); ++i) { columns.bytes[i].push_back(now[i]); }
  }

  /// Returns the largest groups, with all others as one group.
  [[nodiscard]] static group_columns largest_groups(std::vector<std::uint64_t> const& peaks)
  {
    std::vector<std::uint32_t> order(peaks.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](auto lhs, auto rhs) {
      return peaks[lhs] != peaks[rhs] ? peaks[lhs] > peaks[rhs] : lhs < rhs;
    });
    while (!order.empty() && peaks[order.back()] == 0) { order.pop_back(); }
    group_columns result;
    result.column.assign(peaks.size(), 0);
    bool const has_rest = order.size() > most_groups;
    auto const kept     = has_rest ? most_groups - 1 : order.size();
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      result.column[order[i]] = std::min(i, static_cast<std::uint32_t>(kept));
      if (i < kept) { result.of.push_back(order[i]); }
    }
    if (has_rest || result.of.empty()) { result.of.push_back(-1); }
    result.bytes.resize(result.of.size());
    return result;
  }

  /// Returns the groups that are not empty, in order of size.
  [[nodiscard]] static group_columns present_classes(std::vector<std::uint64_t> const& peaks)
  {
    group_columns result;
    result.column.assign(peaks.size(), 0);
    for (std::size_t i = 0; i < peaks.size(); ++i) {
      if (peaks[i] == 0) { continue; }
      result.column[i] = static_cast<std::uint32_t>(result.of.size());
      result.of.push_back(i < class_bounds.size() ? static_cast<std::int64_t>(class_bounds[i]) : -1);
    }
    if (result.of.empty()) { result.of.push_back(-1); }
    result.bytes.resize(result.of.size());
    return result;
  }

  [[nodiscard]] static failure failure_now(std::uint32_t number, std::uint64_t live, group_totals const& tags)
  {
    failure result{number, live, {}};
    std::vector<std::size_t> order(tags.live.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    auto const shown = std::min(most_holders, order.size());
    std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(), [&](auto lhs, auto rhs) {
        return tags.live[lhs] > tags.live[rhs];
      });
    for (std::size_t i = 0; i < shown; ++i) {
      auto const tag = order[i];
      if (tags.live[tag] != 0) { result.holders.emplace_back(tag, tags.live[tag], tags.count[tag]); }
    }
    return result;
  }

  [[nodiscard]] bool is_of_device(lifetime const& each) const
  {
    return trace_.places[trace_.events[each.begin].place].device == part_.device;
  }

  void find_regions()
  {
    for (auto const& each : regions_of(whole_.file_, whole_.lifetimes_, part_.device, most_regions)) {
      bool const is_there = each.end_event == none;
      regions_.push_back({each.begin,
                          each.end,
                          ns_of(each.begin_event),
                          is_there ? -1 : static_cast<std::int64_t>(ns_of(each.end_event))});
    }
    base_ = regions_.empty() ? 0 : regions_.front().begin;
  }

  /// Chooses the allocations with the largest products of bytes and time, in order of their beginnings.
  void choose_blocks()
  {
    auto const& all = whole_.lifetimes_.all();
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      if (is_of_device(all[i])) { order.push_back(i); }
    }
    if (order.size() > most_blocks) {
      auto const weight = [&](std::uint32_t number) {
        auto const& each = all[number];
        return static_cast<double>(each.bytes) * static_cast<double>(duration_of(each) + 1);
      };
      std::nth_element(
        order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most_blocks), order.end(), [&](auto lhs, auto rhs) {
          return weight(lhs) > weight(rhs);
        });
      small_.assign(order.begin() + static_cast<std::ptrdiff_t>(most_blocks), order.end());
      order.resize(most_blocks);
      std::sort(order.begin(), order.end());
    }
    blocks_ = std::move(order);
  }

  [[nodiscard]] std::vector<std::uint32_t> first_rows(std::vector<std::uint32_t> order,
                                                      std::uint64_t (device::*value)(lifetime const&) const) const
  {
    auto const& all    = whole_.lifetimes_.all();
    auto const shown   = std::min(most_rows, order.size());
    auto const is_more = [&](std::uint32_t lhs, std::uint32_t rhs) {
      auto const left  = std::make_tuple((this->*value)(all[lhs]), all[lhs].bytes);
      auto const right = std::make_tuple((this->*value)(all[rhs]), all[rhs].bytes);
      return left != right ? left > right : lhs < rhs;
    };
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(), is_more);
    order.resize(shown);
    return order;
  }

  [[nodiscard]] std::uint64_t bytes_of(lifetime const& each) const { return each.bytes; }

  [[nodiscard]] std::vector<std::uint32_t> all_numbers() const
  {
    auto numbers = blocks_;
    numbers.insert(numbers.end(), small_.begin(), small_.end());
    return numbers;
  }
  [[nodiscard]] std::vector<std::uint32_t> largest() const { return first_rows(all_numbers(), &device::bytes_of); }
  [[nodiscard]] std::vector<std::uint32_t> longest() const { return first_rows(all_numbers(), &device::duration_of); }

  void write_summary(json_writer& out) const
  {
    auto const peak_point =
      std::lower_bound(part_.points.begin(), part_.points.end(), peak_event_) - part_.points.begin();
    auto const at_peak  = static_cast<std::size_t>(peak_point);
    bool const is_known = at_peak < reserved_.size();
    out.key("summary").begin_object();
    out.member("events", part_.events.size()).member("allocations", allocations_).member("frees", frees_);
    out.member("failures", failure_count_).member("duration", end_ns_ - whole_.begin_ns_);
    out.member("threads", threads_).member("streams", streams_);
    out.member("peak_live", peak_live_);
    out.member("peak_live_time", ns_of(peak_event_)).member("peak_live_count", peak_count_);
    if (is_known) {
      auto const reserved = reserved_[at_peak];
      out.member("peak_reserved", peak_reserved_).member("peak_reserved_time", peak_reserved_ns_);
      out.member("reserved_at_peak", reserved);
      out.key("fragmentation_at_peak");
      if (reserved == 0) {
        out.null();
      } else {
        out.value(static_cast<double>(reserved - std::min(reserved, peak_live_)) / static_cast<double>(reserved));
      }
    } else {
      for (auto const* each : {"peak_reserved", "peak_reserved_time", "reserved_at_peak", "fragmentation_at_peak"}) {
        out.null_member(each);
      }
    }
    out.member("allocated", allocated_).member("live_at_end", live_at_end_);
    out.member("live_at_end_count", live_at_end_count_).member("small", small_.size()).end_object();
  }

  static void write_groups(json_writer& out, char const* name, group_columns const& columns)
  {
    out.key(name).begin_object().array("of", columns.of).key("bytes").begin_array();
    for (auto const& column : columns.bytes) {
      out.begin_array();
      for (auto const each : column) { out.value(each); }
      out.end_array();
    }
    out.end_array().end_object();
  }

  void write_timeline(json_writer& out) const
  {
    out.key("timeline").begin_object();
    out.array("t", part_.points, [&](auto number) { return ns_of(number); });
    out.array("event", part_.points).array("live", live_);
    if (reserved_.empty()) {
      out.null_member("reserved");
    } else {
      out.array("reserved", reserved_);
    }
    write_groups(out, "tag", tag_columns_);
    write_groups(out, "class", class_columns_);
    write_groups(out, "stream", stream_columns_);
    out.end_object();
  }

  void write_rate(json_writer& out) const
  {
    out.key("rate").begin_object().member("begin", 0).member("step", rate_step_);
    out.array("allocations", rate_allocations_).array("frees", rate_frees_).array("bytes", rate_bytes_).end_object();
  }

  void write_sizes(json_writer& out) const
  {
    auto first = std::size_t{first_exponent};
    auto end   = size_counts_.size();
    while (end > first && size_counts_[end - 1] == 0) { --end; }
    while (first < end && size_counts_[first] == 0) { ++first; }
    std::vector<std::size_t> shown(end - first);
    std::iota(shown.begin(), shown.end(), first);
    out.key("sizes").begin_object();
    out.array("bound", shown, [](auto exponent) { return std::uint64_t{1} << exponent; });
    out.array("count", shown, [&](auto exponent) { return size_counts_[exponent]; });
    out.array("bytes", shown, [&](auto exponent) { return size_bytes_[exponent]; });
    out.array("live", shown, [&](auto exponent) { return size_live_at_peak_[exponent]; }).end_object();
  }

  /// Writes the columns of a table of allocations.
  void write_columns(json_writer& out, stack_table& stacks, std::vector<std::uint32_t> const& numbers) const
  {
    auto const& all  = whole_.lifetimes_.all();
    auto const write = [&](char const* name, auto const& value) {
      out.array(name, numbers, [&](auto number) { return value(all[number]); });
    };
    write("at", [&](lifetime const& each) { return each.address - base_; });
    write("size", [](lifetime const& each) { return each.bytes; });
    write("from", [&](lifetime const& each) { return ns_of(each.begin); });
    write("to", [&](lifetime const& each) { return end_ns_of(each); });
    write("tag", [&](lifetime const& each) { return tag_of(each.begin); });
    write("stream", [&](lifetime const& each) { return stream_of(each.begin); });
    write("thread", [&](lifetime const& each) { return trace_.events[each.begin].thread; });
    write("stack", [&](lifetime const& each) { return stacks.number_of(trace_.events[each.begin].stack); });
  }

  void write_rows(json_writer& out,
                  stack_table& stacks,
                  char const* name,
                  std::vector<std::uint32_t> const& numbers) const
  {
    out.key(name).begin_object();
    write_columns(out, stacks, numbers);
    out.end_object();
  }

  void write_map(json_writer& out, stack_table& stacks) const
  {
    out.key("map").begin_object().member("base", hexadecimal(base_));
    out.key("regions").begin_object();
    out.array("at", regions_, [&](shown_region const& each) { return each.begin - base_; });
    out.array("size", regions_, [](shown_region const& each) { return each.end - each.begin; });
    out.array("from", regions_, [](shown_region const& each) { return each.from_ns; });
    out.array("to", regions_, [](shown_region const& each) { return each.to_ns; }).end_object();
    write_rows(out, stacks, "blocks", blocks_);
    if (small_.empty()) {
      out.null_member("small");
    } else {
      write_small(out);
    }
    out.end_object();
  }

  /// Writes the bytes of unlisted allocations in each cell of the regions, at some instants.
  void write_small(json_writer& out) const
  {
    std::uint64_t cell = 256;
    std::vector<std::size_t> cells(regions_.size());
    for (std::size_t sum = most_cells + 1; sum > most_cells; cell *= 2) {
      sum = 0;
      for (std::size_t i = 0; i < regions_.size(); ++i) {
        auto const bytes = regions_[i].end - regions_[i].begin;
        cells[i]         = static_cast<std::size_t>(bytes / cell + (bytes % cell != 0 ? 1 : 0));
        sum += cells[i];
      }
      if (sum <= most_cells) { break; }
    }
    std::vector<std::size_t> first_cell(regions_.size() + 1);
    std::partial_sum(cells.begin(), cells.end(), first_cell.begin() + 1);
    auto const width = first_cell.back();

    // The instants are points of the timeline.
    std::vector<std::uint32_t> instants;
    auto const& points = part_.points;
    auto const shown   = std::min(most_instants, points.size());
    for (std::size_t i = 0; i < shown; ++i) {
      instants.push_back(points[shown == 1 ? 0 : i * (points.size() - 1) / (shown - 1)]);
    }
    // A cell's bytes at an instant are the sum of all changes up to it.
    std::vector<std::int64_t> changes((instants.size() + 1) * width);
    for (auto const number : small_) {
      auto const& each = whole_.lifetimes_.all()[number];
      auto const first = std::lower_bound(instants.begin(), instants.end(), each.begin) - instants.begin();
      auto const last  = std::lower_bound(instants.begin(), instants.end(), each.end) - instants.begin();
      if (first >= last) { continue; }
      auto region_at =
        std::upper_bound(regions_.begin(), regions_.end(), each.address, [](auto address, auto const& in) {
          return address < in.begin;
        });
      auto at        = each.address;
      auto const end = each.address + each.bytes;
      if (region_at != regions_.begin()) { --region_at; }
      for (; region_at != regions_.end() && region_at->begin < end;
           ++region_at) {  // neighbours may be regions of their own
        auto const of_region = first_cell[static_cast<std::size_t>(region_at - regions_.begin())];
        at                   = std::max(at, region_at->begin);
        auto const stop      = std::min(end, region_at->end);
        while (at < stop) {
          auto const index = (at - region_at->begin) / cell;
          auto const part  = std::min(stop, region_at->begin + (index + 1) * cell) - at;
          auto const where = of_region + static_cast<std::size_t>(index);
          changes[static_cast<std::size_t>(first) * width + where] += static_cast<std::int64_t>(part);
          changes[static_cast<std::size_t>(last) * width + where] -= static_cast<std::int64_t>(part);
          at += part;
        }
      }
    }
    out.key("small").begin_object();
    out.array("time", instants, [&](auto number) { return ns_of(number); });
    out.array("cells", cells).member("size", cell).key("fill").begin_array();
    std::vector<std::int64_t> now(width);
    std::string row(width, '0');
    for (std::size_t k = 0; k < instants.size(); ++k) {
      for (std::size_t i = 0; i < width; ++i) {
        now[i] += changes[k * width + i];
        auto const taken = static_cast<std::uint64_t>(std::max<std::int64_t>(now[i], 0));
        auto const share = static_cast<double>(std::min(taken, cell)) / static_cast<double>(cell);
        row[i] = static_cast<char>('0' + std::min(63, static_cast<int>(share * 63 + (taken != 0 ? 0.999 : 0))));
      }
      out.value(row);
    }
    out.end_array().end_object();
  }

  void write_leaks(json_writer& out, stack_table& stacks) const
  {
    struct group {
      std::uint32_t tag{};
      std::uint32_t stack{};
      std::uint64_t bytes{};
      std::uint64_t count{};
      std::uint64_t first{};
      std::uint64_t last{};
    };
    std::map<std::pair<std::uint32_t, std::uint32_t>, group> found;
    for (auto const& each : whole_.lifetimes_.all()) {
      if (each.end != none || !is_of_device(each)) { continue; }
      auto const tag   = tag_of(each.begin);
      auto const stack = trace_.events[each.begin].stack;
      auto& entry      = found.try_emplace({tag, stack}, group{tag, stack, 0, 0, ns_of(each.begin), 0}).first->second;
      entry.bytes += each.bytes;
      ++entry.count;
      entry.last = ns_of(each.begin);
    }
    std::vector<group> groups;
    for (auto const& [key, each] : found) { groups.push_back(each); }
    std::sort(groups.begin(), groups.end(), [](auto const& lhs, auto const& rhs) {
      return std::tie(rhs.bytes, lhs.tag, lhs.stack) < std::tie(lhs.bytes, rhs.tag, rhs.stack);
    });
    if (groups.size() > most_rows) { groups.resize(most_rows); }
    out.key("leaks").begin_object().member("bytes", live_at_end_).member("count", live_at_end_count_);
    out.key("groups").begin_object();
    out.array("bytes", groups, [](group const& each) { return each.bytes; });
    out.array("count", groups, [](group const& each) { return each.count; });
    out.array("tag", groups, [](group const& each) { return each.tag; });
    out.array("stack", groups, [&](group const& each) { return stacks.number_of(each.stack); });
    out.array("first", groups, [](group const& each) { return each.first; });
    out.array("last", groups, [](group const& each) { return each.last; });
    out.end_object().end_object();
  }

  void write_failures(json_writer& out, stack_table& stacks) const
  {
    out.key("failures").begin_array();
    for (auto const& each : failures_) {
      auto const& at = trace_.events[each.event];
      out.begin_object().member("t", ns_of(each.event)).member("event", each.event).member("bytes", at.bytes);
      out.member("tag", tag_of(each.event)).member("stream", stream_of(each.event)).member("thread", at.thread);
      out.member("stack", stacks.number_of(at.stack)).member("live", each.live);
      auto const point = std::upper_bound(part_.points.begin(), part_.points.end(), each.event) - part_.points.begin();
      if (reserved_.empty() || point == 0) {
        out.null_member("reserved");
      } else {
        out.member("reserved", reserved_[static_cast<std::size_t>(point - 1)]);
      }
      out.null_member("free_largest").key("holders").begin_array();
      for (auto const& [tag, bytes, count] : each.holders) {
        out.begin_array().value(tag).value(bytes).value(count).end_array();
      }
      out.end_array();
      auto const report = trace_.reports.find({at.thread, at.time_ns});
      if (report == trace_.reports.end()) {
        out.null_member("report").end_object();
      } else {
        out.member("report", report->second).end_object();
      }
    }
    out.end_array();
  }

  report const& whole_;
  device_events const& part_;
  recorded_trace const& trace_;
  std::uint64_t end_ns_;  // the time of the last event

  std::string reserved_from_;
  std::vector<std::uint64_t> reserved_;  // at the points; empty: unknown
  std::uint64_t peak_reserved_{};
  std::uint64_t peak_reserved_ns_{};

  std::size_t allocations_{0};
  std::size_t frees_{0};
  std::size_t failure_count_{0};
  std::size_t threads_{0};
  std::size_t streams_{0};
  std::uint64_t allocated_{0};
  std::uint64_t peak_live_{0};
  std::uint64_t peak_count_{0};
  std::uint32_t peak_event_{part_.events.front()};
  std::uint64_t live_at_end_{0};
  std::uint64_t live_at_end_count_{0};
  std::vector<std::uint64_t> live_;  // at the points
  group_columns tag_columns_;
  group_columns stream_columns_;
  group_columns class_columns_;
  std::uint64_t rate_step_{1};
  std::vector<std::uint64_t> rate_allocations_;
  std::vector<std::uint64_t> rate_frees_;
  std::vector<std::uint64_t> rate_bytes_;
  std::array<std::uint64_t, 63> size_counts_{};
  std::array<std::uint64_t, 63> size_bytes_{};
  std::array<std::uint64_t, 63> size_live_{};
  std::array<std::uint64_t, 63> size_live_at_peak_{};
  std::vector<failure> failures_;
  std::uint64_t base_{0};
  std::vector<shown_region> regions_;  // by their beginnings
  std::vector<std::uint32_t> blocks_;  // numbers of lifetimes
  std::vector<std::uint32_t> small_;
};

report::report(rmm::recorded::recorded_file const& file, std::string name, std::uint64_t bytes)
  : file_{file}, name_{std::move(name)}, bytes_{bytes}, lifetimes_{file.trace}
{
  auto const& trace = file.trace;
  begin_ns_         = trace.events.empty() ? 0 : trace.events.front().time_ns;
  std::map<std::tuple<std::int32_t, std::uint64_t, std::uint64_t>, std::uint32_t> streams;
  for (auto const& place : trace.places) {
    auto const entry =
      streams.try_emplace({place.device, place.stream, place.stream_id}, static_cast<std::uint32_t>(streams_.size()));
    if (entry.second) {
      auto text = place.stream == 0   ? std::string{"default"}
                  : place.stream == 1 ? std::string{"legacy default"}
                  : place.stream == 2 ? std::string{"per-thread default"}
                                      : hexadecimal(place.stream);
      if (place.stream > 2 && place.stream_id != 0) { text += " (" + std::to_string(place.stream_id) + ")"; }
      streams_.push_back(std::move(text));
    }
    stream_of_place_.push_back(entry.first->second);
  }
  std::map<int, device_events> devices;
  for (std::uint32_t i = 0; i < trace.events.size(); ++i) {
    auto& part  = devices[trace.places[trace.events[i].place].device];
    part.device = trace.places[trace.events[i].place].device;
    part.events.push_back(i);
  }
  for (auto& entry : devices) {
    entry.second.points = points_of(entry.second.events);
    devices_.push_back(std::move(entry.second));
  }
}

std::vector<std::uint32_t> report::points_of(std::vector<std::uint32_t> const& events) const
{
  if (events.size() <= most_points) { return events; }
  // A slice ends after a number of events and after a time, so that both busy and quiet times are shown.
  constexpr std::size_t slices = most_points / 4 - 2;
  auto const& trace            = file_.trace;
  auto const& all              = lifetimes_.all();
  auto const duration          = static_cast<double>(trace.events[events.back()].time_ns - begin_ns_ + 1);
  auto const slice_of          = [&](std::size_t i) {
    auto const time = static_cast<double>(trace.events[events[i]].time_ns - begin_ns_);
    return std::make_pair(i * slices / events.size(), static_cast<std::size_t>(time / duration * slices));
  };
  std::vector<std::uint32_t> points{events.front()};
  std::uint64_t live = 0;
  auto slice         = slice_of(0);
  std::pair<std::uint64_t, std::uint32_t> least{};  // least live bytes of the slice, and their first event
  std::pair<std::uint64_t, std::uint32_t> greatest{};
  bool is_first        = true;
  auto const end_slice = [&] {
    points.push_back(std::min(least.second, greatest.second));
    points.push_back(std::max(least.second, greatest.second));
  };
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (slice_of(i) != slice) {
      end_slice();
      slice    = slice_of(i);
      is_first = true;
    }
    auto const event = events[i];
    auto const of    = lifetimes_.of_event(event);
    if (of != none) {
      auto const replaced = lifetimes_.replaced_by(event);
      live -= replaced == none ? 0 : all[replaced].bytes;
      live += trace.events[event].what == kind::allocate ? all[of].bytes : 0 - all[of].bytes;
    }
    if (is_first || live < least.first) { least = {live, event}; }
    if (is_first || live > greatest.first) { greatest = {live, event}; }
    is_first = false;
  }
  end_slice();
  points.push_back(events.back());
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

std::vector<std::size_t> report::moments() const
{
  std::vector<std::size_t> result;
  for (auto const& each : devices_) { result.insert(result.end(), each.points.begin(), each.points.end()); }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

namespace {

void write_replay(json_writer& out,
                  replay_figures const& replay,
                  std::vector<std::uint64_t> const& reserved,
                  std::uint64_t begin_ns,
                  bool is_recorded)
{
  auto const or_null = [&](char const* name, auto const& value) {
    if (value) {
      out.member(name, *value);
    } else {
      out.null_member(name);
    }
  };
  out.begin_object();
  out.member("name", replay.configuration.substr(0, replay.configuration.find(',')));
  out.member("configuration", replay.configuration).member("recorded", is_recorded);
  out.member("completed", !replay.first_failure.has_value()).member("failures", replay.first_failure ? 1 : 0);
  if (replay.first_failure) {
    auto const& failure = *replay.first_failure;
    auto const time     = failure.time_ns - std::min(begin_ns, failure.time_ns);
    out.key("first_failure").begin_object().member("event", failure.event).member("t", time);
    out.member("bytes", failure.bytes).member("text", failure.text).end_object();
  } else {
    out.null_member("first_failure");
  }
  out.member("peak_live", replay.peak_live);
  or_null("peak_reserved", replay.peak_reserved);
  or_null("fragmentation", replay.fragmentation());
  or_null("reserved_at_end", replay.reserved_at_end);
  if (is_recorded) {
    out.null_member("upstream_calls")
      .null_member("seconds")
      .member("note", "what the program did when it was recorded");
  } else {
    out.member("upstream_calls", replay.upstream_calls).member("seconds", replay.seconds);
    out.member("note", replay.peak_reserved || replay.first_failure ? "" : "takes no device memory");
  }
  if (reserved.empty()) {
    out.null_member("reserved");
  } else {
    out.array("reserved", reserved);
  }
  out.end_object();
}

/// Returns the figures of the program's own allocator on all devices together, if the file has them.
[[nodiscard]] replay_figures recorded_figures(rmm::recorded::recorded_file const& file, lifetimes const& of_file)
{
  std::vector<std::pair<std::size_t, std::int64_t>> changes;
  for (auto const& each : file.regions) {
    changes.emplace_back(each.begin, static_cast<std::int64_t>(each.bytes));
    changes.emplace_back(each.end, -static_cast<std::int64_t>(each.bytes));
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t reserved = 0;
  std::int64_t peak     = 0;
  replay_figures result;
  result.configuration = "recorded";
  for (auto const& [event, by] : changes) {
    if (event == file.trace.events.size()) { break; }  // regions that are left end here
    reserved += by;
    peak = std::max(peak, reserved);
  }
  result.peak_reserved   = static_cast<std::uint64_t>(peak);
  result.reserved_at_end = static_cast<std::uint64_t>(std::max<std::int64_t>(reserved, 0));
  std::uint64_t live     = 0;
  auto const& all        = of_file.all();
  for (std::size_t i = 0; i < file.trace.events.size(); ++i) {
    auto const of = of_file.of_event(i);
    if (of == none) { continue; }
    auto const replaced = of_file.replaced_by(i);
    live -= replaced == none ? 0 : all[replaced].bytes;
    live += file.trace.events[i].what == kind::allocate ? all[of].bytes : 0 - all[of].bytes;
    result.peak_live = std::max(result.peak_live, live);
  }
  return result;
}

[[nodiscard]] std::string utc(std::uint64_t ns)
{
  auto const seconds = static_cast<std::time_t>(ns / 1'000'000'000U);
  std::tm fields{};
  ::gmtime_r(&seconds, &fields);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields);
  return text;
}

}  // namespace

std::string report::document() const
{
  auto const& trace = file_.trace;
  json_writer out;
  out.begin_object().member("schema", 1);
  out.member("generator",
             "rmm-trace " + std::to_string(RMM_VERSION_MAJOR) + "." + std::to_string(RMM_VERSION_MINOR) + "." +
               std::to_string(RMM_VERSION_PATCH));
  out.key("trace").begin_object().member("file", name_).member("format", file_.format);
  if (trace.header.process != 0) {
    out.member("process", trace.header.process);
  } else {
    out.null_member("process");
  }
  if (trace.header.wall_time_ns != 0) {
    out.member("begin", utc(trace.header.wall_time_ns + begin_ns_));
  } else {
    out.null_member("begin");
  }
  out.member("bytes", bytes_).member("lost", trace.lost).member("unknown_frees", lifetimes_.unknown_frees());
  if (auto const damage = recorded::damage_of(trace); !damage.empty()) {
    out.member("damaged", damage);
  } else {
    out.null_member("damaged");
  }
  out.end_object();
  out.array("tags", trace.tags).array("streams", streams_).array("threads", trace.threads);

  stack_table stacks{trace};
  out.key("devices").begin_array();
  for (std::size_t i = 0; i < devices_.size(); ++i) { device{*this, devices_[i]}.write(out, stacks, i); }
  out.end_array();
  stacks.write(out);

  out.key("whatif").begin_array();
  auto const points = moments();
  if (!file_.regions.empty()) { write_replay(out, recorded_figures(file_, lifetimes_), {}, begin_ns_, true); }
  for (auto const& replay : replays_) {
    std::vector<std::uint64_t> reserved;  // at the points of the first device's timeline
    if (!devices_.empty() && devices_.size() == 1 && !replay.reserved.empty() && replay.peak_reserved) {
      reserved = replay.reserved.front();
      if (reserved.size() != points.size()) { reserved.clear(); }
    }
    write_replay(out, replay, reserved, begin_ns_, false);
  }
  out.end_array().end_object();
  return out.text();
}

std::string page_of(std::string_view page_template, std::string_view document)
{
  constexpr std::string_view marker{"\nRMM_REPORT_DOCUMENT\n"};
  auto const place = page_template.find(marker);
  if (place == std::string_view::npos) {
    throw std::logic_error{"the template of the page lacks the place for the document"};
  }
  std::string page{page_template.substr(0, place + 1)};
  page += document;
  page += page_template.substr(place + marker.size() - 1);
  return page;
}

}  // namespace rmm::tools
