// SPDX-License-Identifier: Apache-2.0
#include <tools/recorded/pickle.hpp>
#include <tools/recorded/recorded_file.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace rmm::recorded {

using rmm::detail::action;

recorded_trace trace_of_log(std::vector<rmm::detail::event> const& events)
{
  recorded_trace result{};
  result.events.reserve(events.size());
  std::unordered_map<std::size_t, std::uint32_t> threads;
  std::map<std::tuple<int, std::uintptr_t, std::uint64_t>, std::uint32_t> places;
  for (auto const& each : events) {
    auto const thread = threads.try_emplace(each.thread_id, static_cast<std::uint32_t>(result.threads.size()));
    if (thread.second) { result.threads.push_back(each.thread_id); }
    auto const place =
      places.try_emplace({each.device, each.stream, each.stream_id}, static_cast<std::uint32_t>(result.places.size()));
    if (place.second) { result.places.push_back({each.device, 0, each.stream, each.stream_id}); }
    auto const what = each.act == action::ALLOCATE ? kind::allocate
                      : each.act == action::FREE   ? kind::free
                                                   : kind::allocate_failure;
    result.events.push_back(
      {each.time_ns, each.pointer, each.size, thread.first->second, place.first->second, no_stack, what});
  }
  return result;
}

namespace {

/// Makes times ascend. Code for timelines relies on that, and on sums of bytes that do not wrap: throws logic_error, which
/// names the event, if those of the allocations or of the regions do.
recorded_file with_times_in_order(recorded_file file)
{
  std::uint64_t t         = 0;
  std::uint64_t allocated = 0;
  for (auto& each : file.trace.events) {
    t            = std::max(t, each.time_ns);
    each.time_ns = t;
    if (each.what != kind::allocate) { continue; }
    allocated += each.bytes;
    if (allocated < each.bytes) {
      throw rmm::logic_error("the allocations until event " + std::to_string(&each - file.trace.events.data()) +
                             " come to more than 2^64-1 bytes");
    }
  }
  std::uint64_t reserved   = 0;
  constexpr auto most_ever = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  for (auto const& each : file.regions) {
    if (each.bytes > most_ever - reserved) {
      throw rmm::logic_error("the segments until event " + std::to_string(each.begin) +
                             " come to more than 2^63-1 bytes");
    }
    reserved += each.bytes;
  }
  return file;
}

recorded_file read_any(std::string const& path)
{
  std::array<char, 8> begin{};
  std::ifstream file{path, std::ios::binary};
  file.read(begin.data(), begin.size());
  std::string_view const start{begin.data(), static_cast<std::size_t>(file.gcount())};
  if (pickle::is_pickle(start)) { return read_torch_snapshot(trace_reader::content_of(path), path); }
  if (start.substr(0, 2) == "\x1F\x8B") {
    throw bad_trace{path, 0, "the file is compressed: gzip -d gives what can be read"};
  }
  bool const is_log = !start.empty() && !trace_reader::is_trace(start);
  if (!is_log) { return {trace_reader::read(path), "rmm trace 1", {}}; }
  rmm::detail::log_damage damage;
  recorded_file log{trace_of_log(rmm::detail::parse_csv(path, &damage)), "csv", {}};
  log.trace.cut_off_at   = damage.cut_off_at;
  log.trace.without_time = damage.without_time;
  return log;
}

}  // namespace

std::string damage_of(recorded_trace const& trace)
{
  std::string damage;
  auto const add = [&](std::uint64_t count, char const* what, char const* how) {
    if (count == 0) { return; }
    damage += damage.empty() ? "" : ", and ";
    damage += std::to_string(count) + what + (count == 1 ? "" : "s") + how;
  };
  if (trace.cut_off_at) { damage = "cut off at byte " + std::to_string(*trace.cut_off_at); }
  add(trace.missing_files, " file", " missing between its first and its last");
  add(trace.without_time, " line", " without a readable time, counted at the time before");
  return damage;
}

recorded_file read_recorded_file(std::string const& path)
{
  try {
    return with_times_in_order(read_any(path));
  } catch (rmm::logic_error const& error) {
    throw rmm::logic_error(path + ": " + error.what());
  }
}

}  // namespace rmm::recorded
