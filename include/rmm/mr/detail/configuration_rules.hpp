// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/text_failure.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/memory_amount.hpp>
#include <rmm/mr/detail/configuration_syntax.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

/// @file
/// The rules of configurations: the resources and adaptors of resource_table.inc, their options, and the values of options.
/// docs/configuration.md explains them.

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

enum class resource_kind : std::uint8_t {
#define RMM_RESOURCE(name, ...) name,
#include <rmm/mr/detail/resource_table.inc>
};

/// Whose memory a resource allocates.
enum class memory_place : std::uint8_t { device, host };

/// The form of an option's value.
enum class value_form : std::uint8_t {
  flag,          // no value
  amount,        // an amount of memory
  power_of_two,  // an amount in bytes that is a power of two
  number,        // a whole number
  word,          // one of the words of the rule
  file,          // the name of a file
  resource,      // a configuration
};

struct option_rule {
  char const* name{};  // members have initializers, because nvcc makes lists of rules with the default constructor
  value_form form{};
  char const* meaning{};
  std::uint64_t least{0};  // bounds of numbers, and of amounts in bytes
  std::uint64_t most{std::numeric_limits<std::uint64_t>::max()};
  char const* words{nullptr};  // the words, or the endings of file names, divided by `|`
  char const* needs{nullptr};  // another option that this one requires
  bool is_required{false};
};

struct resource_rule {
  resource_kind kind;
  char const* name;
  memory_place place;
  char const* default_upstream;  // null: the resource has no upstream
  option_rule const* options;
  std::size_t number_of_options;
};

inline constexpr option_rule upstream_option{"upstream", value_form::resource, "the resource to take memory from"};
inline constexpr option_rule initial_option{"initial", value_form::amount, "memory to take when the resource is made"};
inline constexpr option_rule max_option{"max", value_form::amount, "the most memory to hold", 256};
inline constexpr option_rule threshold_option{
  "threshold", value_form::amount, "the memory that the driver's pool keeps when the program synchronises"};
inline constexpr option_rule share_option{
  "share", value_form::word, "the way to share memory with other processes", 0, 0, "none|fd|fabric|fd+fabric"};
inline constexpr option_rule near_device_option{
  "near_device", value_form::flag, "use the NUMA node nearest to the device"};
inline constexpr option_rule node_option{"node", value_form::number, "the NUMA node to use", 0, 1023};
inline constexpr option_rule threads_option{
  "threads", value_form::number, "the number of threads that make pages", 1, 1024};
inline constexpr option_rule pageable_option{
  "pageable", value_form::flag, "take pageable memory if no more can be locked"};
inline constexpr option_rule tags_option{"tags", value_form::flag, "record the tag of each allocation"};

/// Returns `rule` as the rule of a required option.
[[nodiscard]] constexpr option_rule required(option_rule rule) noexcept
{
  rule.is_required = true;
  return rule;
}

/// Returns `rule` as the rule of an option that requires the option `other`.
[[nodiscard]] constexpr option_rule with(option_rule rule, char const* other) noexcept
{
  rule.needs = other;
  return rule;
}

struct option_list {
  option_rule rules[8];
  std::size_t count;
};

template <class... Rules>
[[nodiscard]] constexpr option_list list_of(Rules const&... rules) noexcept
{
  return {{rules...}, sizeof...(Rules)};
}

#define RMM_RESOURCE(name, type, topic, place, upstream, options, ...) \
  inline constexpr option_list name##_options = list_of options;
#include <rmm/mr/detail/resource_table.inc>

/// The resources, by name.
inline constexpr resource_rule resource_rules[] = {
#define RMM_RESOURCE(name, type, topic, place, upstream, options, ...) \
  {resource_kind::name, #name, memory_place::place, upstream, name##_options.rules, name##_options.count},
#include <rmm/mr/detail/resource_table.inc>
};

/// Options of all resources, which put adaptors over them: the innermost adaptor first.
inline constexpr option_rule adaptor_options[] = {
#define RMM_DETAIL_RULES(...) __VA_ARGS__
#define RMM_ADAPTOR(name, type, options, ...) RMM_DETAIL_RULES options,
#include <rmm/mr/detail/resource_table.inc>
#undef RMM_DETAIL_RULES
};
inline constexpr std::size_t number_of_adaptor_options = sizeof adaptor_options / sizeof adaptor_options[0];

[[nodiscard]] constexpr char const* name_of(resource_kind kind) noexcept
{
  return resource_rules[static_cast<std::size_t>(kind)].name;
}

[[nodiscard]] inline resource_rule const* find_resource_rule(std::string_view name) noexcept
{
  for (auto const& rule : resource_rules) {
    if (rule.name == name) { return &rule; }
  }
  return nullptr;
}

[[nodiscard]] RMM_COLD inline std::string names_of_resources()
{
  std::string names;
  for (auto const& rule : resource_rules) { names += (names.empty() ? "" : ", ") + std::string{rule.name}; }
  return names;
}

[[nodiscard]] inline std::size_t number_of_options(resource_rule const& rule) noexcept
{
  return rule.number_of_options + number_of_adaptor_options;
}

/// Returns an option by its index: first those of the resource, then those of all resources.
[[nodiscard]] inline option_rule const& option_of(resource_rule const& rule, std::size_t index) noexcept
{
  return index < rule.number_of_options ? rule.options[index] : adaptor_options[index - rule.number_of_options];
}

inline constexpr std::size_t no_option = std::numeric_limits<std::size_t>::max();

[[nodiscard]] inline std::size_t find_option(resource_rule const& rule, std::string_view name) noexcept
{
  for (std::size_t i = 0; i < number_of_options(rule); ++i) {
    if (option_of(rule, i).name == name) { return i; }
  }
  return no_option;
}

[[nodiscard]] RMM_COLD inline std::string names_of_options(resource_rule const& rule)
{
  std::string names;
  for (std::size_t i = 0; i < number_of_options(rule); ++i) {
    names += (names.empty() ? "" : ", ") + std::string{option_of(rule, i).name};
  }
  return names;
}

/// Whether `text` is one of `words`, or, with `as_ending`, is longer than one of them and ends with it.
[[nodiscard]] inline bool is_one_of(std::string_view text, std::string_view words, bool as_ending) noexcept
{
  while (true) {
    auto const end  = words.find('|');
    auto const word = words.substr(0, end);
    auto const tail = as_ending && text.size() > word.size() ? text.substr(text.size() - word.size()) : text;
    if (tail == word && (!as_ending || text.size() > word.size())) { return true; }
    if (end == std::string_view::npos) { return false; }
    words.remove_prefix(end + 1);
  }
}

/// Reads and checks the value of one option. Throws std::invalid_argument, whose message shows the place in the text.
struct value_reader {
  option_rule const& rule;
  written_option const& written;
  std::string_view text;

  void refuse(std::string const& why) const
  {
    refuse_configuration(std::string{"'"} + rule.name + "' " + why, text, written.value_place);
  }

  template <class Show>
  void check_range(std::uint64_t value, Show const& show) const
  {
    if (value < rule.least) { refuse("has to be at least " + show(rule.least)); }
    if (value > rule.most) { refuse("has to be at most " + show(rule.most)); }
  }

  [[nodiscard]] memory_amount amount() const
  {
    try {
      return memory_amount::parse(written.text);
    } catch (std::invalid_argument const& error) {
      std::string const why{error.what()};
      refuse("is not an amount of memory. " + why.substr(0, why.find('\n')));
      throw;
    }
  }

  [[nodiscard]] memory_amount amount_in_range() const
  {
    auto const read  = amount();
    auto const bytes = read.bytes(0, 0);
    if (rule.form == value_form::power_of_two && (!read.is_absolute() || (bytes & (bytes - 1)) != 0 || bytes == 0)) {
      refuse("has to be a power of two");
    }
    constexpr auto all = std::numeric_limits<std::size_t>::max();
    if (read.is_absolute()) {
      check_range(bytes, [](std::uint64_t limit) { return memory_amount{limit}.text(); });
    } else if (rule.least != 0 && read.bytes(all, all) == 0) {
      refuse("has to be above 0");
    }
    return read;
  }

  [[nodiscard]] std::uint64_t number_in_range() const
  {
    if (written.text.empty() || written.text.find_first_not_of("0123456789") != std::string::npos) {
      refuse("has to be a whole number");
    }
    std::uint64_t const number = std::strtoull(written.text.c_str(), nullptr, 10);  // the largest one if it is larger
    check_range(number, [](std::uint64_t limit) { return std::to_string(limit); });
    return number;
  }
};

/// Reads the value of an option into `amount` or `number`, or checks its word. Throws std::invalid_argument, whose message shows the place
/// in `text`.
RMM_COLD inline void read_value(option_rule const& rule,
                                written_option const& written,
                                std::string_view text,
                                memory_amount& amount,
                                std::uint64_t& number)
{
  value_reader const value{rule, written, text};
  switch (rule.form) {
    case value_form::amount:
    case value_form::power_of_two:
      amount = value.amount_in_range();
      break;
    case value_form::number:
      number = value.number_in_range();
      break;
    case value_form::word:
      if (!is_one_of(written.text, rule.words, false)) { value.refuse(std::string{"has to be one of "} + rule.words); }
      break;
    case value_form::file:
      if (!is_one_of(written.text, rule.words, true)) {
        value.refuse(std::string{"has to be the name of a file that ends with one of "} + rule.words);
      }
      break;
    case value_form::flag:
    case value_form::resource:
      break;
  }
}

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
