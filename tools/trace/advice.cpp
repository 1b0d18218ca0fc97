// SPDX-License-Identifier: Apache-2.0
#include <tools/trace/advice.hpp>
#include <tools/trace/json_writer.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

namespace rmm::tools {

namespace {

constexpr std::uint64_t rounding = std::uint64_t{2} << 20U;  // of an initial size

[[nodiscard]] bool is_candidate(replay_figures const& each) { return !each.first_failure && each.peak_reserved; }

/// Returns a size in MiB or GiB.
[[nodiscard]] std::string readable(std::uint64_t bytes)
{
  auto const mib = static_cast<double>(bytes) / (1U << 20U);
  std::array<char, 40> text;
  std::snprintf(text.data(), text.size(), mib < 1024 ? "%.2f MiB" : "%.3f GiB", mib < 1024 ? mib : mib / 1024);
  return text.data();
}

/// Returns a size for a configuration, rounded up.
[[nodiscard]] std::string size_text(std::uint64_t bytes)
{
  return std::to_string(bytes / rounding * 2 + (bytes % rounding != 0 ? 2 : 0)) + "MiB";
}

/// Returns the configuration with that initial size; empty if it has one already or cannot have one.
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
    result.tried.pop_back();  // hide pools that are too small
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
  result.why       = "It needs " + readable(*best.peak_reserved) + " at most, for " + readable(best.peak_live) +
               " in use; the smallest peak of all configurations is " + readable(least) +
               ". Of those within 10 % of that peak, it makes the fewest calls to the device: " +
               std::to_string(best.upstream_calls) + ".";
  return result;
}

std::vector<device_trace> by_device(rmm::recorded::recorded_trace const& trace)
{
  std::map<int, std::vector<std::size_t>> positions;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    positions[trace.places[trace.events[i].place].device].push_back(i);
  }
  std::vector<device_trace> result;
  for (auto& [device, of_device] : positions) {
    auto& its   = result.emplace_back();
    its.device  = device;
    auto& made  = its.trace;
    made.header = trace.header;
    made.places = trace.places;
    made.tags   = trace.tags;
    made.events.reserve(of_device.size());
    std::map<std::uint32_t, std::uint32_t> threads;  // the replay needs few threads
    for (auto const position : of_device) {
      auto event                 = trace.events[position];
      auto const [found, is_new] = threads.try_emplace(event.thread, static_cast<std::uint32_t>(made.threads.size()));
      if (is_new) { made.threads.push_back(trace.threads[event.thread]); }
      event.thread = found->second;
      event.stack  = recorded::no_stack;
      made.events.push_back(event);
    }
    its.positions = std::move(of_device);
  }
  return result;
}

device_advice advise(device_trace const& of, advice given)
{
  for (auto& each : given.tried) {
    auto& failed = each.first_failure;
    if (failed && failed->event < of.positions.size()) { failed->event = of.positions[failed->event]; }
  }
  return {of.device, std::move(given)};
}

advice_for_devices advise(replays& all, std::vector<device_advice> devices, progress& shown)
{
  std::vector<device_advice const*> by_need;
  for (auto const& each : devices) {
    if (each.given.best) { by_need.push_back(&each); }
  }
  auto const peak = [](device_advice const* of) { return of->given.tried[*of->given.best].peak_live; };
  std::sort(by_need.begin(), by_need.end(), [&](auto const* lhs, auto const* rhs) {
    return std::make_pair(peak(rhs), lhs) < std::make_pair(peak(lhs), rhs);  // of equal devices, the first
  });
  advice together;
  together.why = "No configuration could serve the whole trace.";
  for (auto const* const each : by_need) {
    auto const& configuration = each->given.tried[*each->given.best].configuration;
    shown.begin(configuration + " on all devices", all.events());
    together.tried.push_back(all.replay(configuration, {}, [&](std::size_t done) { shown.advance(done); }));
    auto const& figures = together.tried.back();
    if (!is_candidate(figures)) { continue; }
    together.best = together.tried.size() - 1;
    together.why  = "On each device, the configuration recommended for device " + std::to_string(each->device) +
                   ": all devices together need " + readable(*figures.peak_reserved) + " at most, for " +
                   readable(figures.peak_live) + " in use.";
    break;
  }
  return {std::move(devices), std::move(together)};
}

namespace {

/// Returns a line for each configuration.
[[nodiscard]] std::string table_of(advice const& given)
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
  return text + '\n';
}

/// Returns the setting for the whole program.
[[nodiscard]] std::string recommendation_of(advice const& given)
{
  if (!given.best) { return given.why + '\n'; }
  return "RMM_RESOURCE=\"" + given.tried[*given.best].configuration + "\"\n" + given.why + '\n';
}

}  // namespace

std::string text_of(advice const& given) { return table_of(given) + recommendation_of(given); }

std::string text_of(advice_for_devices const& given)
{
  std::string text;
  for (auto const& [device, its] : given.devices) {
    auto const name = "device " + std::to_string(device);
    text += name + '\n' + table_of(its);
    if (its.best) { text += name + ": \"" + its.tried[*its.best].configuration + "\"\n"; }
    text += its.why + "\n\n";
  }
  return text + "all devices\n" + recommendation_of(given.together);
}

namespace {

void write(json_writer& out, replay_figures const& of)
{
  out.begin_object().member("configuration", of.configuration).member("completed", !of.first_failure);
  if (of.first_failure) {
    out.member("failure", of.first_failure->text).member("failed_event", of.first_failure->event);
  }
  out.member("peak_live", of.peak_live).key("peak_reserved");
  if (of.peak_reserved) {
    out.value(*of.peak_reserved);
  } else {
    out.null();
  }
  out.key("fragmentation");
  if (auto const unused = of.fragmentation()) {
    out.value(*unused);
  } else {
    out.null();
  }
  out.member("upstream_calls", of.upstream_calls).member("seconds", of.seconds).end_object();
}

void write_members(json_writer& out, advice const& of)
{
  out.key("recommendation");
  if (of.best) {
    write(out, of.tried[*of.best]);
  } else {
    out.null();
  }
  out.member("why", of.why).key("tried").begin_array();
  for (auto const& each : of.tried) { write(out, each); }
  out.end_array();
}

}  // namespace

std::string json_of(advice const& given)
{
  json_writer out;
  out.begin_object();
  write_members(out, given);
  out.end_object();
  return out.text() + '\n';
}

std::string json_of(advice_for_devices const& given)
{
  json_writer out;
  out.begin_object();
  write_members(out, given.together);
  out.key("devices").begin_array();
  for (auto const& [device, its] : given.devices) {
    out.begin_object().member("device", device);
    write_members(out, its);
    out.end_object();
  }
  out.end_array().end_object();
  return out.text() + '\n';
}

}  // namespace rmm::tools
