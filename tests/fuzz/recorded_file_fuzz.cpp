// SPDX-License-Identifier: Apache-2.0

// Reads logs, binary traces and snapshots of PyTorch, and makes of them all that rmm-trace makes.
//
// Includes most of the sources that it tests, so that they are compiled with the fuzzer's flags.

#include "../../tools/recorded/pickle.cpp"
#include "../../tools/recorded/recorded_file.cpp"
#include "../../tools/recorded/torch_snapshot.cpp"
#include "../../tools/trace/exports.cpp"
#include "../../tools/trace/lifetimes.cpp"
#include "../../tools/trace/report.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace {

namespace trace = rmm::detail::trace;
using rmm::recorded::recorded_file;

void require(bool holds, char const* what)
{
  if (holds) { return; }
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

recorded_file read_log(std::string const& content)
{
  std::istringstream in{content};
  return {rmm::recorded::trace_of_log(rmm::detail::parse_csv(in)), "csv", {}};
}

/// Makes a trace of the bytes, in blocks with right lengths and checksums, because a fuzzer does not find those.
std::string trace_of_records(std::string_view records)
{
  trace::file_header header{};
  std::string content{reinterpret_cast<char const*>(&header), sizeof header};
  while (records.size() >= 4) {
    trace::block_header block{};
    block.thread        = static_cast<unsigned char>(records[0]) % 4U;
    block.events        = static_cast<unsigned char>(records[1]) % 32U;
    block.time_ns       = static_cast<unsigned char>(records[2]) * std::uint64_t{1000};
    block.payload_bytes = static_cast<unsigned char>(records[3]);
    records.remove_prefix(4);
    if (block.payload_bytes > records.size()) { block.payload_bytes = static_cast<std::uint32_t>(records.size()); }
    std::string payload{records.substr(0, block.payload_bytes)};
    records.remove_prefix(block.payload_bytes);
    payload.resize((payload.size() + 7) / 8 * 8);
    auto const sums   = trace::checksum_of(block, payload.data());
    block.sum         = sums.sum();
    block.sum_of_sums = sums.sum_of_sums();
    content.append(reinterpret_cast<char const*>(&block), sizeof block).append(payload);
  }
  return content;
}

recorded_file read_trace(std::string_view content)
{
  return {rmm::recorded::trace_reader::read(content, "input"), "trace", {}};
}

/// Checks that a message stays short and printable, whatever it quotes of the file.
void check_message(std::string_view message)
{
  require(message.size() < 300, "messages are short");
  for (char const c : message) { require(c >= ' ' && c <= '~', "messages are printable"); }
}

void check(rmm::recorded::recorded_trace const& read)
{
  for (auto const& event : read.events) {
    require(event.thread < read.threads.size(), "the thread of an event is in the list of threads");
    require(event.place < read.places.size(), "the place of an event is in the list of places");
    require(event.stack == rmm::recorded::no_stack || event.stack < read.stacks.size(),
            "the stack of an event is in the list of stacks");
  }
  for (auto const& place : read.places) {
    require(place.tag < read.tags.size(), "the tag of a place is in the list of tags");
    require(place.device >= 0 && place.device < trace::most_devices, "the device of a place is below the maximum");
  }
}

/// Does with a file what rmm-trace does.
void use(recorded_file read)
{
  check(read.trace);
  auto const file = rmm::recorded::with_times_in_order(std::move(read));
  std::ostringstream snapshot;
  std::ostringstream log;
  std::ostringstream timeline;
  rmm::tools::export_torch(file, snapshot);
  rmm::tools::export_csv(file, log);
  rmm::tools::export_perfetto(file, timeline);
  rmm::tools::report const made{file, "input", 1};
  static_cast<void>(made.moments());
  static_cast<void>(made.document());
  check(rmm::recorded::read_torch_snapshot(snapshot.str(), "exported").trace);
  require(read_log(log.str()).trace.events.size() == file.trace.events.size(), "an exported log has all events");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size)
{
  if (size == 0) { return 0; }
  std::string const content{reinterpret_cast<char const*>(data) + 1, size - 1};
  try {
    switch (data[0]) {
      case 'l':
        use(read_log("Thread,Time,Action,Pointer,Size,Stream,Device\n" + content));
        break;
      case 'p':
        use(rmm::recorded::read_torch_snapshot(content, "input"));
        break;
      case 'r':
        use(read_trace(trace_of_records(content)));
        break;
      case 't':
        use(read_trace(content));
        break;
      default:
        use(read_log(content));
    }
  } catch (rmm::recorded::bad_trace const& error) {  // a malformed file throws one of these two, and nothing else
    check_message(error.what());
  } catch (rmm::logic_error const& error) {
    check_message(error.what());
  }
  return 0;
}
