// SPDX-License-Identifier: Apache-2.0
#include <tools/trace/advice.hpp>
#include <tools/trace/json_writer.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace rmm::tools {

namespace {

constexpr std::uint64_t rounding = std::uint64_t{2} << 20U;  // of an initial size

[[nodiscard]] bool is_candidate(replay_figures const& each) { return !each.first_failure && each.peak_reserved; }

/// In MiB or GiB.
[[nodiscard]] std::string readable(std::uint64_t bytes)
{
  auto const mib = static_cast<double>(bytes) / (1U << 20U);
  std::array<char, 40> text;
  std::snprintf(text.data(), text.size(), mib < 1024 ? "%.2f MiB" : "%.3f GiB", mib < 1024 ? mib : mib / 1024);
  return text.data();
}

/// A size for a configuration, rounded up.
[[nodiscard]] std::string size_text(std::uint64_t bytes)
{
  return std::to_string(bytes / rounding * 2 + (bytes % rounding != 0 ? 2 : 0)) + "MiB";
}

/// The configuration with that initial size; empty if it has one already or knows none.
[[nodiscard]] std::string with_initial_size(std::string const& configuration, std::uint64_t bytes)
{
  auto const kind = configuration.substr(0, configuration.find(','));
  if (kind != "pool" && kind != "elastic" && kind != "cached") { return {}; }
  if (configuration.find("initial") != std::string::npos) { return {}; }
  return kind + ",initial=" + size_text(bytes) + configuration.substr(kind.size());
}

[[nodiscard]] std::optional<std::size_t> best_of(std::vector<replay_figures> const& tried, std::uint64_t& least)
{
  least = ~std::uint64_t{0};
  for (auto const& each : tried) {
    if (is_candidate(each)) { least = std::min(least, *each.peak_reserved); }
  }
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < tried.size(); ++i) {
    auto const& each = tried[i];
    if (!is_candidate(each) || *each.peak_reserved > least + least / 10) { continue; }
    auto const rank = [&](replay_figures const& of) { return std::make_pair(of.upstream_calls, *of.peak_reserved); };
    if (!best || rank(each) < rank(tried[*best])) { best = i; }
  }
  return best;
}

}  // namespace

advice advise(replays& trace, std::vector<std::string> configurations, progress& shown)
{
  bool const tries_fixed_sizes = configurations.empty();
  if (tries_fixed_sizes) { configurations = {"elastic", "pool", "cached", "arena", "binning", "cuda_async"}; }
  advice result;
  auto const attempt = [&](std::string const& configuration) {
    shown.begin(configuration, trace.events());
    result.tried.push_back(trace.replay(configuration, {}, [&](std::size_t done) { shown.advance(done); }));
  };
  for (auto const& each : configurations) { attempt(each); }
  auto const live = result.tried.front().peak_live;
  for (auto const percent : {102U, 104U, 106U, 108U, 110U, 120U, 150U}) {
    if (!tries_fixed_sizes || result.tried.front().first_failure) { break; }
    auto const size = size_text(std::max<std::uint64_t>(live / 100 * percent, 1));
    attempt("pool,initial=" + size + ",max=" + size);
    if (!result.tried.back().first_failure) { break; }
    result.tried.pop_back();  // too small is no news
  }
  std::uint64_t least{};
  result.best = best_of(result.tried, least);
  if (!result.best) {
    result.why = "No configuration could serve the whole trace.";
    return result;
  }
  auto const first    = *result.best;
  auto const ready_at = with_initial_size(result.tried[first].configuration, *result.tried[first].peak_reserved);
  if (!ready_at.empty()) {
    attempt(ready_at);
    auto const& with     = result.tried.back();
    auto const& without  = result.tried[first];
    bool const is_better = is_candidate(with) && with.upstream_calls < without.upstream_calls &&
                           *with.peak_reserved <= *without.peak_reserved + rounding;
    if (is_better) { result.best = result.tried.size() - 1; }
  }
  auto const& best = result.tried[*result.best];
  result.why =
    "It needs " + readable(*best.peak_reserved) + " at most, for " + readable(best.peak_live) +
    " in use; the least of all tried is " + readable(least) +
    ". Of those within 10 % of that it makes the fewest calls to the device: " + std::to_string(best.upstream_calls) +
    ".";
  return result;
}

std::string text_of(advice const& given)
{
  std::string text;
  std::array<char, 256> line;
  std::snprintf(line.data(),
                line.size(),
                "%-40s %14s %8s %12s %10s\n",
                "configuration",
                "peak reserved",
                "unused",
                "device calls",
                "seconds");
  text += line.data();
  for (auto const& each : given.tried) {
    if (each.first_failure) {
      text += each.configuration + ": fails at event " + std::to_string(each.first_failure->event) + ": " +
              each.first_failure->text + '\n';
      continue;
    }
    auto const unused = each.fragmentation();
    std::snprintf(line.data(),
                  line.size(),
                  "%-40s %14s %6.1f %% %12llu %10.3f\n",
                  each.configuration.substr(0, 100).c_str(),
                  each.peak_reserved ? readable(*each.peak_reserved).c_str() : "-",
                  100 * unused.value_or(0),
                  static_cast<unsigned long long>(each.upstream_calls),
                  each.seconds);
    text += line.data();
  }
  text += '\n';
  if (given.best) { text += "RMM_RESOURCE=\"" + given.tried[*given.best].configuration + "\"\n"; }
  return text + given.why + '\n';
}

std::string json_of(advice const& given)
{
  json_writer out;
  auto const write = [&](replay_figures const& each) {
    out.begin_object().member("configuration", each.configuration).member("completed", !each.first_failure);
    if (each.first_failure) {
      out.member("failure", each.first_failure->text).member("failed_event", each.first_failure->event);
    }
    out.member("peak_live", each.peak_live).key("peak_reserved");
    if (each.peak_reserved) {
      out.value(*each.peak_reserved);
    } else {
      out.null();
    }
    out.key("fragmentation");
    if (auto const unused = each.fragmentation()) {
      out.value(*unused);
    } else {
      out.null();
    }
    out.member("upstream_calls", each.upstream_calls).member("seconds", each.seconds).end_object();
  };
  out.begin_object().key("recommendation");
  if (given.best) {
    write(given.tried[*given.best]);
  } else {
    out.null();
  }
  out.member("why", given.why).key("tried").begin_array();
  for (auto const& each : given.tried) { write(each); }
  out.end_array().end_object();
  return out.text() + '\n';
}

}  // namespace rmm::tools
