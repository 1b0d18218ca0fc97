// SPDX-License-Identifier: Apache-2.0
//
// COMPARE_BENCH: allocators of several libraries side by side in one process.

#include <benchmarks/compare/plot.hpp>
#include <benchmarks/compare/plugin.hpp>
#include <benchmarks/compare/report.hpp>
#include <benchmarks/compare/row.hpp>
#include <benchmarks/compare/synchronizations.hpp>
#include <benchmarks/compare/trace.hpp>
#include <benchmarks/utilities/device_work.hpp>
#include <benchmarks/utilities/options.hpp>

#include <cuda_runtime_api.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using compare::candidate;
using compare::result;
using compare::row;

void check(cudaError_t status)
{
  if (status != cudaSuccess) { throw std::runtime_error{cudaGetErrorString(status)}; }
}

rmm::benchmarks::options make_options()
{
  rmm::benchmarks::options options{"COMPARE_BENCH",
                                   "Compares allocators of device memory, side by side in one process."};
  options.value('r', "row", "run the rows that match this shell pattern (repeatable)")
    .value('p', "plugin", "run the allocators that match this shell pattern (repeatable)")
    .value('s', "seconds", "least seconds that a row is timed (0.3)")
    .value('t', "threads", "thread counts of the rows threads-T, separated by commas (1,2,4,8,16)")
    .value(0, "pool", "size of a pool in GiB (16)")
    .value(0, "seeds", "number of random sequences of the rows frag-* (5)")
    .value(0, "repeat", "number of runs; figures are their medians (1)")
    .value(0, "order", "number that the order of the allocators within a row comes from (random)")
    .value(0, "trace", "replay this trace as a row of its own (repeatable)")
    .value(0, "plugins", "folder of the plug-ins (the program's folder)")
    .value(0, "targets", "file of targets, or `own` for this project's; exit status 1 if one is missed")
    .value(0, "csv", "write all figures to this file")
    .value(0, "svg", "draw the figures into this folder")
    .flag('l', "list", "list rows and allocators, and run nothing")
    .flag('q', "quiet", "do not report progress on standard error")
    .flag('h', "help", "print this text");
  return options;
}

bool matches_any(std::string const& name, std::vector<std::string> const& patterns)
{
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](std::string const& pattern) {
           return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
         });
}

/// Prints the machine and the versions. Returns whether the CUDA runtime is simulated.
bool print_machine()
{
  cudaDeviceProp properties{};
  int device{};
  int driver{};
  int runtime{};
  int devices{};
  check(cudaGetDevice(&device));
  check(cudaGetDeviceCount(&devices));
  check(cudaGetDeviceProperties(&properties, device));
  check(cudaDriverGetVersion(&driver));
  check(cudaRuntimeGetVersion(&runtime));
  bool const simulated = std::strstr(properties.name, "simulated") != nullptr;
  if (simulated) { std::puts("Simulated CUDA runtime: what is measured is the cost on the host alone."); }
  std::printf("%s (%d visible), CUDA runtime %d.%d, driver %d.%d, %u host cores%s\n",
              properties.name,
              devices,
              runtime / 1000,
              runtime % 1000 / 10,
              driver / 1000,
              driver % 1000 / 10,
              std::thread::hardware_concurrency(),
              compare::counts_synchronizations() ? "" : "; synchronisations cannot be counted (static CUDA runtime)");
  return simulated;
}

std::vector<unsigned> parse_thread_counts(std::string const& text)
{
  std::vector<unsigned> counts;
  std::istringstream in{text};
  for (std::string word; std::getline(in, word, ',');) {
    auto const count = std::stoi(word);
    if (count < 1 || count > 1024) { throw std::invalid_argument{"option 'threads' takes counts of 1 to 1024"}; }
    counts.push_back(static_cast<unsigned>(count));
  }
  return counts;
}

bool can_run(row const& r, candidate const& c, bool simulated)
{
  bool const has_kernels = rmm::benchmarks::device_work_kind() == rmm::benchmarks::device_work::kernels && !simulated;
  return c.has(r.needs) && (!r.needs_kernels || has_kernels);
}

/// Runs a row `repeat` times on each allocator. They take turns, each time in another order, so that what the machine does
/// meanwhile concerns them all. An allocator that fails has no further turn. The results are in the order of the candidates.
std::vector<result> run_row(row const& r,
                            std::vector<candidate const*> const& candidates,
                            compare::settings const& settings,
                            int repeat,
                            bool quiet,
                            std::mt19937& random)
{
  std::vector<result> outcomes;
  for (auto const* const c : candidates) { outcomes.push_back({r.name, c->name(), {}, {}}); }
  std::vector<std::vector<compare::figures>> runs(candidates.size());
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int turn = 0; turn < repeat; ++turn) {
    std::shuffle(order.begin(), order.end(), random);
    for (auto const index : order) {
      auto& outcome = outcomes[index];
      if (!outcome.failure.empty()) { continue; }
      if (turn == 0 && !quiet) { std::fprintf(stderr, "%s: %s\n", r.name.c_str(), outcome.allocator.c_str()); }
      try {
        runs[index].push_back(r.run(*candidates[index], settings));
      } catch (std::exception const& e) {
        outcome.failure = e.what();
        if (outcome.failure.empty()) { outcome.failure = "failed"; }
      }
      static_cast<void>(cudaGetLastError());
    }
  }
  for (std::size_t i = 0; i != outcomes.size(); ++i) {
    if (outcomes[i].failure.empty()) { outcomes[i].values = compare::medians(runs[i]); }
  }
  return outcomes;
}

/// The figures `name` of all rows that have it, one series for each allocator.
compare::dot_plot make_plot(std::vector<result> const& results,
                            std::vector<candidate> const& candidates,
                            std::string const& name,
                            std::string const& title,
                            std::string const& unit,
                            bool logarithmic)
{
  compare::dot_plot plot{title, unit, logarithmic, {}, {}};
  for (auto const& r : results) {
    bool const known = std::find(plot.labels.begin(), plot.labels.end(), r.row) != plot.labels.end();
    if (!known && compare::find_figure(r.values, name)) { plot.labels.push_back(r.row); }
  }
  for (auto const& c : candidates) {
    compare::dot_plot::series series{c.name(), {}};
    for (auto const& label : plot.labels) {
      auto const found = std::find_if(
        results.begin(), results.end(), [&](result const& r) { return r.row == label && r.allocator == c.name(); });
      series.values.push_back(found != results.end() ? compare::find_figure(found->values, name) : std::nullopt);
    }
    bool const has_values =
      std::any_of(series.values.begin(), series.values.end(), [](auto const& value) { return value.has_value(); });
    if (has_values) { plot.all.push_back(std::move(series)); }
  }
  return plot;
}

void draw(std::string const& folder, std::vector<result> const& results, std::vector<candidate> const& candidates)
{
  struct drawing {
    char const* file;
    char const* figure;
    char const* title;
    char const* unit;
    bool logarithmic;
  };
  std::filesystem::create_directories(folder);
  for (auto const& d :
       {drawing{"times.svg", "ns", "Time of an operation", "ns", true},
        drawing{"tails.svg", "p999_ns", "Time that 999 of 1000 operations stay under", "ns", true},
        drawing{"shares.svg", "mean_share", "Share in use when an allocation fails (mean)", "", false},
        drawing{"worst_shares.svg", "worst_share", "The same, worst", "", false},
        drawing{"traces.svg", "smallest_over_peak", "Smallest pool over peak of live bytes", "", false}}) {
    auto const plot = make_plot(results, candidates, d.figure, d.title, d.unit, d.logarithmic);
    if (plot.labels.empty()) { continue; }
    std::ofstream out{folder + "/" + d.file};
    compare::write_svg(out, plot);
    if (!out.flush()) { throw std::runtime_error{folder + "/" + d.file + " cannot be written"}; }
  }
}

void write_csv(std::string const& path, std::vector<result> const& results)
{
  std::ofstream out{path};
  compare::write_csv(out, results);
  if (!out.flush()) { throw std::runtime_error{path + " cannot be written"}; }
}

std::vector<compare::target> read_targets(std::string const& name)
{
  if (name == "own") {
    std::istringstream in{compare::own_targets};
    return compare::parse_targets(in);
  }
  std::ifstream in{name};
  if (!in) { throw std::runtime_error{name + " cannot be read"}; }
  return compare::parse_targets(in);
}

int run(rmm::benchmarks::options const& options)
{
  compare::settings settings;
  settings.seconds    = options.get("seconds", settings.seconds);
  settings.pool_bytes = options.get<std::size_t>("pool", settings.pool_bytes / compare::gib) * compare::gib;
  settings.seeds      = options.get("seeds", settings.seeds);
  auto const repeat   = std::max(1, options.get("repeat", 1));
  auto const order    = options.get("order", std::random_device{}());
  auto const targets =
    options.has("targets") ? read_targets(options.get<std::string>("targets", "")) : std::vector<compare::target>{};

  bool const simulated = print_machine();
  int devices{};
  check(cudaGetDeviceCount(&devices));

  auto rows = compare::make_rows(devices, parse_thread_counts(options.get<std::string>("threads", "1,2,4,8,16")));
  std::vector<row> chosen;
  for (auto const& path : options.all("trace")) { chosen.push_back(compare::make_trace_row(path)); }
  bool const only_traces = !chosen.empty() && !options.has("row");
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(chosen), [&](row const& r) {
    return !only_traces && matches_any(r.name, options.all("row"));
  });

  auto const folder =
    options.get<std::string>("plugins", std::filesystem::read_symlink("/proc/self/exe").parent_path());
  auto found        = compare::load_plugins(folder);
  auto const extras = compare::built_in_candidates();
  found.insert(found.end(), extras.begin(), extras.end());
  std::vector<candidate> candidates;
  for (bool const ours : {true, false}) {  // RMM's allocators come first
    std::copy_if(found.begin(), found.end(), std::back_inserter(candidates), [&](candidate const& c) {
      return (c.name().rfind("rmm.", 0) == 0) == ours && matches_any(c.name(), options.all("plugin"));
    });
  }
  if (chosen.empty() || candidates.empty()) {
    throw std::runtime_error{"no row or no allocator matches the patterns: see --list"};
  }

  for (auto const& c : candidates) { std::printf("  %-20s %s\n", c.name().c_str(), c.description().c_str()); }
  if (options.is_set("list")) {
    for (auto const& r : chosen) { std::printf("  %-20s %s\n", r.name.c_str(), r.title.c_str()); }
    return 0;
  }
  std::printf("--order %u repeats the order of the allocators within a row\n", order);
  std::fflush(stdout);

  std::vector<result> results;
  std::mt19937 random{order};
  for (auto const& r : chosen) {
    std::vector<candidate const*> turn;
    for (auto const& c : candidates) {
      if (can_run(r, c, simulated)) { turn.push_back(&c); }
    }
    if (turn.empty() && r.needs_kernels) { std::printf("left out: %s needs kernels\n", r.name.c_str()); }
    auto const of_row = run_row(r, turn, settings, repeat, options.is_set("quiet"), random);
    results.insert(results.end(), of_row.begin(), of_row.end());
    if (options.has("csv")) {
      write_csv(options.get<std::string>("csv", ""), results);
    }  // after each row, for runs that are interrupted
  }

  compare::write_table(std::cout, results);
  if (options.has("svg")) { draw(options.get<std::string>("svg", ""), results, candidates); }
  if (targets.empty()) { return 0; }
  auto const missed = compare::judge(std::cout, results, targets);
  std::cout << missed << (missed == 1 ? " target" : " targets") << " missed\n";
  return missed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return rmm::benchmarks::run_with(make_options(), argc, argv, 2, run); }
