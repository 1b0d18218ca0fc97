// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/text_failure.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/memory_amount.hpp>
#include <rmm/mr/detail/configuration_syntax.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

/// @file
/// What configurations may say: the resources, their options and the values of those. docs/configuration.md says the same in
/// more words. Who adds a resource adds a row here and a case in mr/configured_resource.hpp.

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

enum class resource_kind : std::uint8_t {
  arena,
  binning,
  cached,
  cuda,
  cuda_async,
  cuda_async_managed,
  cuda_async_view,
  elastic,
  fixed_size,
  managed,
  pinned_host,
  pinned_pool,
  pool,
  recommended,
  registered_host,
  sam_headroom,
  system,
};

/// What the value of an option looks like.
enum class value_form : std::uint8_t {
  flag,          // no value
  amount,        // of memory
  power_of_two,  // an amount that is one, and no share
  number,        // a whole number
  word,          // one of the words of the rule
  file,          // the name of a file
  resource,      // a configuration
};

struct option_rule {
  char const* name;
  value_form form;
  char const* meaning;
  std::uint64_t least{0};  // of numbers, and of amounts that are no shares
  std::uint64_t most{std::numeric_limits<std::uint64_t>::max()};
  char const* words{nullptr};  // divided by `|`; for files: the endings
  char const* needs{nullptr};  // an option without which this one means nothing
  bool is_required{false};
};

struct resource_rule {
  resource_kind kind;
  char const* name;
  char const* default_upstream;  // null: is made over no other resource
  option_rule const* options;
  std::size_t number_of_options;
};

inline constexpr option_rule suballocator_upstream_option{
  "upstream", value_form::resource, "the resource that memory is taken from"};
inline constexpr option_rule initial_option{"initial", value_form::amount, "memory that is taken at once"};
inline constexpr option_rule max_option{"max", value_form::amount, "memory that is held at most", 256};
inline constexpr option_rule share_option{
  "share", value_form::word, "how other processes can be given memory", 0, 0, "none|fd|fabric|fd+fabric"};
inline constexpr option_rule near_device_option{
  "near_device", value_form::flag, "memory of the host's node nearest to the device"};
inline constexpr option_rule node_option{
  "node", value_form::number, "memory of the host's node of this number", 0, 1023};
inline constexpr option_rule threads_option{"threads", value_form::number, "threads that make pages", 1, 1024};

inline constexpr option_rule arena_options[] = {
  {"size", value_form::amount, "memory that the arena has", std::uint64_t{1} << 20U},
  {"dump", value_form::flag, "a report is left in rmm_arena_memory_dump.log when a request fails"},
  suballocator_upstream_option,
};
inline constexpr option_rule binning_options[] = {
  {"smallest", value_form::power_of_two, "size of the smallest bin", 256, std::uint64_t{1} << 62U, nullptr, "largest"},
  {"largest", value_form::power_of_two, "size of the largest bin", 256, std::uint64_t{1} << 62U, nullptr, "smallest"},
  suballocator_upstream_option,
};
inline constexpr option_rule cached_options[] = {
  initial_option,
  max_option,
  {"block", value_form::amount, "memory that is taken at a time", 256},
  suballocator_upstream_option,
};
inline constexpr option_rule cuda_async_options[] = {
  initial_option,
  {"threshold", value_form::amount, "memory that the driver's pool keeps when the program synchronises"},
  share_option,
};
inline constexpr option_rule elastic_options[] = {
  initial_option,
  max_option,
  {"chunk", value_form::amount, "memory that is mapped, and given back, at a time", 1},
  {"decay_ms", value_form::number, "milliseconds after which unused memory goes back", 0, 1'000'000'000},
  {"peer_access", value_form::flag, "other devices can use the memory"},
  share_option,
  {"rdma", value_form::flag, "network adapters can use the memory"},
};
inline constexpr option_rule fixed_size_options[] = {
  {"block", value_form::amount, "size of a block", 1},
  {"preallocate", value_form::number, "blocks that are taken at once", 1, std::uint64_t{1} << 40U},
  suballocator_upstream_option,
};
inline constexpr option_rule pinned_pool_options[] = {
  initial_option, max_option, near_device_option, node_option, threads_option};
inline constexpr option_rule pool_options[]        = {initial_option, max_option, suballocator_upstream_option};
inline constexpr option_rule recommended_options[] = {
  initial_option,
  max_option,
  {"oversubscribe", value_form::flag, "more memory than the device has, in the host's"},
};
inline constexpr option_rule registered_host_options[] = {near_device_option, node_option, threads_option};
inline constexpr option_rule sam_headroom_options[]    = {
     {"headroom",
      value_form::amount,
      "memory of the device that is left to others",
      0,
      std::numeric_limits<std::uint64_t>::max(),
      nullptr,
      nullptr,
      true},
};

/// Options of all resources: adaptors, in the order in which they are put on, the innermost first.
inline constexpr option_rule adaptor_options[] = {
  {"scrub", value_form::flag, "what is freed is zeroed before anyone else gets it"},
  {"guard", value_form::flag, "writes beyond allocations and after they are freed are found"},
  {"alignment", value_form::power_of_two, "alignment of allocations", 1},
  {"alignment_threshold",
   value_form::amount,
   "size from which on allocations are aligned so",
   0,
   std::numeric_limits<std::uint64_t>::max(),
   nullptr,
   "alignment"},
  {"prefetch", value_form::flag, "what is allocated is moved to the device"},
  {"limit", value_form::amount, "memory that can be in use at a time", 1},
  {"statistics", value_form::flag, "what is in use is counted"},
  {"thread_safe", value_form::flag, "one call at a time"},
  {"log", value_form::file, "a file that all calls are written to", 0, 0, ".csv|.bin"},
};
inline constexpr std::size_t number_of_adaptor_options = sizeof adaptor_options / sizeof adaptor_options[0];

template <std::size_t Count>
[[nodiscard]] constexpr resource_rule rule_for(resource_kind kind,
                                               char const* name,
                                               option_rule const (&options)[Count],
                                               char const* default_upstream = nullptr)
{
  return {kind, name, default_upstream, options, Count};
}

[[nodiscard]] constexpr resource_rule rule_for(resource_kind kind, char const* name)
{
  return {kind, name, nullptr, nullptr, 0};
}

inline constexpr resource_rule resource_rules[] = {
  rule_for(resource_kind::arena, "arena", arena_options, "cuda"),
  rule_for(resource_kind::binning, "binning", binning_options, "pool"),
  rule_for(resource_kind::cached, "cached", cached_options, "cuda_async"),
  rule_for(resource_kind::cuda, "cuda"),
  rule_for(resource_kind::cuda_async, "cuda_async", cuda_async_options),
  rule_for(resource_kind::cuda_async_managed, "cuda_async_managed"),
  rule_for(resource_kind::cuda_async_view, "cuda_async_view"),
  rule_for(resource_kind::elastic, "elastic", elastic_options),
  rule_for(resource_kind::fixed_size, "fixed_size", fixed_size_options, "cuda"),
  rule_for(resource_kind::managed, "managed"),
  rule_for(resource_kind::pinned_host, "pinned_host"),
  rule_for(resource_kind::pinned_pool, "pinned_pool", pinned_pool_options),
  rule_for(resource_kind::pool, "pool", pool_options, "cuda"),
  rule_for(resource_kind::recommended, "recommended", recommended_options),
  rule_for(resource_kind::registered_host, "registered_host", registered_host_options),
  rule_for(resource_kind::sam_headroom, "sam_headroom", sam_headroom_options),
  rule_for(resource_kind::system, "system"),
};

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

/// The options of the resource, and then those of all.
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

/// Whether `text` is one of `words`, or, for files, ends with one.
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

/// The value of one option, as it is read. Throws std::invalid_argument, which shows the place in the text.
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
      refuse("is no amount of memory. " + why.substr(0, why.find('\n')));
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
    if (written.text.find_first_not_of("0123456789") != std::string::npos || written.text.size() > 15) {
      refuse("has to be a whole number");
    }
    auto const number = std::stoull(written.text);
    check_range(number, [](std::uint64_t limit) { return std::to_string(limit); });
    return number;
  }
};

/// Reads the value of an option that is no flag and no resource. Throws std::invalid_argument, which shows the place in `text`.
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
