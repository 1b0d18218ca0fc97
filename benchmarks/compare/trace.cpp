// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/compare/trace.hpp>

#include <benchmarks/compare/measure.hpp>

#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

namespace compare {

namespace {

[[noreturn]] void throw_malformed(std::size_t line, std::string const& what)
{
  throw std::runtime_error{"line " + std::to_string(line) + " of the trace: " + what};
}

/// Removes the next field from a row and returns it.
std::string_view next_field(std::string_view& row)
{
  auto const comma = row.find(',');
  auto const field = row.substr(0, comma);
  row.remove_prefix(comma == std::string_view::npos ? row.size() : comma + 1);
  return field;
}

template <class Number>
Number next_number(std::string_view& row, std::size_t line)
{
  auto const field = next_field(row);
  Number value{};
  auto const [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc{} || end != field.data() + field.size()) {
    throw_malformed(line, "'" + std::string{field} + "' is not a number");
  }
  return value;
}

/// Quotes `word` so that a shell reads it as one word.
std::string quoted(std::string const& word)
{
  std::string result{"'"};
  for (auto const c : word) { result += c == '\'' ? std::string{"'\\''"} : std::string{c}; }
  return result + "'";
}

std::string unpacked(std::string const& path)
{
  auto const close = [](std::FILE* pipe) { return pclose(pipe); };
  std::unique_ptr<std::FILE, decltype(close)> pipe{popen(("gzip -dc -- " + quoted(path)).c_str(), "r"), close};
  if (pipe == nullptr) { throw std::runtime_error{"gzip cannot be started"}; }
  std::string text;
  std::array<char, 65536> buffer;
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) != 0;) {
    text.append(buffer.data(), n);
  }
  if (pclose(pipe.release()) != 0) { throw std::runtime_error{"gzip cannot read " + path}; }
  return text;
}

bool ends_with(std::string const& text, std::string_view end)
{
  return text.size() >= end.size() && std::string_view{text}.substr(text.size() - end.size()) == end;
}

std::vector<stream> make_streams(allocator const& memory, std::size_t count)
{
  std::vector<stream> streams;
  streams.reserve(count);
  for (std::size_t i = 0; i < count; ++i) { streams.emplace_back(memory); }
  return streams;
}

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

trace parse_trace(std::istream& in)
{
  trace result;
  std::string text;
  std::size_t line = 1;
  if (!std::getline(in, text) || text != "op,block,bytes,stream") {
    throw_malformed(line, "the header is not op,block,bytes,stream");
  }
  std::vector<std::uint64_t> sizes;  // by block; 0 if it is not live
  std::vector<bool> known;
  std::size_t live = 0;
  while (std::getline(in, text)) {
    ++line;
    std::string_view row{text};
    auto const op = next_field(row);
    trace_event event{};
    event.frees  = op == "f";
    event.block  = next_number<std::uint32_t>(row, line);
    event.bytes  = next_number<std::uint64_t>(row, line);
    event.stream = next_number<std::uint32_t>(row, line);
    if (op != "a" && op != "f") { throw_malformed(line, "the operation is neither a nor f"); }
    if (event.block > result.events.size()) { throw_malformed(line, "a block has too high a number"); }
    if (event.stream > 1000) { throw_malformed(line, "a stream has too high a number"); }
    if (event.block >= sizes.size()) {
      sizes.resize(event.block + std::size_t{1});
      known.resize(event.block + std::size_t{1});
    }
    auto& size = sizes[event.block];
    if (event.frees) {
      if (size != event.bytes || event.bytes == 0) { throw_malformed(line, "frees what is not live with that size"); }
      live -= std::exchange(size, 0);
    } else {
      if (known[event.block]) { throw_malformed(line, "allocates a block for the second time"); }
      if (event.bytes == 0) { throw_malformed(line, "allocates nothing"); }
      known[event.block] = true;
      size               = event.bytes;
      live += event.bytes;
      result.peak_bytes = std::max(result.peak_bytes, live);
    }
    result.streams = std::max<std::size_t>(result.streams, event.stream + std::size_t{1});
    result.events.push_back(event);
  }
  result.blocks = sizes.size();
  return result;
}

trace read_trace(std::string const& path)
{
  if (ends_with(path, ".gz")) {
    std::istringstream in{unpacked(path)};
    return parse_trace(in);
  }
  std::ifstream in{path};
  if (!in) { throw std::runtime_error{path + " cannot be read"}; }
  return parse_trace(in);
}

std::size_t replay(trace const& events, allocator const& memory, std::vector<stream> const& streams)
{
  struct live_block {
    void* ptr;
    std::uint64_t bytes;
    std::uint32_t stream;
  };
  std::vector<live_block> blocks(events.blocks, live_block{});
  std::size_t index = 0;
  for (; index < events.events.size(); ++index) {
    auto const& event = events.events[index];
    auto& block       = blocks[event.block];
    if (event.frees) {
      memory.deallocate(std::exchange(block.ptr, nullptr), event.bytes, streams[event.stream]);
    } else {
      block = {memory.allocate(event.bytes, streams[event.stream]), event.bytes, event.stream};
      if (block.ptr == nullptr) { break; }
    }
  }
  for (auto const& block : blocks) {
    if (block.ptr != nullptr) { memory.deallocate(block.ptr, block.bytes, streams[block.stream]); }
  }
  return index;
}

std::size_t smallest_pool(trace const& events, candidate const& c)
{
  auto const fits = [&](std::size_t bytes) {
    auto const memory  = c.make(bytes, bytes);
    auto const streams = make_streams(memory, events.streams);
    return replay(events, memory, streams) == events.events.size();
  };
  auto const peak = round_up(events.peak_bytes);
  if (fits(peak)) { return peak; }
  auto too_small = peak;
  auto enough    = round_up(peak / 4 * 5);
  while (!fits(enough)) {
    if (enough / 8 >= peak) { return 0; }
    too_small = enough;
    enough *= 2;
  }
  while (enough - too_small > std::max<std::size_t>(peak / 2000, 256)) {
    auto const middle                   = round_up(too_small + (enough - too_small) / 2);
    (fits(middle) ? enough : too_small) = middle;
  }
  return enough;
}

row make_trace_row(std::string const& path)
{
  auto const events = std::make_shared<trace const>(read_trace(path));
  auto name         = path.substr(path.find_last_of('/') + 1);
  name              = name.substr(0, name.find('.'));

  auto const run = [events](candidate const& c, settings const& s) {
    figures result;
    {
      auto const memory  = c.make(round_up(events->peak_bytes * 2), 0);
      auto const streams = make_streams(memory, events->streams);
      auto const pass    = [&] { return replay(*events, memory, streams); };
      if (pass() == events->events.size()) { result = measure(s.seconds, pass).as_figures(); }
    }
    if (c.has(plugin_feature_memory)) {
      auto const memory  = c.make(0, 0);
      auto const streams = make_streams(memory, events->streams);
      if (replay(*events, memory, streams) == events->events.size() && memory.reserved() != 0) {
        result.push_back(
          {"reserved_over_live", static_cast<double>(memory.reserved()) / static_cast<double>(events->peak_bytes)});
      }
    }
    if (c.has(plugin_feature_bounded)) {
      auto const smallest = smallest_pool(*events, c);
      if (smallest != 0) {
        result.push_back(
          {"smallest_over_peak", static_cast<double>(smallest) / static_cast<double>(events->peak_bytes)});
      }
    }
    return result;
  };
  return {
    "trace-" + name, std::to_string(events->events.size()) + " events, time of one", plugin_feature_times, false, run};
}

}  // namespace compare
