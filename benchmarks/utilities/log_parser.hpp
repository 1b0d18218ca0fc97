// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/error.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <istream>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
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
  std::size_t size{};        ///< as asked for
  std::uintptr_t pointer{};  ///< what the allocation returned, or what is freed
  std::size_t thread_id{};
  std::uintptr_t stream{};
  std::size_t index{};  ///< of the row, from 0
};

inline std::ostream& operator<<(std::ostream& out, event const& e)
{
  char const* const names[] = {"allocate", "free", "allocate failure"};
  auto const flags          = out.flags();
  out << "event " << std::dec << e.index << ": thread " << e.thread_id << ", " << names[static_cast<int>(e.act)] << ", "
      << e.size << " bytes at 0x" << std::hex << e.pointer << ", stream 0x" << e.stream;
  out.flags(flags);
  return out;
}

/// The moment of today, in local time, that a time of the log names: HH:MM:SS, and microseconds after a point or colon.
/// Throws logic_error if it is none.
inline std::chrono::system_clock::time_point parse_time(std::string const& text)
{
  int fields[4]{};
  char const* at        = text.data();
  char const* const end = at + text.size();
  for (int i = 0; i < 4 && (i < 3 || at != end); ++i) {
    if (i > 0) {
      RMM_EXPECTS(at != end && (*at == ':' || (i == 3 && *at == '.')), "Invalid time string.");
      ++at;
    }
    auto const [next, error] = std::from_chars(at, end, fields[i]);
    RMM_EXPECTS(error == std::errc{} && fields[i] >= 0, "Invalid time string.");
    at = next;
  }
  RMM_EXPECTS(at == end && fields[0] < 24 && fields[1] < 60 && fields[2] <= 60 && fields[3] < 1'000'000,
              "Invalid time string.");

  auto const now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm day{};
  localtime_r(&now, &day);
  day.tm_hour  = fields[0];
  day.tm_min   = fields[1];
  day.tm_sec   = fields[2];
  day.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(std::mktime(&day)) + std::chrono::microseconds{fields[3]};
}

/// Columns of a CSV text, by the names in its first row. Fields are not quoted.
class csv_columns {
 public:
  explicit csv_columns(std::istream& in)
  {
    std::string row;
    std::vector<std::vector<std::string>*> order;
    if (std::getline(in, row)) {
      for (auto const& name : split(row)) { order.push_back(&columns_[name]); }
    }
    while (std::getline(in, row)) {
      if (row.empty() || row == "\r") { continue; }
      auto const fields = split(row);
      for (std::size_t i = 0; i < std::min(fields.size(), order.size()); ++i) { order[i]->push_back(fields[i]); }
    }
  }

  /// Throws logic_error if there is no such column.
  [[nodiscard]] std::vector<std::string> const& operator[](std::string const& name) const
  {
    auto const found = columns_.find(name);
    RMM_EXPECTS(found != columns_.end(), "The log has no column '" + name + "'.");
    return found->second;
  }

 private:
  static std::vector<std::string> split(std::string_view row)
  {
    if (!row.empty() && row.back() == '\r') { row.remove_suffix(1); }
    std::vector<std::string> fields;
    for (;;) {
      auto const comma = row.find(',');
      fields.emplace_back(row.substr(0, comma));
      if (comma == std::string_view::npos) { return fields; }
      row.remove_prefix(comma + 1);
    }
  }

  std::map<std::string, std::vector<std::string>> columns_;
};

/// A number of the log: decimal, or hexadecimal with or without 0x, where (nil) is 0. Throws logic_error if it is none.
template <class Number>
Number parse_log_number(std::string_view text, int base)
{
  auto const whole = text;
  if (base == 16 && text == "(nil)") { return 0; }
  if (base == 16 && (text.substr(0, 2) == "0x" || text.substr(0, 2) == "0X")) { text.remove_prefix(2); }
  Number value{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  RMM_EXPECTS(error == std::errc{} && end == text.data() + text.size(),
              "'" + std::string{whole} + "' is not a number of the log.");
  return value;
}

/// Throws logic_error if it is none.
inline action parse_action(std::string_view text)
{
  if (text == "allocate") { return action::ALLOCATE; }
  if (text == "free") { return action::FREE; }
  RMM_EXPECTS(text == "allocate failure", "Invalid action string.");
  return action::ALLOCATE_FAILURE;
}

inline std::vector<event> parse_csv(std::istream& in)
{
  csv_columns const columns{in};
  auto const& threads  = columns["Thread"];
  auto const& actions  = columns["Action"];
  auto const& pointers = columns["Pointer"];
  auto const& sizes    = columns["Size"];
  auto const& streams  = columns["Stream"];
  auto const count     = actions.size();
  for (auto const* column : {&threads, &columns["Time"], &pointers, &sizes, &streams}) {
    RMM_EXPECTS(column->size() == count, "Size mismatch in columns of parsed log.");
  }

  std::vector<event> events;
  events.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    events.emplace_back(parse_log_number<std::size_t>(threads[i], 10),
                        parse_action(actions[i]),
                        parse_log_number<std::size_t>(sizes[i], 10),
                        parse_log_number<std::uintptr_t>(pointers[i], 16),
                        parse_log_number<std::uintptr_t>(streams[i], 16),
                        i);
  }
  return events;
}

/// The rows of a log. Its columns are found by their names. Throws logic_error if the file is no log.
inline std::vector<event> parse_csv(std::string const& filename)
{
  std::ifstream in{filename};
  RMM_EXPECTS(in.is_open(), "The log '" + filename + "' cannot be read.");
  return parse_csv(in);
}

}  // namespace rmm::detail
