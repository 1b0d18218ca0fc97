// SPDX-License-Identifier: Apache-2.0

// Reads texts that users write: sizes, configurations, and all environment variables that are more than a file name.

#include <rmm/detail/trace/trace_options.hpp>
#include <rmm/memory_amount.hpp>
#include <rmm/mr/detail/size_rounding.hpp>
#include <rmm/mr/resource_configuration.hpp>

#include "../../tools/audit/mode.hpp"
#include "../../tools/nvtx/range_tags.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

void require(bool holds, char const* what)
{
  if (holds) { return; }
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// Checks that a message stays short and printable. It quotes the text, which may be long and contain any byte.
void check_message(std::string_view message)
{
  require(message.size() < 2048, "messages are short");
  for (char const c : message) {
    require(c == '\n' || (c >= ' ' && c != '\x7F') || (static_cast<unsigned char>(c) & 0x80U) != 0,
            "no control character gets into a message");
  }
}

void read_size(std::string_view text)
{
  try {
    auto const amount = rmm::memory_amount::parse(text);
    require(rmm::memory_amount::parse(amount.text()) == amount, "parse(text()) is the same amount");
    require(amount.is_absolute() || amount.bytes(1000, 500) <= 1000, "a share is at most the whole");
  } catch (std::invalid_argument const& error) {
    check_message(error.what());
  }
}

void read_configuration(std::string_view text)
{
  try {
    auto const made = rmm::mr::resource_configuration::parse(text);
    auto const same = rmm::mr::resource_configuration::parse(made.text());
    require(same.text() == made.text(), "parse(text()) is the same configuration");
    for (auto below = made.upstream(); below != nullptr; below = below->upstream()) {
      require(rmm::mr::resource_configuration::parse(below->text()) == *below,
              "parse(text()) of an upstream is the same upstream");
    }
  } catch (std::invalid_argument const& error) {
    check_message(error.what());
  }
}

/// Sets a variable while `read` reads it. Whatever it has, it is read, or refused by one of two exceptions, which name it.
template <class Read>
void with_variable(char const* variable, std::string const& text, Read read)
{
  ::setenv(variable, text.c_str(), 1);
  auto const check = [&](std::string_view message) {
    check_message(message);
    require(message.find(variable) != std::string_view::npos, "a message names the variable");
  };
  try {
    read();
  } catch (std::invalid_argument const& error) {
    check(error.what());
  } catch (rmm::logic_error const& error) {
    check(error.what());
  }
  ::unsetenv(variable);
}

void read_environment(char const* variable, std::string const& text)
{
  with_variable(variable, text, [] {
    auto const options = rmm::mr::trace_options::from_environment();
    require(options.flush_interval.count() >= 0, "the flush interval is not negative");
  });
}

void read_resource(std::string const& text)
{
  with_variable("RMM_RESOURCE", text, [] {
    auto const made = rmm::mr::resource_configuration::from_environment();
    require(made.has_value() == (*std::getenv("RMM_RESOURCE") != '\0'), "a variable that is set names a resource");
  });
}

void read_rounding(std::string const& text)
{
  with_variable("RMM_UNROUNDED_SIZES", text, [&] {
    static_cast<void>(rmm::mr::detail::choose_size_rounding_by_environment());
    std::string const read{text.c_str()};
    require(read.empty() || read == "0" || read == "1", "another value is refused");
  });
}

/// The variable and the names of domains, separated by line ends; they end with the first zero byte.
void read_domains(std::string const& text)
{
  auto const end = text.find('\n');
  rmm::tools::range_tags tags{text.substr(0, end).c_str()};
  for (auto at = end; at != std::string::npos;) {
    auto const next = text.find('\n', at + 1);
    auto const name = std::string_view{text}.substr(at + 1, next == std::string::npos ? next : next - at - 1);
    auto const made = tags.domain(name);
    require(made < rmm::tools::range_tags::max_domains && tags.domain(name) == made, "a domain keeps its number");
    static_cast<void>(tags.is_ignored(made));
    at = next;
  }
}

/// The variable and the names of libraries, separated by line ends; they end with the first zero byte.
void read_audit(std::string const& text)
{
  using action     = rmm::tools::audit::mode::action;
  auto const end   = text.find('\n');
  auto const value = text.substr(0, end);
  auto const made  = rmm::tools::audit::read_mode(value.c_str());
  if (!made.complaint.empty()) {
    check_message(made.complaint);
    require(made.does == action::report && made.text == "report", "a wrong value does nothing but report");
  }
  require(made.libraries.empty() || made.does == action::allow || made.does == action::deny, "patterns have a use");
  require(made.configuration.empty() || made.does == action::route, "a configuration has a use");
  for (auto at = end; at != std::string::npos;) {
    auto const next    = text.find('\n', at + 1);
    auto const library = text.substr(at + 1, next == std::string::npos ? next : next - at - 1);
    bool const refused = rmm::tools::audit::is_refused(made, library);
    bool const routed  = rmm::tools::audit::is_routed(made, library);
    require(!refused || made.does == action::allow || made.does == action::deny, "only these refuse");
    require(!routed || made.does == action::route, "only this routes");
    at = next;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size)
{
  if (size == 0) { return 0; }
  std::string_view const text{reinterpret_cast<char const*>(data) + 1, size - 1};
  switch (data[0]) {
    case 'a':
      read_audit(std::string{text}.c_str());
      break;
    case 'c':
      read_configuration(text);
      break;
    case 'f':
      read_environment("RMM_TRACE_MAX_FILE_SIZE", std::string{text});
      break;
    case 'd':
      read_domains(std::string{text}.c_str());
      break;
    case 'e':
      read_resource(std::string{text});
      break;
    case 'm':
      read_environment("RMM_TRACE_MAX_FILES", std::string{text});
      break;
    case 'n':
      read_environment("RMM_TRACE_FLUSH_MS", std::string{text});
      break;
    case 'q':
      read_configuration("pool,log=" + rmm::mr::detail::written_value(std::string{text} + ".csv"));
      break;
    case 'k':
      read_environment("RMM_TRACE_STACKS", std::string{text});
      break;
    case 't':
      read_environment("RMM_TRACE_FILE", std::string{text});
      break;
    case 'u':
      read_rounding(std::string{text});
      break;
    default:
      read_size(text);
  }
  return 0;
}
