// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/text_failure.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/memory_amount.hpp>
#include <rmm/mr/detail/configuration_rules.hpp>
#include <rmm/mr/detail/configuration_syntax.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {

/// The environment variable that use_resource_from_environment() reads.
inline constexpr char const* resource_variable = "RMM_RESOURCE";

/// A description of a resource, its options and its adaptors, such as `pool,initial=1GiB,max=80%,statistics`. Use it to check or to change
/// a description before a configured_resource is made from it.
///
/// docs/configuration.md lists the names. A configuration is checked when it is parsed, except for checks that need a device.
///
/// @code{.cpp}
/// auto const configuration = rmm::mr::resource_configuration::parse("pool, initial=1024KiB, max=80%");
/// std::puts(configuration.text().c_str());  // pool,initial=1MiB,max=80%
/// @endcode
class resource_configuration {
 public:
  /// Parses a text. Throws std::invalid_argument, whose message shows the place, for unknown names, repeated options, values out of range,
  /// and options that contradict each other.
  [[nodiscard]] RMM_COLD static resource_configuration parse(std::string_view text)
  {
    return resource_configuration{detail::configuration_parser{text}.parse(), text};
  }

  /// Parses an environment variable. Returns nothing if it is not set or empty. Throws as parse() does.
  [[nodiscard]] RMM_COLD static std::optional<resource_configuration> from_environment(
    char const* variable = resource_variable)
  {
    auto const* const text = std::getenv(variable);
    if (text == nullptr || *text == '\0') { return std::nullopt; }
    try {
      return parse(text);
    } catch (std::invalid_argument const& error) {
      throw std::invalid_argument(std::string{variable} + ": " + error.what());
    }
  }

  /// Returns the kind of the resource, without its upstream and adaptors.
  [[nodiscard]] detail::resource_kind kind() const noexcept { return rule_->kind; }

  /// Returns whose memory the resource allocates, if it has no upstream.
  [[nodiscard]] detail::memory_place place() const noexcept { return rule_->place; }

  /// Returns the name of the resource.
  [[nodiscard]] std::string resource() const { return rule_->name; }

  /// Returns a text that parse() turns into an equal configuration. Options are in the order of the documentation, and amounts in the
  /// largest possible unit.
  [[nodiscard]] RMM_COLD std::string text() const
  {
    std::string result{rule_->name};
    for (auto const& option : options_) {
      result += std::string{","} + option.rule->name;
      if (option.rule->form != detail::value_form::flag) { result += "=" + value_text(option); }
    }
    return result;
  }

  friend bool operator==(resource_configuration const& lhs, resource_configuration const& rhs)
  {
    return lhs.text() == rhs.text();
  }
  friend bool operator!=(resource_configuration const& lhs, resource_configuration const& rhs) { return !(lhs == rhs); }

  // Values of options. `name` must be an option of the resource.

  /// Whether the option is set.
  [[nodiscard]] bool has(std::string_view name) const noexcept { return find(name) != nullptr; }

  /// Returns an amount of memory; nothing if the option is not set.
  [[nodiscard]] std::optional<memory_amount> amount(std::string_view name) const
  {
    auto const* const option = find(name);
    return option != nullptr ? std::optional<memory_amount>{option->amount} : std::nullopt;
  }

  /// Returns a plain number, such as milliseconds; nothing if the option is not set.
  [[nodiscard]] std::optional<std::uint64_t> number(std::string_view name) const
  {
    auto const* const option = find(name);
    return option != nullptr ? std::optional<std::uint64_t>{option->number} : std::nullopt;
  }

  /// Returns a word or the name of a file; empty if the option is not set.
  [[nodiscard]] std::string word(std::string_view name) const
  {
    auto const* const option = find(name);
    return option != nullptr ? option->text : std::string{};
  }

  /// Returns the configuration of the upstream: that of the option `upstream`, or the default. Null for a resource without upstream.
  [[nodiscard]] std::shared_ptr<resource_configuration const> upstream() const
  {
    if (auto const* const option = find("upstream")) { return option->upstream; }
    if (rule_->default_upstream == nullptr) { return nullptr; }
    return std::make_shared<resource_configuration const>(parse(rule_->default_upstream));
  }

 private:
  struct value {
    detail::option_rule const* rule{};
    std::size_t order{};  // the position in the documentation
    std::size_t place{};  // the position in the text
    memory_amount amount{};
    std::uint64_t number{};
    std::string text{};
    std::shared_ptr<resource_configuration const> upstream{};
  };

  RMM_COLD resource_configuration(detail::written_configuration const& written, std::string_view text)
    : rule_{detail::find_resource_rule(written.name)}
  {
    if (rule_ == nullptr) {
      detail::refuse_configuration(
        "unknown resource " + rmm::detail::quoted(written.name) + "; there are " + detail::names_of_resources(),
        text,
        written.place);
    }
    for (auto const& option : written.options) { add(option, text); }
    check_together(text, written.place);
    rmm::detail::sort(
      options_.begin(), options_.end(), [](auto const& lhs, auto const& rhs) { return lhs.order < rhs.order; });
  }

  [[nodiscard]] value const* find(std::string_view name) const noexcept
  {
    for (auto const& option : options_) {
      if (option.rule->name == name) { return &option; }
    }
    return nullptr;
  }

  void add(detail::written_option const& written, std::string_view text)
  {
    auto const refuse = [&](std::string const& why, std::size_t place) {
      detail::refuse_configuration(why, text, place);
    };
    value result;
    result.place = written.place;
    result.order = detail::find_option(*rule_, written.name);
    if (result.order == detail::no_option) {
      refuse("unknown option " + rmm::detail::quoted(written.name) + " of " + rule_->name + "; it has " +
               detail::names_of_options(*rule_),
             written.place);
    }
    result.rule = &detail::option_of(*rule_, result.order);
    if (has(written.name)) { refuse("the option '" + written.name + "' is there twice", written.place); }

    using form              = detail::written_option::form;
    auto const& rule        = *result.rule;
    bool const takes_nested = rule.form == detail::value_form::resource;
    if (rule.form == detail::value_form::flag && written.value != form::bare) {
      refuse("the option '" + written.name + "' takes no value", written.value_place);
    }
    if (rule.form != detail::value_form::flag && written.value == form::bare) {
      refuse("the option '" + written.name + "' needs a value: " + rule.meaning, written.place + written.name.size());
    }
    if (written.value == form::nested && !takes_nested) {
      refuse("the value of '" + written.name + "' is not a resource", written.value_place);
    }
    if (takes_nested) {
      auto const named   = detail::written_configuration{written.text, written.value_place, {}};
      auto const& nested = written.value == form::nested ? *written.nested : named;
      result.upstream    = std::shared_ptr<resource_configuration const>{new resource_configuration{nested, text}};
    } else if (rule.form != detail::value_form::flag) {
      detail::read_value(rule, written, text, result.amount, result.number);
      result.text = written.text;
    }
    options_.push_back(std::move(result));
  }

  /// Checks rules that concern several options.
  void check_together(std::string_view text, std::size_t place) const
  {
    auto const refuse = [&](std::string const& why, char const* option) {
      auto const* const at = find(option);
      detail::refuse_configuration(why, text, at != nullptr ? at->place : place);
    };
    for (std::size_t i = 0; i < detail::number_of_options(*rule_); ++i) {
      auto const& rule = detail::option_of(*rule_, i);
      if (rule.is_required && !has(rule.name)) {
        refuse(std::string{"the option '"} + rule.name + "' of " + rule_->name + " is missing", rule.name);
      }
      if (rule.needs != nullptr && has(rule.name) && !has(rule.needs)) {
        refuse(std::string{"the option '"} + rule.name + "' needs '" + rule.needs + "'", rule.name);
      }
    }
    for (auto below = upstream(); below != nullptr && has("log"); below = below->upstream()) {
      if (below->word("log") == word("log")) { refuse("two resources have the same log", "log"); }
    }
    if (has("near_device") && has("node")) { refuse("'node' contradicts 'near_device'", "node"); }
    for (auto const& [least, most] : {std::pair{"initial", "max"}, std::pair{"smallest", "largest"}}) {
      if (!has(least) || !has(most)) { continue; }
      auto const low  = find(least)->amount;
      auto const high = find(most)->amount;
      if (low.is_absolute() && high.is_absolute() && low.bytes(0, 0) > high.bytes(0, 0)) {
        refuse(std::string{"'"} + least + "' is larger than '" + most + "'", least);
      }
    }
  }

  [[nodiscard]] static std::string value_text(value const& option)
  {
    switch (option.rule->form) {
      case detail::value_form::amount:
      case detail::value_form::power_of_two:
        return option.amount.text();
      case detail::value_form::number:
        return std::to_string(option.number);
      case detail::value_form::resource:
        return upstream_text(*option.upstream);
      case detail::value_form::flag:
      case detail::value_form::word:
      case detail::value_form::file:
        break;
    }
    return detail::written_value(option.text);
  }

  [[nodiscard]] static std::string upstream_text(resource_configuration const& upstream)
  {
    return upstream.options_.empty() ? upstream.text() : "(" + upstream.text() + ")";
  }

  detail::resource_rule const* rule_;
  std::vector<value> options_;  // in the order of the rules
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
