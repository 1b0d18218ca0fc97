// SPDX-License-Identifier: Apache-2.0
//
// rmm-trace: reports, advice and exports of a recorded trace of allocations. Exit status: 0 on success, 2 if the
// command line or the file is wrong, 1 for other failures.

#include <tools/recorded/progress.hpp>
#include <tools/recorded/recorded_file.hpp>
#include <tools/recorded/terminal_text.hpp>
#include <tools/trace/advice.hpp>
#include <tools/trace/exports.hpp>
#include <tools/trace/page.hpp>
#include <tools/trace/replays.hpp>
#include <tools/trace/report.hpp>

#include <rmm/error.hpp>
#include <rmm/memory_amount.hpp>

#include <cudasim/cudasim.h>

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using rmm::recorded::progress;
using rmm::recorded::recorded_file;

enum status : int { good = 0, failed = 1, wrong_input = 2 };

/// Thrown for an unusable command line or file.
struct input_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr char const* general_help = R"(rmm-trace: analyses the recorded memory of a program

  rmm-trace report TRACE -o PAGE.html   makes a page about it, for any browser
  rmm-trace advise TRACE                finds the best configuration for the program, by replays
  rmm-trace export TRACE --to FORMAT -o FILE
                                        converts it for other programs: perfetto, torch, csv

TRACE is a trace of trace_resource_adaptor, a CSV log of logging_resource_adaptor or a memory snapshot of PyTorch.
`rmm-trace COMMAND --help` lists the options. No GPU is needed: replays run on a simulated one.
The exit status is 0 on success, 2 if the command line or TRACE is wrong, and 1 for other failures.
)";

constexpr char const* report_help = R"(rmm-trace report TRACE -o FILE [OPTION...]

Writes a page with the memory in use and reserved over time, a map of the pool, the largest and longest allocations, leaks,
failures, and what the same program would have needed under other configurations.

  -o, --output FILE         the page, or the figures with --json; - is standard output, the default with --json
      --what-if CONFIG      replay under this configuration; can be repeated. The first one supplies the reserved memory that
                            the page shows. Default: pool, elastic, cuda_async
      --no-what-if          replay nothing: faster, but reserved memory is shown only if TRACE has it
      --memory AMOUNT       memory of each simulated device. Default: 141GB, or twice the peak of memory in use if that is more
      --json                write only the figures, as JSON
)";

constexpr char const* advise_help = R"(rmm-trace advise TRACE [OPTION...]

Replays the trace under several configurations and recommends one, for RMM_RESOURCE or rmm::mr::configured_resource. If the trace
has several devices, recommends one for each, and one of these for all devices.

      --what-if CONFIG      try this configuration; can be repeated. Default: all kinds of pools
      --memory AMOUNT       memory of each simulated device. Default: 141GB, or twice the peak of memory in use if that is more
      --json                write the figures as JSON
)";

constexpr char const* export_help = R"(rmm-trace export TRACE --to FORMAT -o FILE

      --to perfetto         JSON for ui.perfetto.dev or chrome://tracing
      --to torch            a memory snapshot for pytorch.org/memory_viz
      --to csv              the log that logging_resource_adaptor writes
  -o, --output FILE         - is standard output
)";

struct command_line {
  std::string command;
  std::string trace;
  std::string output;
  std::string format;
  std::vector<std::string> configurations;
  std::optional<std::size_t> memory;
  bool wants_help{false};
  bool wants_json{false};
  bool wants_no_replay{false};
};

/// Returns an amount of memory in bytes.
std::size_t bytes_of(std::string const& text)
{
  auto const amount = rmm::memory_amount::parse(text);
  if (!amount.is_absolute()) { throw input_error{"--memory takes an amount, not a share: '" + text + "'"}; }
  return amount.bytes(0, 0);
}

command_line parse(std::vector<std::string> const& words)
{
  command_line line;
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    line.wants_help = true;
    return line;
  }
  line.command = words[0];
  if (line.command != "report" && line.command != "advise" && line.command != "export") {
    throw input_error{"'" + line.command + "' is not a command; use report, advise or export"};
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    auto word = words[i];
    std::optional<std::string> attached;
    auto const equals = word.find('=');
    if (word.substr(0, 2) == "--" && equals != std::string::npos) {
      attached = word.substr(equals + 1);
      word.resize(equals);
    }
    auto const value = [&] {
      if (attached) { return *std::exchange(attached, std::nullopt); }
      if (i + 1 == words.size()) { throw input_error{"option '" + word + "' needs a value"}; }
      return words[++i];
    };
    bool const is_export = line.command == "export";
    bool const is_report = line.command == "report";
    if (word == "--help" || word == "-h") {
      line.wants_help = true;
    } else if ((word == "-o" || word == "--output") && line.command != "advise") {
      line.output = value();
    } else if (word == "--to" && is_export) {
      line.format = value();
    } else if (word == "--what-if" && !is_export) {
      line.configurations.push_back(value());
    } else if (word == "--no-what-if" && is_report) {
      line.wants_no_replay = true;
    } else if (word == "--memory" && !is_export) {
      line.memory = bytes_of(value());
    } else if (word == "--json" && !is_export) {
      line.wants_json = true;
    } else if (word.size() > 1 && word[0] == '-') {
      throw input_error{"'" + line.command + "' has no option '" + word + "'"};
    } else if (line.trace.empty()) {
      line.trace = word;
    } else {
      throw input_error{"unexpected argument '" + word + "'"};
    }
    if (attached) { throw input_error{"option '" + word + "' takes no value"}; }
  }
  if (line.wants_help) { return line; }
  if (line.trace.empty()) { throw input_error{"'" + line.command + "' needs a trace"}; }
  if (line.output.empty() && line.command != "advise") {
    if (line.wants_json) {
      line.output = "-";
    } else {
      throw input_error{"'" + line.command + "' needs -o FILE"};
    }
  }
  std::set<std::string> const formats{"perfetto", "torch", "csv"};
  if (line.command == "export" && formats.count(line.format) == 0) {
    throw input_error{"'export' needs --to perfetto, torch or csv"};
  }
  for (auto const& each : line.configurations) { rmm::tools::replays::check_configuration(each); }
  return line;
}

recorded_file read(std::string const& path, progress& shown)
{
  shown.begin("reading " + path);
  auto file = rmm::recorded::read_recorded_file(path);
  for (auto const& place : file.trace.places) {
    if (place.device < 0 || place.device >= rmm::tools::replays::most_devices) {
      throw input_error{path + ": there are events of device " + std::to_string(place.device) + ", and at most " +
                        std::to_string(rmm::tools::replays::most_devices) + " devices are known"};
    }
  }
  return file;
}

/// Returns the memory of each simulated device.
std::size_t memory_for(command_line const& line, rmm::recorded::recorded_file const& file)
{
  if (line.memory) { return *line.memory; }
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  rmm::tools::lifetimes const all{file.trace};
  for (std::size_t i = 0; i < file.trace.events.size(); ++i) {
    if (auto const lost = all.replaced_by(i); lost != rmm::tools::none) { live -= all.all()[lost].bytes; }
    if (all.of_event(i) == rmm::tools::none) { continue; }
    auto const bytes = all.all()[all.of_event(i)].bytes;
    live += file.trace.events[i].what == rmm::recorded::kind::allocate ? bytes : 0 - bytes;
    peak = std::max(peak, live);
  }
  constexpr std::uint64_t most = std::uint64_t{1} << 44U;
  return std::max(cudasim::environment_options().memory_bytes, std::size_t{2 * std::min(peak, most)});
}

/// Checks, before long work, that its result can be written. Throws input_error if the output is the trace itself, and
/// std::runtime_error if the file cannot be written.
void check_output(command_line const& line)
{
  if (line.output == "-") { return; }
  struct stat of_output {};
  struct stat of_trace {};
  bool const is_there = ::stat(line.output.c_str(), &of_output) == 0;
  // Skipped for pipes: their reader would take the end of this test for the end of the output.
  if (is_there && !S_ISREG(of_output.st_mode)) { return; }
  if (is_there && ::stat(line.trace.c_str(), &of_trace) == 0 && of_output.st_dev == of_trace.st_dev &&
      of_output.st_ino == of_trace.st_ino) {
    throw input_error{"'" + line.output + "' is the trace itself"};
  }
  if (!std::ofstream{line.output, std::ios::binary | std::ios::app}) {
    throw std::runtime_error{"'" + line.output + "' cannot be written"};
  }
}

/// Calls `content` with the output stream. Throws std::runtime_error if writing fails.
template <class Content>
void write(std::string const& path, Content const& content)
{
  if (path == "-") {
    content(std::cout);
    if (!std::cout.flush()) { throw std::runtime_error{"standard output cannot be written"}; }
    return;
  }
  std::ofstream out{path, std::ios::binary | std::ios::trunc};
  content(out);
  if (!out.flush()) { throw std::runtime_error{"'" + path + "' cannot be written"}; }
}

std::uint64_t size_of(std::string const& path)
{
  struct stat is {};
  return ::stat(path.c_str(), &is) == 0 ? static_cast<std::uint64_t>(is.st_size) : 0;
}

status make_report(command_line const& line)
{
  progress shown;
  auto const file = read(line.trace, shown);
  check_output(line);
  shown.begin("reducing");
  auto const slash = line.trace.rfind('/');
  rmm::tools::report report{file,
                            slash == std::string::npos ? line.trace : line.trace.substr(slash + 1),
                            file.trace.bytes != 0 ? file.trace.bytes : size_of(line.trace)};
  auto configurations = line.configurations;
  if (configurations.empty()) { configurations = {"pool", "elastic", "cuda_async"}; }
  if (!line.wants_no_replay && !file.trace.events.empty()) {
    rmm::tools::replays trace{file.trace, memory_for(line, file)};
    auto const moments = report.moments();
    for (auto const& each : configurations) {
      shown.begin("replaying on " + each, trace.events());
      report.add(trace.replay(each, moments, [&](std::size_t done) { shown.advance(done); }));
    }
  }
  shown.begin("writing " + line.output);
  auto const document = report.document();
  write(line.output, [&](std::ostream& out) {
    if (line.wants_json) {
      out << document << '\n';
    } else {
      out << rmm::tools::page_of(rmm::tools::page_template(), document);
    }
  });
  return good;
}

/// Warns on standard error if the trace is incomplete, so that the program needed more memory than it shows.
void warn_of_gaps(std::string const& path, recorded_file const& file)
{
  auto const warn = [&](std::string const& what) {
    std::cerr << "rmm-trace: warning: " << rmm::recorded::terminal_text(path) << ": " << what << '\n';
  };
  if (auto const damage = rmm::recorded::damage_of(file.trace); !damage.empty()) {
    warn(damage + "; the figures describe what could be read");
  }
  if (file.trace.lost != 0) {
    warn(std::to_string(file.trace.lost) + " events could not be recorded: the figures are too low");
  }
  auto const unknown = rmm::tools::lifetimes{file.trace}.unknown_frees();
  if (unknown != 0) {
    warn("frees without an allocation in the trace: " + std::to_string(unknown) +
         ", because it began later or lost events: the figures are too low");
  }
}

status give_advice(command_line const& line)
{
  progress shown;
  auto const file = read(line.trace, shown);
  if (file.trace.events.empty()) { throw input_error{line.trace + ": the trace has no events"}; }
  auto const memory = memory_for(line, file);
  auto const answer = [&](auto const& advice, bool has_one) {
    shown.clear();
    warn_of_gaps(line.trace, file);
    write("-", [&](std::ostream& out) { out << (line.wants_json ? json_of(advice) : text_of(advice)); });
    return has_one ? good : failed;
  };
  auto const devices = rmm::tools::by_device(file.trace);
  if (devices.size() == 1) {
    rmm::tools::replays trace{file.trace, memory};
    auto const advice = rmm::tools::advise(trace, line.configurations, shown);
    return answer(advice, advice.best.has_value());
  }
  std::vector<rmm::tools::device_advice> of_devices;
  for (auto const& each : devices) {
    rmm::tools::replays trace{each.trace, memory};
    of_devices.push_back(rmm::tools::advise(each, rmm::tools::advise(trace, line.configurations, shown)));
  }
  rmm::tools::replays all{file.trace, memory};
  auto const advice = rmm::tools::advise(all, std::move(of_devices), shown);
  return answer(advice, advice.together.best.has_value());
}

status make_export(command_line const& line)
{
  progress shown;
  auto const file = read(line.trace, shown);
  check_output(line);
  shown.begin("writing " + line.output);
  write(line.output, [&](std::ostream& out) {
    if (line.format == "perfetto") {
      rmm::tools::export_perfetto(file, out);
    } else if (line.format == "torch") {
      rmm::tools::export_torch(file, out);
    } else {
      rmm::tools::export_csv(file, out);
    }
  });
  return good;
}

status run(command_line const& line)
{
  if (line.wants_help) {
    std::cout << (line.command.empty()       ? general_help
                  : line.command == "report" ? report_help
                  : line.command == "advise" ? advise_help
                                             : export_help);
    return good;
  }
  if (line.command == "report") { return make_report(line); }
  return line.command == "advise" ? give_advice(line) : make_export(line);
}

int complain(std::exception const& error, status verdict)
{
  std::cerr << "rmm-trace: " << rmm::recorded::terminal_text(error.what()) << '\n';
  return verdict;
}

}  // namespace

int main(int argc, char** argv)
{
  std::ios::sync_with_stdio(false);
  try {
    return run(parse(std::vector<std::string>(argv + 1, argv + argc)));
  } catch (input_error const& error) {
    return complain(error, wrong_input);
  } catch (rmm::recorded::bad_trace const& error) {
    return complain(error, wrong_input);
  } catch (rmm::logic_error const& error) {
    return complain(error, wrong_input);
  } catch (std::invalid_argument const& error) {
    return complain(error, wrong_input);
  } catch (std::exception const& error) {
    return complain(error, failed);
  }
}
