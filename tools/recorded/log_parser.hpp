// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/text_failure.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

/// @file
/// Reads the CSV log of rmm::mr::logging_resource_adaptor.

namespace rmm::detail {

enum class action { ALLOCATE, FREE, ALLOCATE_FAILURE };

/// A row of the log.
struct event {
  event() = default;
  event(action what, std::size_t bytes, void const* ptr) : event{what, bytes, reinterpret_cast<std::uintptr_t>(ptr)} {}
  event(action what, std::size_t bytes, std::uintptr_t ptr) : act{what}, size{bytes}, pointer{ptr} {}
  event(std::size_t thread, action what, std::size_t bytes, std::uintptr_t ptr, std::uintptr_t on, std::size_t number)
    : act{what}, size{bytes}, pointer{ptr}, thread_id{thread}, stream{on}, index{number}
  {}
  event(std::size_t thread, action what, std::size_t bytes, void const* ptr, std::uintptr_t on, std::size_t number)
    : event{thread, what, bytes, reinterpret_cast<std::uintptr_t>(ptr), on, number}
  {}

  action act{};
  std::size_t size{};        ///< requested bytes
  std::uintptr_t pointer{};  ///< address of the allocation
  std::size_t thread_id{};
  std::uintptr_t stream{};
  std::size_t index{};  ///< number of the row, from 0

  std::uint64_t time_ns{};  ///< since the first event
  int device{};

  // Only binary traces fill these.
  std::uint64_t stream_id{};  ///< distinguishes streams with the same handle; 0: unknown
};

inline std::ostream& operator<<(std::ostream& out, event const& e)
{
  char const* const names[] = {"allocate", "free", "allocate failure"};
  auto const flags          = out.flags();
  out << "event " << std::dec << e.index << ": thread " << e.thread_id << ", " << names[static_cast<int>(e.act)] << ", "
      << e.size << " bytes at 0x" << std::hex << e.pointer << ", stream 0x" << e.stream;
  if (e.device != 0) { out << ", device " << std::dec << e.device; }
  out.flags(flags);
  return out;
}

/// Splits a time of the log, HH:MM:SS and microseconds after a point or colon, into these four numbers. Returns nothing for other texts.
inline std::optional<std::array<int, 4>> split_time(std::string_view text)
{
  std::array<int, 4> fields{};
  char const* at        = text.data();
  char const* const end = at + text.size();
  for (std::size_t i = 0; i < 4 && (i < 3 || at != end); ++i) {
    if (i > 0) {
      if (at == end || (*at != ':' && !(i == 3 && *at == '.'))) { return std::nullopt; }
      ++at;
    }
    auto const [next, error] = std::from_chars(at, end, fields[i]);
    if (error != std::errc{} || fields[i] < 0) { return std::nullopt; }
    at = next;
  }
  if (at != end || fields[0] >= 24 || fields[1] >= 60 || fields[2] > 60 || fields[3] >= 1'000'000) {
    return std::nullopt;
  }
  return fields;
}

/// Returns the moment of a time of the log, taken as local time of today. Throws logic_error for other texts.
inline std::chrono::system_clock::time_point parse_time(std::string const& text)
{
  auto const split = split_time(text);
  RMM_EXPECTS(split.has_value(), rmm::detail::quoted(text) + " is not a time of the log.");
  auto const& fields = *split;

  auto const now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm day{};
  localtime_r(&now, &day);
  day.tm_hour  = fields[0];
  day.tm_min   = fields[1];
  day.tm_sec   = fields[2];
  day.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(std::mktime(&day)) + std::chrono::microseconds{fields[3]};
}

/// Returns the fields of a row. Fields are not quoted.
inline std::vector<std::string_view> split_row(std::string_view row)
{
  if (!row.empty() && row.back() == '\r') { row.remove_suffix(1); }
  std::vector<std::string_view> fields;
  for (;;) {
    auto const comma = row.find(',');
    fields.push_back(row.substr(0, comma));
    if (comma == std::string_view::npos) { return fields; }
    row.remove_prefix(comma + 1);
  }
}

/// Parses a number of the log: decimal, or hexadecimal with or without 0x; (nil) is 0. Throws logic_error for other texts.
template <class Number>
Number parse_log_number(std::string_view text, int base)
{
  auto const whole = text;
  if (base == 16 && text == "(nil)") { return 0; }
  if (base == 16 && (text.substr(0, 2) == "0x" || text.substr(0, 2) == "0X")) { text.remove_prefix(2); }
  Number value{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw logic_error(rmm::detail::quoted(whole) + " is not a number of the log.");
  }
  return value;
}

/// Returns the action of a row. Throws logic_error for other texts.
inline action parse_action(std::string_view text)
{
  if (text == "allocate") { return action::ALLOCATE; }
  if (text == "free") { return action::FREE; }
  if (text == "allocate failure") { return action::ALLOCATE_FAILURE; }
  throw logic_error(rmm::detail::quoted(text) + " is not an action of the log: allocate, free or allocate failure.");
}

/// Converts times of day, in the order of the rows, to nanoseconds since the first one. A time that is more than half a
/// day earlier than the previous one belongs to the next day. Any other earlier time, and any other text, counts as the previous time.
class log_clock {
 public:
  [[nodiscard]] std::uint64_t elapsed_ns(std::string_view time_of_day)
  {
    if (auto const fields = split_time(time_of_day)) {
      constexpr std::int64_t day                          = 86'400'000'000;  // microseconds
      auto const& [hours, minutes, seconds, microseconds] = *fields;
      auto const now     = std::int64_t{(hours * 60 + minutes) * 60 + seconds} * 1'000'000 + microseconds;
      auto const step    = now - last_.value_or(now);
      auto const forward = step < -day / 2 ? step + day : step;
      if (!last_ || forward > 0) { last_ = now; }
      elapsed_ += forward > 0 ? static_cast<std::uint64_t>(forward) * 1000 : 0;
    } else {
      ++unreadable_;
    }
    return elapsed_;
  }

  /// Returns the number of texts so far that were not times.
  [[nodiscard]] std::size_t unreadable() const noexcept { return unreadable_; }

 private:
  std::optional<std::int64_t> last_;  // microseconds since midnight
  std::uint64_t elapsed_{0};
  std::size_t unreadable_{0};
};

/// The parts of a log that could not be read.
struct log_damage {
  std::optional<std::uint64_t> cut_off_at{};  ///< offset of an unfinished last row, which is left out
  std::size_t without_time{0};                ///< rows that count at the time of the row before
};

/// Returns the rows of a log. Throws logic_error, with the line, if the text is not a log. Logs of RMM's first releases
/// have no column of threads: their rows belong to thread 0. Without `damage`, an unfinished last row is an error.
inline std::vector<event> parse_csv(std::istream& in, log_damage* damage = nullptr)
{
  constexpr int most_devices                                  = 1024;
  constexpr std::size_t column_count                          = 6;
  constexpr std::array<std::string_view, column_count> wanted = {
    "Thread", "Time", "Action", "Pointer", "Size", "Stream"};
  std::array<std::size_t, column_count> column{};
  std::string row;
  std::getline(in, row);
  auto const names = split_row(row);
  for (std::size_t i = 0; i < column_count; ++i) {
    auto const found = std::find(names.begin(), names.end(), wanted[i]);
    if (found == names.end() && i != 0) {
      throw logic_error("line 1: this is not a log: it has no column '" + std::string{wanted[i]} + "'.");
    }
    column[i] = static_cast<std::size_t>(found - names.begin());
  }
  auto const width         = names.size();
  bool const has_threads   = column[0] < width;
  auto const device_column = static_cast<std::size_t>(std::find(names.begin(), names.end(), "Device") - names.begin());

  log_clock clock;
  std::vector<event> events;
  std::uint64_t end = row.size() + 1;  // of the rows so far
  for (std::size_t line = 2; std::getline(in, row); ++line) {
    auto const begin = std::exchange(end, end + row.size() + 1);
    if (row.empty() || row == "\r") { continue; }
    try {
      auto const fields = split_row(row);
      if (fields.size() != width) {
        throw logic_error("the row has " + std::to_string(fields.size()) + " fields, but the log has " +
                          std::to_string(width) + " columns.");
      }
      event made{has_threads ? parse_log_number<std::size_t>(fields[column[0]], 10) : 0,
                 parse_action(fields[column[2]]),
                 parse_log_number<std::size_t>(fields[column[4]], 10),
                 parse_log_number<std::uintptr_t>(fields[column[3]], 16),
                 parse_log_number<std::uintptr_t>(fields[column[5]], 16),
                 events.size()};
      if (device_column < width) {
        made.device = parse_log_number<int>(fields[device_column], 10);
        if (made.device < 0 || made.device >= most_devices) {
          throw logic_error("there is no device " + rmm::detail::quoted(fields[device_column]) + ".");
        }
      }
      made.time_ns = clock.elapsed_ns(fields[column[1]]);
      events.push_back(made);
    } catch (logic_error const& e) {
      if (damage != nullptr && in.eof()) {  // the last row has no end of line
        damage->cut_off_at = begin;
        break;
      }
      throw logic_error("line " + std::to_string(line) + ": " + e.what());
    }
  }
  if (damage != nullptr) { damage->without_time = clock.unreadable(); }
  return events;
}

/// Returns the rows of a log file, whose columns are found by their names. Throws logic_error if the file is not a log.
inline std::vector<event> parse_csv(std::string const& filename, log_damage* damage = nullptr)
{
  std::ifstream in{filename};
  RMM_EXPECTS(in.is_open(), "The log '" + filename + "' cannot be read.");
  return parse_csv(in, damage);
}

}  // namespace rmm::detail
