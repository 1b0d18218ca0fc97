// SPDX-License-Identifier: Apache-2.0
#include <tools/trace/exports.hpp>
#include <tools/trace/json_writer.hpp>
#include <tools/trace/lifetimes.hpp>

#include <rmm/detail/base/utf8.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rmm::tools {

namespace {

using rmm::recorded::kind;
using rmm::recorded::no_stack;
using rmm::recorded::recorded_file;
using rmm::recorded::recorded_trace;

[[nodiscard]] std::string name_of_frame(recorded_trace const& trace, std::uint64_t address)
{
  auto const known = trace.frame_names.find(address);
  return known != trace.frame_names.end() ? known->second : hexadecimal(address);
}

[[nodiscard]] int device_of(recorded_trace const& trace, std::size_t event)
{
  return trace.places[trace.events[event].place].device;
}

/// Writes a pickle of protocol 4. Repeated texts and stacks refer to their first occurrence.
class pickle_writer {
 public:
  explicit pickle_writer(std::ostream& out) : out_{out} { out_.write("\x80\x04", 2); }

  void finish() { op('.'); }
  void begin_list()
  {
    op(']');
    op('(');
  }
  void end_list() { op('e'); }
  void begin_dict()
  {
    op('}');
    op('(');
  }
  void end_dict() { op('u'); }
  void begin_tuple() { op('('); }
  void end_tuple() { op('t'); }
  void value(bool is) { op(is ? '\x88' : '\x89'); }

  void value(std::uint64_t number)
  {
    if (number < 0x100) {
      op('K');
      bytes(number, 1);
    } else if (number < 0x10000) {
      op('M');
      bytes(number, 2);
    } else if (number < 0x8000'0000U) {
      op('J');
      bytes(number, 4);
    } else {
      std::size_t length = 5;  // for a signed number
      while (length < 9 && number >> (8 * length - 1) != 0) { ++length; }
      op('\x8A');
      bytes(length, 1);
      bytes(number, std::min<std::size_t>(length, 8));
      if (length == 9) { bytes(0, 1); }
    }
  }

  /// Writes a text as UTF-8, because readers refuse other bytes.
  void value(std::string_view given)
  {
    auto const text  = rmm::detail::valid_utf8(given);
    auto const known = texts_.find(text);
    if (known != texts_.end()) { return recall(known->second); }
    if (text.size() < 0x100) {
      op('\x8C');
      bytes(text.size(), 1);
    } else {
      op('X');
      bytes(text.size(), 4);
    }
    out_.write(text.data(), static_cast<std::streamsize>(text.size()));
    texts_.emplace(text, remember());
  }
  void value(char const* text) { value(std::string_view{text}); }

  template <class Value>
  void member(char const* name, Value what)
  {
    value(name);
    value(what);
  }

  /// Numbers the last value, so that later ones can refer to it.
  std::uint64_t remember()
  {
    op('\x94');
    return remembered_++;
  }
  void recall(std::uint64_t number)
  {
    op(number < 0x100 ? 'h' : 'j');
    bytes(number, number < 0x100 ? 1 : 4);
  }

 private:
  void op(char operation) { out_.put(operation); }
  void bytes(std::uint64_t number, std::size_t count)
  {
    for (std::size_t i = 0; i < count; ++i) { out_.put(static_cast<char>(number >> (8 * i) & 0xFFU)); }
  }

  std::ostream& out_;
  std::unordered_map<std::string, std::uint64_t> texts_;
  std::uint64_t remembered_{0};
};

/// A writer of a snapshot.
class torch_exporter {
 public:
  torch_exporter(recorded_file const& file, std::ostream& out) : trace_{file.trace}, lifetimes_{file.trace}, out_{out}
  {
    for (std::size_t i = 0; i < trace_.events.size(); ++i) { devices_ = std::max(devices_, device_of(trace_, i) + 1); }
    for (int device = 0; device < devices_; ++device) {
      regions_.push_back(regions_of(file, lifetimes_, device, most_regions));
    }
  }

  void run()
  {
    out_.begin_dict();
    out_.value("segments");
    out_.begin_list();
    for (int device = 0; device < devices_; ++device) { write_segments(device); }
    out_.end_list();
    out_.value("device_traces");
    out_.begin_list();
    for (int device = 0; device < devices_; ++device) {
      out_.begin_list();
      write_history(device);
      out_.end_list();
    }
    out_.end_list();
    out_.value("allocator_settings");
    out_.begin_dict();
    out_.end_dict();
    out_.value("external_annotations");
    out_.begin_list();
    out_.end_list();
    out_.end_dict();
    out_.finish();
  }

 private:
  static constexpr std::size_t most_regions = 100'000;

  [[nodiscard]] std::uint64_t time_us(std::size_t event) const
  {
    return (trace_.header.wall_time_ns + trace_.events[event].time_ns) / 1000;
  }

  void write_frames(std::uint32_t stack)
  {
    out_.value("frames");
    auto const known = stacks_.find(stack);
    if (known != stacks_.end()) { return out_.recall(known->second); }
    out_.begin_list();
    if (stack != no_stack) {
      for (auto const address : trace_.stacks[stack]) { write_frame(name_of_frame(trace_, address)); }
    }
    out_.end_list();
    stacks_.emplace(stack, out_.remember());
  }

  /// Writes a frame named `name at file:line`, or `name` alone.
  void write_frame(std::string_view name)
  {
    std::string_view file{"??"};
    std::uint64_t line = 0;
    auto const at      = name.rfind(" at ");
    auto const colon   = name.rfind(':');
    bool const is_line = at != std::string_view::npos && colon != std::string_view::npos && colon > at &&
                         colon + 1 < name.size() && name.size() - colon <= 10 &&
                         name.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
    if (is_line) {
      for (auto const digit : name.substr(colon + 1)) { line = 10 * line + static_cast<std::uint64_t>(digit - '0'); }
      file = name.substr(at + 4, colon - at - 4);
      name = name.substr(0, at);
    }
    out_.begin_dict();
    out_.member("filename", file);
    out_.member("line", line);
    out_.member("name", name);
    out_.end_dict();
  }

  void write_entry(
    char const* action, std::size_t event, std::uint64_t address, std::uint64_t bytes, std::uint32_t stack)
  {
    out_.begin_dict();
    out_.member("action", action);
    out_.member("addr", address);
    out_.member("size", bytes);
    out_.member("stream", trace_.places[trace_.events[event].place].stream);
    out_.member("time_us", time_us(event));
    out_.member("category", "unknown");
    write_frames(stack);
    out_.end_dict();
  }

  void write_free(std::size_t event, lifetime const& each)
  {
    write_entry("free_requested", event, each.address, each.bytes, no_stack);
    write_entry("free_completed", event, each.address, each.bytes, no_stack);
  }

  void write_history(int device)
  {
    std::vector<std::pair<std::uint32_t, region const*>> changes;  // beginnings and ends of regions, by event
    for (auto const& each : regions_[static_cast<std::size_t>(device)]) {
      changes.emplace_back(each.begin_event, &each);
      if (each.end_event != none) { changes.emplace_back(each.end_event, &each); }
    }
    std::sort(changes.begin(), changes.end());
    auto next = changes.begin();
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      auto const& event = trace_.events[i];
      for (; next != changes.end() && next->first <= i; ++next) {
        auto const& where   = *next->second;
        bool const is_begin = next->first == where.begin_event;
        write_entry(is_begin ? "segment_alloc" : "segment_free", i, where.begin, where.end - where.begin, no_stack);
      }
      if (device_of(trace_, i) != device) { continue; }
      auto const number = lifetimes_.of_event(i);
      if (event.what == kind::allocate_failure) {
        out_.begin_dict();
        out_.member("action", "oom");
        out_.member("device_free", std::uint64_t{0});
        out_.member("size", event.bytes);
        out_.member("stream", trace_.places[event.place].stream);
        out_.member("time_us", time_us(i));
        write_frames(event.stack);
        out_.end_dict();
      } else if (number != none && event.what == kind::allocate) {
        auto const replaced = lifetimes_.replaced_by(i);
        if (replaced != none) { write_free(i, lifetimes_.all()[replaced]); }
        write_entry("alloc", i, event.address, event.bytes, event.stack);
      } else if (number != none) {
        write_free(i, lifetimes_.all()[number]);
      }
    }
  }

  void write_block(std::uint64_t address, std::uint64_t bytes, bool is_live, std::uint32_t stack)
  {
    out_.begin_dict();
    out_.member("address", address);
    out_.member("size", bytes);
    out_.member("requested_size", is_live ? bytes : 0);
    out_.member("state", is_live ? "active_allocated" : "inactive");
    write_frames(stack);
    out_.end_dict();
  }

  struct live_block {
    std::uint64_t begin;  ///< addresses
    std::uint64_t end;
    std::uint32_t stack;
  };

  /// Returns the live allocations in the region, beginning with `next`, as blocks. If allocations overlap, because
  /// frees are missing in the trace, the first one keeps the bytes: the viewer expects blocks that fill their segment.
  template <class Iterator>
  [[nodiscard]] std::vector<live_block> blocks_in(region const& whole, Iterator& next, Iterator end) const
  {
    std::vector<live_block> result;
    auto at = whole.begin;
    for (; next != end && (*next)->address < whole.end; ++next) {
      auto const& each = **next;
      auto const begin = std::max(at, each.address);
      auto const stop  = each.address + std::min(each.bytes, whole.end - each.address);
      if (stop <= begin) { continue; }
      result.push_back({begin, stop, trace_.events[each.begin].stack});
      at = stop;
    }
    return result;
  }

  /// Writes the regions at the end of the trace, completely divided into blocks.
  void write_segments(int device)
  {
    std::vector<lifetime const*> live;
    for (auto const& each : lifetimes_.all()) {
      if (each.end == none && device_of(trace_, each.begin) == device) { live.push_back(&each); }
    }
    std::sort(live.begin(), live.end(), [](auto const* lhs, auto const* rhs) { return lhs->address < rhs->address; });
    auto next = live.begin();
    for (auto const& each : regions_[static_cast<std::size_t>(device)]) {
      if (each.end_event != none) { continue; }
      while (next != live.end() && (*next)->address < each.begin) { ++next; }
      auto const blocks = blocks_in(each, next, live.end());
      std::uint64_t taken{};
      for (auto const& block : blocks) { taken += block.end - block.begin; }
      out_.begin_dict();
      out_.member("device", static_cast<std::uint64_t>(device));
      out_.member("address", each.begin);
      out_.member("total_size", each.end - each.begin);
      for (auto const* name : {"allocated_size", "active_size", "requested_size"}) { out_.member(name, taken); }
      out_.member("stream", std::uint64_t{0});
      out_.member("segment_type", "large");
      out_.value("segment_pool_id");
      out_.begin_tuple();
      out_.value(std::uint64_t{0});
      out_.value(std::uint64_t{0});
      out_.end_tuple();
      out_.member("is_expandable", false);
      write_frames(no_stack);
      out_.value("blocks");
      out_.begin_list();
      auto at = each.begin;
      for (auto const& block : blocks) {
        if (block.begin > at) { write_block(at, block.begin - at, false, no_stack); }
        write_block(block.begin, block.end - block.begin, true, block.stack);
        at = block.end;
      }
      if (at < each.end) { write_block(at, each.end - at, false, no_stack); }
      out_.end_list();
      out_.end_dict();
    }
  }

  recorded_trace const& trace_;
  lifetimes lifetimes_;
  pickle_writer out_;
  int devices_{1};
  std::vector<std::vector<region>> regions_;  // of each device
  std::unordered_map<std::uint32_t, std::uint64_t> stacks_;
};

}  // namespace

void export_torch(recorded_file const& file, std::ostream& out) { torch_exporter{file, out}.run(); }

void export_perfetto(recorded_file const& file, std::ostream& out)
{
  auto const& trace = file.trace;
  lifetimes const all{trace};
  std::map<int, std::uint64_t> live;
  out << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  bool is_first    = true;
  auto const write = [&](json_writer const& event) {
    out << (std::exchange(is_first, false) ? "\n" : ",\n") << event.text();
  };
  auto const begin = [](std::string_view name, char const* phase, int device, std::uint64_t thread) {
    json_writer event;
    event.begin_object().member("name", name).member("ph", phase).member("pid", device).member("tid", thread);
    return event;
  };
  auto const us = [](std::uint64_t ns) {
    char text[32];
    std::snprintf(text, sizeof text, "%llu.%03u", static_cast<unsigned long long>(ns / 1000), unsigned(ns % 1000));
    return std::string{text};
  };
  auto const at = [&](json_writer& event, std::size_t number) -> json_writer& {
    return event.key("ts").number(us(trace.events[number].time_ns));
  };
  auto const write_slice = [&](lifetime const& each, std::uint32_t number, bool is_begin, std::size_t event_number) {
    auto const& made  = trace.events[each.begin];
    auto const& place = trace.places[made.place];
    auto const& tag   = trace.tags[place.tag];
    auto event =
      begin(tag.empty() ? "allocation" : tag, is_begin ? "b" : "e", place.device, trace.threads[made.thread]);
    at(event, event_number).member("cat", "allocation").member("id", number);
    if (is_begin) {
      event.key("args").begin_object().member("bytes", made.bytes).member("address", hexadecimal(made.address));
      event.member("stream", hexadecimal(place.stream));
      if (made.stack != no_stack) {
        event.array("stack", trace.stacks[made.stack], [&](auto frame) { return name_of_frame(trace, frame); });
      }
      event.end_object();
    }
    write(event.end_object());
  };
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    auto const& event = trace.events[i];
    auto const device = device_of(trace, i);
    auto const number = all.of_event(i);
    auto const entry  = live.try_emplace(device, 0);
    if (entry.second) {
      auto name = begin("process_name", "M", device, 0);
      name.key("args").begin_object().member("name", "device " + std::to_string(device)).end_object();
      write(name.end_object());
    }
    auto& now = entry.first->second;
    if (event.what == kind::allocate_failure) {
      auto failure = begin("allocation failed", "i", device, trace.threads[event.thread]);
      at(failure, i).member("s", "p").key("args").begin_object().member("bytes", event.bytes).end_object();
      write(failure.end_object());
      continue;
    }
    if (number == none) { continue; }
    auto const& each = all.all()[number];
    if (event.what == kind::allocate) {
      auto const replaced = all.replaced_by(i);
      if (replaced != none) {
        write_slice(all.all()[replaced], replaced, false, i);
        now -= all.all()[replaced].bytes;
      }
      now += each.bytes;
    } else {
      now -= each.bytes;
    }
    write_slice(each, number, event.what == kind::allocate, i);
    auto counter = begin("live bytes", "C", device, 0);
    at(counter, i).key("args").begin_object().member("bytes", now).end_object();
    write(counter.end_object());
  }
  out << "\n]}\n";
}

void export_csv(recorded_file const& file, std::ostream& out)
{
  auto const& trace = file.trace;
  bool const has_devices =
    std::any_of(trace.places.begin(), trace.places.end(), [](auto const& each) { return each.device != 0; });
  out << "Thread,Time,Action,Pointer,Size,Stream" << (has_devices ? ",Device\n" : "\n");
  for (auto const& event : trace.events) {
    auto const& place       = trace.places[event.place];
    auto const microseconds = (trace.header.wall_time_ns + event.time_ns) / 1000;
    auto const seconds      = microseconds / 1'000'000 % 86'400;
    auto const* const name  = event.what == kind::allocate ? "allocate"
                              : event.what == kind::free   ? "free"
                                                           : "allocate failure";
    char line[200];
    std::snprintf(line,
                  sizeof line,
                  "%llu,%02u:%02u:%02u.%06u,%s,0x%llx,%llu,0x%llx",
                  static_cast<unsigned long long>(trace.threads[event.thread]),
                  unsigned(seconds / 3600),
                  unsigned(seconds / 60 % 60),
                  unsigned(seconds % 60),
                  unsigned(microseconds % 1'000'000),
                  name,
                  static_cast<unsigned long long>(event.address),
                  static_cast<unsigned long long>(event.bytes),
                  static_cast<unsigned long long>(place.stream));
    out << line;
    if (has_devices) { out << ',' << place.device; }
    out << '\n';
  }
}

}  // namespace rmm::tools
