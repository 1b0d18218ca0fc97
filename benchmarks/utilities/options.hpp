// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rmm::benchmarks {

/// Parses a command line: `--name value`, `--name=value`, `-n value` and `-nvalue`; flags take no value.
class options {
 public:
  options(std::string program, std::string purpose) : program_{std::move(program)}, purpose_{std::move(purpose)} {}

  /// Declares an option with a value. `letter` may be 0. Returns *this.
  options& value(char letter, std::string name, std::string help)
  {
    declared_.push_back({letter, std::move(name), std::move(help), true});
    return *this;
  }

  /// Declares an option without a value. Returns *this.
  options& flag(char letter, std::string name, std::string help)
  {
    declared_.push_back({letter, std::move(name), std::move(help), false});
    return *this;
  }

  /// Parses the command line. Throws std::invalid_argument for an option that was not declared.
  void parse(int argc, char const* const* argv)
  {
    std::vector<std::string> const words(argv + 1, argv + argc);
    for (std::size_t i = 0; i < words.size(); ++i) {
      auto const& word = words[i];
      if (word.size() < 2 || word[0] != '-') { throw std::invalid_argument{"unexpected argument '" + word + "'"}; }
      bool const is_long = word[1] == '-';
      auto const equals  = is_long ? word.find('=') : std::string::npos;
      auto const& option =
        is_long ? find(word.substr(2, equals == std::string::npos ? equals : equals - 2)) : find(word[1]);
      std::string text    = "true";
      bool const attached = is_long ? equals != std::string::npos : word.size() > 2;
      if (attached) {
        text = word.substr(is_long ? equals + 1 : 2);
        if (!option.has_value && !is_long) { throw std::invalid_argument{"unexpected argument '" + word + "'"}; }
      } else if (option.has_value) {
        if (++i == words.size()) { throw std::invalid_argument{"option '" + word + "' needs a value"}; }
        text = words[i];
      }
      given_[option.name].push_back(text);
    }
  }

  /// Returns whether a command line asks for help.
  [[nodiscard]] static bool is_help(int argc, char const* const* argv)
  {
    return std::any_of(argv + 1, argv + argc, [](std::string const& word) { return word == "--help" || word == "-h"; });
  }

  [[nodiscard]] bool has(std::string const& name) const { return given_.count(name) != 0; }

  /// Returns whether a flag was given, other than as `--name=false`.
  [[nodiscard]] bool is_set(std::string const& name) const { return get<std::string>(name, "false") != "false"; }

  /// Returns the last value given, or `otherwise`. Throws std::invalid_argument if it is not a T.
  template <class T>
  [[nodiscard]] T get(std::string const& name, T otherwise) const
  {
    auto const found = given_.find(name);
    if (found == given_.end()) { return otherwise; }
    auto const& text = found->second.back();
    if constexpr (std::is_same_v<T, std::string>) {
      return text;
    } else {
      T result{};
      std::istringstream in{text};
      bool const negative = std::is_unsigned_v<T> && text.find('-') != std::string::npos;
      if (!(in >> result) || !in.eof() || negative) {
        throw std::invalid_argument{"option '" + name + "' has no valid value: '" + text + "'"};
      }
      return result;
    }
  }

  /// Returns all values given, in order.
  [[nodiscard]] std::vector<std::string> all(std::string const& name) const
  {
    auto const found = given_.find(name);
    return found == given_.end() ? std::vector<std::string>{} : found->second;
  }

  [[nodiscard]] std::string const& program() const noexcept { return program_; }

  /// Returns the help text of a program that also takes the options of Google Benchmark.
  [[nodiscard]] std::string help_with_harness() const
  {
    return help() +
           "\nAnd those of Google Benchmark: --benchmark_filter=<regex>, --benchmark_min_time=<seconds>, "
           "--benchmark_out=<file>, ...\n";
  }

  [[nodiscard]] std::string help() const
  {
    auto text = purpose_ + "\nUsage:\n  " + program_ + " [OPTION...]\n\n";
    for (auto const& option : declared_) {
      auto line = std::string{"  "} + (option.letter != 0 ? std::string{'-', option.letter, ','} : "   ") + " --" +
                  option.name + (option.has_value ? " arg" : "");
      line.resize(line.size() < 28 ? 28 : line.size() + 1, ' ');
      text += line + option.help + '\n';
    }
    return text;
  }

 private:
  struct declaration {
    char letter;
    std::string name;
    std::string help;
    bool has_value;
  };

  [[nodiscard]] declaration const& find(std::string const& name) const
  {
    for (auto const& option : declared_) {
      if (option.name == name) { return option; }
    }
    throw std::invalid_argument{"option '" + name + "' does not exist"};
  }

  [[nodiscard]] declaration const& find(char letter) const
  {
    for (auto const& option : declared_) {
      if (option.letter != 0 && option.letter == letter) { return option; }
    }
    throw std::invalid_argument{std::string{"option '"} + letter + "' does not exist"};
  }

  std::string program_;
  std::string purpose_;
  std::vector<declaration> declared_;
  std::map<std::string, std::vector<std::string>> given_;
};

/// Implements main(). Parses the options and returns the status of `run(options)`. For `--help`, prints the help text and
/// returns 0. Prints an exception and returns `failure`.
template <class Run>
[[nodiscard]] int run_with(options options, int argc, char const* const* argv, int failure, Run&& run)
{
  try {
    options.parse(argc, argv);
    if (options.is_set("help")) {
      std::fputs(options.help().c_str(), stdout);
      return 0;
    }
    return run(std::as_const(options));
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s: %s\n", options.program().c_str(), e.what());
    return failure;
  }
}

}  // namespace rmm::benchmarks
