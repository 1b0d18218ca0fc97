// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/text_failure.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace RMM_NAMESPACE {

/// An amount of memory: a number of bytes, or a share of memory whose size is known later. Use it for sizes that users type.
///
/// As text: `4GiB`, `1.5 kb`, `512000000`; `80%` of all memory; `50%free` of the free memory. See parse().
///
/// @code{.cpp}
/// auto const [free, total] = rmm::available_device_memory();
/// std::printf("80 %%: %zu bytes\n", rmm::memory_amount::parse("80%").bytes(total, free));
/// @endcode
class memory_amount {
 public:
  /// Makes an amount of `bytes` bytes.
  constexpr memory_amount(std::size_t bytes = 0) noexcept : value_{bytes} {}

  /// Parses a decimal number and a unit. Blanks and tabs may stand between them.
  ///
  /// Units are B, KB, MB, GB, TB, PB (powers of 1000) and KiB, MiB, GiB, TiB, PiB (powers of 1024), in upper or lower case; without a unit,
  /// the number counts bytes. `%` and `%free` take a number of at most 100 with up to four decimals. Fractions of a byte are dropped.
  /// Throws std::invalid_argument, whose message shows the place, for other texts, also with blanks before or after, and for more bytes
  /// than a std::size_t can hold.
  [[nodiscard]] static memory_amount parse(std::string_view text);

  /// Whether the amount is a number of bytes, so that bytes() ignores its arguments.
  [[nodiscard]] constexpr bool is_absolute() const noexcept { return of_ == whole::none; }

  /// Returns the bytes of the amount, if a memory has `total` bytes and `free` of them are free. Shares are rounded down.
  [[nodiscard]] constexpr std::size_t bytes(std::size_t total, std::size_t free) const noexcept
  {
    if (of_ == whole::none) { return value_; }
    auto const all = of_ == whole::total ? total : free;
    return all / million * value_ + all % million * value_ / million;
  }

  /// Returns a text that parse() turns into an equal amount, in the largest unit that gives a whole number.
  [[nodiscard]] std::string text() const;

  friend constexpr bool operator==(memory_amount const& lhs, memory_amount const& rhs) noexcept
  {
    return lhs.of_ == rhs.of_ && lhs.value_ == rhs.value_;
  }
  friend constexpr bool operator!=(memory_amount const& lhs, memory_amount const& rhs) noexcept
  {
    return !(lhs == rhs);
  }

 private:
  enum class whole : std::uint8_t { none, total, free };

  struct unit {
    char const* name;  // as text() writes it
    std::size_t bytes;
  };

  static constexpr std::size_t million     = 1'000'000;
  static constexpr std::size_t per_percent = million / 100;
  static constexpr unit units[]            = {  // largest first
    {"PiB", std::size_t{1} << 50U},
    {"PB", 1'000'000'000'000'000},
    {"TiB", std::size_t{1} << 40U},
    {"TB", 1'000'000'000'000},
    {"GiB", std::size_t{1} << 30U},
    {"GB", 1'000'000'000},
    {"MiB", std::size_t{1} << 20U},
    {"MB", 1'000'000},
    {"KiB", std::size_t{1} << 10U},
    {"KB", 1'000},
    {"B", 1}};

  constexpr memory_amount(whole of, std::size_t value) noexcept : value_{value}, of_{of} {}

  [[noreturn]] RMM_COLD static void refuse(std::string const& why, std::string_view text, std::size_t place)
  {
    detail::throw_text_failure("Could not parse the size " + detail::quoted(text) + ": " + why, text, place);
  }

  [[nodiscard]] static bool same_unit(std::string_view name, std::string_view text) noexcept
  {
    if (name.size() != text.size()) { return false; }
    for (std::size_t i = 0; i < name.size(); ++i) {
      auto const lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
      if (lower(name[i]) != lower(text[i])) { return false; }
    }
    return true;
  }

  [[nodiscard]] static std::size_t end_of_digits(std::string_view text, std::size_t begin) noexcept
  {
    while (begin < text.size() && text[begin] >= '0' && text[begin] <= '9') { ++begin; }
    return begin;
  }

  /// Returns `integer.fraction` times `factor`, rounded down. Throws if the result is too large.
  [[nodiscard]] static std::size_t times(std::string_view integer,
                                         std::string_view fraction,
                                         std::size_t factor,
                                         std::string_view text)
  {
    constexpr auto most = std::numeric_limits<std::size_t>::max();
    std::size_t whole_part{0};
    for (char const digit : integer) {
      auto const value = static_cast<std::size_t>(digit - '0');
      if (whole_part > (most - value) / 10) { refuse("too large", text, 0); }
      whole_part = whole_part * 10 + value;
    }
    // From the last digit to the first, so that rounding down in each step equals rounding down once.
    std::size_t part{0};
    for (auto digit = fraction.rbegin(); digit != fraction.rend(); ++digit) {
      part = (static_cast<std::size_t>(*digit - '0') * factor + part) / 10;
    }
    if (whole_part > (most - part) / factor) { refuse("too large", text, 0); }
    return whole_part * factor + part;
  }

  std::size_t value_;  // bytes, or millionths of the whole
  whole of_{whole::none};
};

inline memory_amount memory_amount::parse(std::string_view text)
{
  auto const point     = end_of_digits(text, 0);
  auto const has_point = point < text.size() && text[point] == '.';
  auto const end       = has_point ? end_of_digits(text, point + 1) : point;
  auto const integer   = text.substr(0, point);
  auto const fraction  = has_point ? text.substr(point + 1, end - point - 1) : std::string_view{};
  if (integer.empty() && fraction.empty()) { refuse("a number is missing", text, 0); }

  auto begin = end;
  while (begin < text.size() && (text[begin] == ' ' || text[begin] == '\t')) { ++begin; }
  auto const name = text.substr(begin);

  if (name == "%" || same_unit("%free", name)) {
    if (fraction.size() > 4) { refuse("a share has at most four decimals", text, point + 5); }
    auto const share = times(integer, fraction, per_percent, text);
    if (share > million) { refuse("a share is at most 100%", text, 0); }
    return {name == "%" ? whole::total : whole::free, share};
  }
  if (name.empty() && begin == end) { return times(integer, fraction, 1, text); }
  for (auto const& each : units) {
    if (same_unit(each.name, name)) { return times(integer, fraction, each.bytes, text); }
  }
  auto const problem = name.empty() ? std::string{"blanks at the end"} : "unknown unit " + detail::quoted(name);
  refuse(problem + "; units are B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB, % and %free",
         text,
         name.empty() ? end : begin);
}

inline std::string memory_amount::text() const
{
  if (of_ == whole::none) {
    for (auto const& each : units) {
      if (each.bytes > 1 && value_ != 0 && value_ % each.bytes == 0) {
        return std::to_string(value_ / each.bytes) + each.name;
      }
    }
    return std::to_string(value_);
  }
  auto result = std::to_string(value_ / per_percent);
  if (auto const rest = value_ % per_percent; rest != 0) {
    auto decimals = std::to_string(per_percent + rest).substr(1);
    decimals.erase(decimals.find_last_not_of('0') + 1);
    result += "." + decimals;
  }
  return result + (of_ == whole::total ? "%" : "%free");
}

}  // namespace RMM_NAMESPACE
