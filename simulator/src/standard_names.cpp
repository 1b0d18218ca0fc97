// SPDX-License-Identifier: Apache-2.0
#include "standard_names.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

namespace cudasim {
namespace {

[[nodiscard]] bool begins_with(std::string_view text, std::string_view part) noexcept
{
  return text.substr(0, part.size()) == part;
}

template <std::size_t Count>
[[nodiscard]] bool begins_with_any(std::string_view text, std::array<std::string_view, Count> const& parts) noexcept
{
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return begins_with(text, part); });
}

/// How lambdas of g++ and clang++ appear in demangled names.
constexpr std::array<std::string_view, 3> lambda_marks{"{lambda(", "'lambda", "$_"};

/// The start of the qualified name whose last part ends at `end`. Blanks and commas inside brackets belong to the name.
[[nodiscard]] std::size_t begin_of_name(std::string_view text, std::size_t end) noexcept
{
  constexpr std::array<std::string_view, 3> qualifiers{" const::", " volatile::", " &"};
  int depth{0};
  for (auto at = end; at != 0; --at) {
    auto const letter = text[at - 1];
    if (letter == '>' || letter == ')' || letter == ']' || letter == '}') { ++depth; }
    bool const opens = letter == '<' || letter == '(' || letter == '[' || letter == '{';
    bool const parts = letter == ',' || (letter == ' ' && !begins_with_any(text.substr(at - 1), qualifiers));
    if (depth == 0 && (opens || parts)) { return at; }
    if (opens) { --depth; }
  }
  return 0;
}

/// The end of the lambda that starts at `begin`: after its brackets, or its number.
[[nodiscard]] std::size_t end_of_lambda(std::string_view text, std::size_t begin) noexcept
{
  if (text[begin] == '$') { return std::min(text.find_first_not_of("0123456789", begin + 2), text.size()); }
  int depth{0};
  for (auto at = begin; at < text.size(); ++at) {
    if (text[at] == '{' || text[at] == '(') { ++depth; }
    if ((text[at] == '}' || text[at] == ')') && --depth == 0) { return at + 1; }
  }
  return text.size();
}

}  // namespace

bool is_standard_name(std::string_view symbol) noexcept
{
  if (!begins_with(symbol, "_Z")) { return false; }
  symbol.remove_prefix(2);
  // The name of a local entity begins with the function that contains it.
  while (begins_with(symbol, "Z")) { symbol.remove_prefix(1); }
  if (begins_with(symbol, "N")) {
    symbol.remove_prefix(std::min(symbol.find_first_not_of("rVKRO", 1), symbol.size()));
    constexpr std::array<std::string_view, 2> others{"9__gnu_cxx", "4cuda3std"};
    if (begins_with_any(symbol, others)) { return true; }
  }
  // "St" is std; the others are std::allocator, std::string and so on.
  return symbol.size() > 1 && symbol[0] == 'S' && std::string_view{"tabsiod"}.find(symbol[1]) != std::string_view::npos;
}

std::string written_name(char const* symbol)
{
  int status{};
  std::unique_ptr<char, void (*)(void*)> const text{abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free};
  return text != nullptr ? text.get() : symbol;
}

std::string_view lambda_of_program(std::string_view function) noexcept
{
  constexpr std::array<std::string_view, 3> standard{"std::", "__gnu_cxx::", "cuda::std::"};
  for (std::size_t at = 0; at < function.size(); ++at) {
    if (!begins_with_any(function.substr(at), lambda_marks)) { continue; }
    auto const begin = begin_of_name(function, at);
    if (!begins_with_any(function.substr(begin), standard)) {
      return function.substr(begin, end_of_lambda(function, at) - begin);
    }
  }
  return {};
}

}  // namespace cudasim
