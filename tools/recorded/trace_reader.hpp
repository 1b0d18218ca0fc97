// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/trace/format.hpp>

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rmm::recorded {

using rmm::detail::trace::block_header;
using rmm::detail::trace::checksum_of;
using rmm::detail::trace::extra;
using rmm::detail::trace::file_header;
using rmm::detail::trace::kind;
using rmm::detail::trace::largest_payload;
using rmm::detail::trace::most_devices;
using rmm::detail::trace::most_places;
using rmm::detail::trace::place;
using rmm::detail::trace::unfold_sign;

/// Thrown for a file that is not a trace, or is broken. The message names file and offset.
class bad_trace : public std::runtime_error {
 public:
  bad_trace(std::string const& file, std::uint64_t offset, std::string const& problem)
    : std::runtime_error{file + ": at byte " + std::to_string(offset) + ": " + problem}, offset_{offset}
  {}

  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

 private:
  std::uint64_t offset_;
};

/// An event. Data that many events share is a position in a list of the trace.
struct event {
  std::uint64_t time_ns;  ///< since the trace began
  std::uint64_t address;  ///< 0 for a failure
  std::uint64_t bytes;
  std::uint32_t thread;  ///< position in recorded_trace::threads
  std::uint32_t place;   ///< position in recorded_trace::places
  std::uint32_t stack;   ///< position in recorded_trace::stacks, or no_stack
  kind what;
};

inline constexpr std::uint32_t no_stack = std::numeric_limits<std::uint32_t>::max();

/// A trace, in memory. Its events are in the order of their times; at equal times frees come first.
struct recorded_trace {
  file_header header;  ///< of the first file
  std::vector<event> events;
  std::vector<std::uint64_t> threads;
  std::vector<place> places;  ///< their tags are positions in `tags`
  std::vector<std::string> tags{""};
  std::vector<std::vector<std::uint64_t>> stacks;  ///< addresses, innermost first
  std::unordered_map<std::uint64_t, std::string> frame_names;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::string> reports;  ///< of failures, by thread and time
  std::uint64_t bytes{};                                                   ///< size of all files
  std::uint64_t lost{};                                                    ///< events that could not be written
  std::uint64_t missing_files{};            ///< files missing between the first and the last that were read
  std::uint64_t without_time{};             ///< rows of a log whose time could not be read
  std::optional<std::uint64_t> cut_off_at;  ///< offset of an incomplete last block: the program crashed while it wrote
};

/// Reads the files of a trace.
class trace_reader {
 public:
  /// Reads all files of a run by the name of its first file, even if the first ones were deleted; or one later file by
  /// its own name. Throws bad_trace, or std::runtime_error if a file cannot be read.
  [[nodiscard]] static recorded_trace read(std::string const& path)
  {
    trace_reader reader;
    auto const later   = parts_beside(path);
    bool const is_gone = ::access(path.c_str(), F_OK) != 0 && !later.empty();
    auto const first   = is_gone ? path + '.' + std::to_string(later.front()) : path;
    reader.read_content(content_of(first), first);
    if (reader.trace_.header.part == 0 || is_gone) {
      for (auto const part : later) { reader.read_part(path + '.' + std::to_string(part), part); }
    }
    return std::move(reader).finish();
  }

  /// Reads a file's content; messages use `name`.
  [[nodiscard]] static recorded_trace read(std::string_view content, std::string const& name)
  {
    trace_reader reader;
    reader.read_content(content, name);
    return std::move(reader).finish();
  }

  /// Whether a file begins like a trace.
  [[nodiscard]] static bool is_trace(std::string_view content) noexcept
  {
    auto const& magic = file_header::expected_magic;
    return content.substr(0, magic.size()) == std::string_view{magic.data(), magic.size()};
  }

  /// Returns the whole file. Throws std::runtime_error.
  [[nodiscard]] static std::string content_of(std::string const& path)
  {
    struct close_file {
      void operator()(std::FILE* file) const noexcept { std::fclose(file); }
    };
    std::unique_ptr<std::FILE, close_file> const file{std::fopen(path.c_str(), "rb")};
    if (file == nullptr) { throw std::runtime_error(path + ": " + std::strerror(errno)); }
    std::string content;
    std::size_t size = 0;
    do {
      content.resize(size + (std::size_t{1} << 20U) + size / 2);
      size += std::fread(content.data() + size, 1, content.size() - size, file.get());
    } while (size == content.size());
    content.resize(size);
    if (std::ferror(file.get()) != 0) { throw std::runtime_error(path + ": " + std::strerror(errno)); }
    return content;
  }

 private:
  /// The definitions in a block so far.
  struct block_state {
    std::array<std::uint32_t, most_places> places;
    std::map<std::uint32_t, std::uint32_t> tags{{0, 0}};  // the writer's number to the position
    std::uint32_t stack{no_stack};                        // of the next event
    std::string report;                                   // of the next event
  };

  /// A reader of values from some bytes of a file.
  class cursor {
   public:
    cursor(std::string const& file, std::string_view bytes, std::uint64_t offset) noexcept
      : file_{file}, bytes_{bytes}, offset_{offset}
    {}

    [[nodiscard]] bool is_at_end() const noexcept { return bytes_.empty(); }

    [[nodiscard]] std::string_view take(std::size_t count)
    {
      if (count > bytes_.size()) { fail("the block ends within a record"); }
      auto const taken = bytes_.substr(0, count);
      bytes_.remove_prefix(count);
      offset_ += count;
      return taken;
    }

    /// Returns a number of `count` bytes, at most 8.
    [[nodiscard]] std::uint64_t take_number(std::size_t count)
    {
      std::uint64_t number{};
      std::memcpy(&number, take(count).data(), count);
      return number;
    }

    [[noreturn]] void fail(std::string const& problem) const { throw bad_trace(file_, offset_, problem); }

   private:
    std::string const& file_;
    std::string_view bytes_;
    std::uint64_t offset_;  // of bytes_ in the file
  };

  /// Returns the numbers of the files `path.<number>` that exist, in order.
  [[nodiscard]] static std::vector<std::uint32_t> parts_beside(std::string const& path)
  {
    auto const slash  = path.rfind('/');
    auto const folder = slash == std::string::npos ? std::string{"."} : path.substr(0, slash + 1);
    auto const prefix = (slash == std::string::npos ? path : path.substr(slash + 1)) + '.';
    std::vector<std::uint32_t> parts;
    auto const close = [](DIR* open) { ::closedir(open); };
    std::unique_ptr<DIR, decltype(close)> const entries{::opendir(folder.c_str()), close};
    while (auto const* const entry = entries != nullptr ? ::readdir(entries.get()) : nullptr) {
      std::string_view const name{entry->d_name};
      if (name.substr(0, prefix.size()) != prefix || name.size() == prefix.size() || name.size() > prefix.size() + 9) {
        continue;
      }
      auto const digits = name.substr(prefix.size());
      if (digits.find_first_not_of("0123456789") != std::string_view::npos || digits[0] == '0') { continue; }
      parts.push_back(static_cast<std::uint32_t>(std::stoul(std::string{digits})));
    }
    std::sort(parts.begin(), parts.end());
    return parts;
  }

  /// Reads a later file, unless it remained from an earlier run that wrote more files.
  void read_part(std::string const& path, std::uint32_t part)
  {
    auto const content = content_of(path);
    file_header header;
    if (!is_trace(content) || content.size() < sizeof header) { return; }
    std::memcpy(&header, content.data(), sizeof header);
    if (header.run == trace_.header.run && header.part == part && part > newest_part_) {
      trace_.missing_files += part - newest_part_ - 1;
      read_content(content, path);
    }
  }

  void read_content(std::string_view content, std::string const& name)
  {
    if (!is_trace(content)) { throw bad_trace(name, 0, "this is not a trace"); }
    file_header header;
    if (content.size() < sizeof header) { throw bad_trace(name, content.size(), "the header is cut off"); }
    std::memcpy(&header, content.data(), sizeof header);
    if (header.version != file_header::current_version) {
      throw bad_trace(name, 8, "version " + std::to_string(header.version) + " of the format is not known");
    }
    if (header.header_bytes < sizeof header || header.header_bytes > content.size() || header.header_bytes % 8 != 0) {
      throw bad_trace(name, 12, "the header has a wrong length");
    }
    if (!has_header_) { trace_.header = header; }
    has_header_  = true;
    newest_part_ = header.part;
    trace_.bytes += content.size();
    for (std::uint64_t at = header.header_bytes; at < content.size();) {
      auto const bytes = read_block(content, at, name);
      if (bytes == 0) {
        trace_.cut_off_at = at;
        break;
      }
      at += bytes;
    }
  }

  /// Reads a block. Returns its bytes, or 0 if it is cut off.
  std::uint64_t read_block(std::string_view content, std::uint64_t at, std::string const& name)
  {
    auto const rest = content.substr(at);
    block_header header;
    if (rest.size() < sizeof header) { return 0; }
    std::memcpy(&header, rest.data(), sizeof header);
    if (header.magic != block_header::expected_magic) { throw bad_trace(name, at, "no block begins here"); }
    if (header.payload_bytes > largest_payload) { throw bad_trace(name, at + 4, "the block has a wrong length"); }
    auto const padded = (std::size_t{header.payload_bytes} + 7) / 8 * 8;
    if (rest.size() < sizeof header + padded) { return 0; }
    auto const sums = checksum_of(header, rest.data() + sizeof header);
    if (sums.sum() != header.sum || sums.sum_of_sums() != header.sum_of_sums) {
      throw bad_trace(name, at, "the block's checksum is wrong");
    }
    read_records(header, cursor{name, rest.substr(sizeof header, header.payload_bytes), at + sizeof header});
    return sizeof header + padded;
  }

  void read_records(block_header const& header, cursor from)
  {
    auto const thread = thread_of(header.thread);
    auto& events      = by_thread_[thread];
    auto const before = events.size();
    trace_.lost += header.lost;
    block_state state;
    state.places.fill(no_place);
    auto time            = header.time_ns;
    std::uint64_t moving = 0;
    while (!from.is_at_end()) {
      auto const control = from.take_number(1);
      auto const second  = from.take_number(1);
      if ((control & 3U) == 3) {
        if (control != 3) { from.fail("a record is of an unknown kind"); }
        read_extra(state, static_cast<extra>(second), from);
        continue;
      }
      auto const what = static_cast<kind>(control & 3U);
      time += from.take_number(std::size_t{1} << (control >> 2U & 3U));
      auto const bytes = from.take_number(std::size_t{1} << (control >> 4U & 3U));
      moving += unfold_sign(from.take_number(2 + 2 * (control >> 6U & 3U)));
      auto const where = state.places[second];
      if (where == no_place) { from.fail("an event is at a place that the block does not define"); }
      auto const address = what == kind::allocate_failure ? 0 : moving;
      if (!state.report.empty()) { trace_.reports.try_emplace({thread, time}, std::exchange(state.report, {})); }
      events.push_back({time, address, bytes, thread, where, std::exchange(state.stack, no_stack), what});
    }
    if (events.size() - before != header.events) {
      from.fail("the number of events differs from that in the header of the block");
    }
  }

  void read_extra(block_state& state, extra what, cursor& from)
  {
    auto const length  = from.take_number(2);
    auto const content = from.take(length);
    auto const key     = [&](auto value) {
      if (content.size() < sizeof value) { from.fail("a record is too short"); }
      std::memcpy(&value, content.data(), sizeof value);
      return value;
    };
    switch (what) {
      case extra::place: {
        place where;
        if (content.size() < 1 + sizeof where) { from.fail("a record is too short"); }
        std::memcpy(&where, content.data() + 1, sizeof where);
        if (where.device < 0 || where.device >= most_devices) { from.fail("a place has an impossible device number"); }
        auto const tag = state.tags.find(where.tag);
        if (tag == state.tags.end()) { from.fail("a place has a tag that the block does not name"); }
        where.tag                                                 = tag->second;
        state.places[static_cast<unsigned char>(content.front())] = place_of(where);
        return;
      }
      case extra::tag_name: {
        auto const tag = key(std::uint32_t{});
        if (tag == 0) { from.fail("a tag has the number 0, which means no tag"); }
        state.tags[tag] = tag_of(std::string{content.substr(sizeof tag)});
        return;
      }
      case extra::stack: {
        if (content.size() % sizeof(std::uint64_t) != 0) { from.fail("a stack has a wrong length"); }
        std::vector<std::uint64_t> frames(content.size() / sizeof(std::uint64_t));
        if (!frames.empty()) { std::memcpy(frames.data(), content.data(), content.size()); }
        state.stack = stack_of(std::move(frames));
        return;
      }
      case extra::frame_name: {
        auto const address = key(std::uint64_t{});
        trace_.frame_names.try_emplace(address, content.substr(sizeof address));
        return;
      }
      case extra::report: {
        state.report = content;
        return;
      }
    }  // other records come from a later minor version; they may be skipped
  }

  [[nodiscard]] std::uint32_t thread_of(std::uint64_t number)
  {
    auto const [found, is_new] = threads_.try_emplace(number, static_cast<std::uint32_t>(trace_.threads.size()));
    if (is_new) {
      trace_.threads.push_back(number);
      by_thread_.emplace_back();
    }
    return found->second;
  }

  [[nodiscard]] std::uint32_t place_of(place const& where)
  {
    auto const key             = std::make_tuple(where.device, where.tag, where.stream, where.stream_id);
    auto const [found, is_new] = places_.try_emplace(key, static_cast<std::uint32_t>(trace_.places.size()));
    if (is_new) { trace_.places.push_back(where); }
    return found->second;
  }

  [[nodiscard]] std::uint32_t tag_of(std::string const& name)
  {
    auto const [found, is_new] = tags_.try_emplace(name, static_cast<std::uint32_t>(trace_.tags.size()));
    if (is_new) { trace_.tags.push_back(name); }
    return found->second;
  }

  [[nodiscard]] std::uint32_t stack_of(std::vector<std::uint64_t> frames)
  {
    auto const [found, is_new] = stacks_.try_emplace(std::move(frames), static_cast<std::uint32_t>(stacks_.size()));
    if (is_new) { trace_.stacks.push_back(found->first); }
    return found->second;
  }

  /// Merges the events of all threads. Each thread's events are in order.
  [[nodiscard]] recorded_trace finish() &&
  {
    auto const is_earlier = [](event const& lhs, event const& rhs) {
      if (lhs.time_ns != rhs.time_ns) { return lhs.time_ns < rhs.time_ns; }
      return lhs.what == kind::free && rhs.what != kind::free;
    };
    struct source {
      event const* next;
      event const* end;
    };
    std::vector<source> sources;
    std::size_t count = 0;
    for (auto const& events : by_thread_) {
      if (!events.empty()) { sources.push_back({events.data(), events.data() + events.size()}); }
      count += events.size();
    }
    auto const is_later = [&](source const& lhs, source const& rhs) { return is_earlier(*rhs.next, *lhs.next); };
    std::make_heap(sources.begin(), sources.end(), is_later);
    trace_.events.reserve(count);
    while (!sources.empty()) {
      std::pop_heap(sources.begin(), sources.end(), is_later);
      auto& first             = sources.back();
      auto const* const limit = sources.size() > 1 ? sources.front().next : nullptr;
      do {  // all events before the next one of another thread
        trace_.events.push_back(*first.next++);
      } while (first.next != first.end && (limit == nullptr || !is_earlier(*limit, *first.next)));
      if (first.next == first.end) {
        sources.pop_back();
      } else {
        std::push_heap(sources.begin(), sources.end(), is_later);
      }
    }
    return std::move(trace_);
  }

  static constexpr std::uint32_t no_place = std::numeric_limits<std::uint32_t>::max();

  recorded_trace trace_{};
  bool has_header_{false};
  std::uint32_t newest_part_{};
  std::vector<std::vector<event>> by_thread_;
  std::unordered_map<std::uint64_t, std::uint32_t> threads_;  // positions in the trace's lists; likewise below
  std::map<std::tuple<std::int32_t, std::uint32_t, std::uint64_t, std::uint64_t>, std::uint32_t> places_;
  std::unordered_map<std::string, std::uint32_t> tags_{{"", 0}};
  std::map<std::vector<std::uint64_t>, std::uint32_t> stacks_;
};

}  // namespace rmm::recorded
