// SPDX-License-Identifier: Apache-2.0
//
// REPLAY_BENCH: a log of logging_resource_adaptor, replayed on other resources. The exit status is the verdict: 0 if each
// resource could do what the log asks.

#include <benchmarks/replay/log_replay.hpp>
#include <benchmarks/utilities/log_parser.hpp>
#include <benchmarks/utilities/options.hpp>
#include <benchmarks/utilities/resources.hpp>
#include <benchmarks/utilities/simulated_memory_resource.hpp>

#include <rmm/aligned.hpp>
#include <rmm/mr/managed_memory_resource.hpp>

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using rmm::benchmarks::allocation_history;
using rmm::benchmarks::log_replay;
using rmm::benchmarks::resource_ptr;
using rmm::mr::simulated_memory_resource;

/// A resource over the device, or over a simulated one of `bytes` bytes if that is not 0.
resource_ptr make_cuda(std::size_t) { return rmm::benchmarks::make_cuda(); }

resource_ptr make_managed(std::size_t) { return std::make_shared<rmm::mr::managed_memory_resource>(); }

resource_ptr make_pool(std::size_t bytes)
{
  if (bytes == 0) {
    return rmm::mr::make_owning_wrapper<rmm::mr::pool_memory_resource>(
      std::make_shared<rmm::mr::cuda_memory_resource>(), 0);
  }
  return rmm::mr::make_owning_wrapper<rmm::mr::pool_memory_resource>(
    std::make_shared<simulated_memory_resource>(bytes), bytes, bytes);
}

resource_ptr make_arena(std::size_t bytes)
{
  if (bytes == 0) { return rmm::benchmarks::make_arena(); }
  return rmm::mr::make_owning_wrapper<rmm::mr::arena_memory_resource>(
    std::make_shared<simulated_memory_resource>(bytes), bytes);
}

resource_ptr make_binning(std::size_t bytes)
{
  auto const binning = rmm::mr::make_owning_wrapper<rmm::mr::binning_memory_resource>(make_pool(bytes));
  for (unsigned exponent = 18; exponent <= 22; ++exponent) { binning->wrapped().add_bin(std::size_t{1} << exponent); }
  return binning;
}

struct resource_choice {
  char const* benchmark_name;
  resource_ptr (*make)(std::size_t bytes);
};

/// By the name of the command line.
std::map<std::string, resource_choice> const choices{
  {"pool", {"Pool Resource", make_pool}},
  {"arena", {"Arena Resource", make_arena}},
  {"binning", {"Binning Resource", make_binning}},
  {"cuda", {"CUDA Resource", make_cuda}},
  {"managed", {"Managed Resource", make_managed}},
};

/// How the replays on one resource went.
class replay_benchmark {
 public:
  replay_benchmark(resource_choice const& choice, allocation_history const& history, std::size_t bytes)
    : choice_{choice}, history_{history}, bytes_{bytes}
  {}

  /// One thread of a run. The first that comes makes the resource, the last that goes takes it down: the harness lets none
  /// begin to play before all have come.
  void run(benchmark::State& state)
  {
    enter();
    auto const thread = static_cast<std::size_t>(state.thread_index());
    for ([[maybe_unused]] auto _ : state) {
      if (!replay_->play(thread)) {
        state.SkipWithError("the replay failed");
        break;
      }
    }
    leave(state.threads());
  }

  /// Prints how it went. Returns whether all events could be replayed.
  bool report() const
  {
    if (!has_run_) { return true; }
    if (left_.allocations != 0 && !failure_) {
      std::cout << "LOG shows leak of " << left_.allocations << " allocations of " << left_.bytes << " total bytes\n";
    }
    if (unknown_frees_) { std::cout << "LOG frees what it never allocated; these events were left out\n"; }
    std::cout << choice_.benchmark_name << ": ";
    if (failure_) {
      std::cout << "FAILED at " << failure_->event << ": " << failure_->what << '\n';
    } else {
      std::cout << "replayed, at most " << peak_bytes_ << " bytes live\n";
    }
    return !failure_;
  }

 private:
  void enter()
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    if (inside_++ != 0) { return; }
    resource_ = choice_.make(bytes_);
    replay_   = std::make_unique<log_replay>(history_, *resource_);
  }

  void leave(int threads)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    if (++gone_ != threads) { return; }
    if (replay_->failure()) { failure_ = replay_->failure(); }
    left_          = replay_->left();
    peak_bytes_    = replay_->peak_bytes();
    unknown_frees_ = replay_->unknown_frees() != 0;
    replay_.reset();
    resource_.reset();
    has_run_ = true;
    inside_  = 0;
    gone_    = 0;
  }

  resource_choice choice_;
  allocation_history const& history_;
  std::size_t bytes_;
  std::mutex mutex_;
  int inside_{0};
  int gone_{0};
  resource_ptr resource_;
  std::unique_ptr<log_replay> replay_;
  std::optional<rmm::benchmarks::replay_failure> failure_;
  rmm::benchmarks::leftovers left_;
  std::size_t peak_bytes_{0};
  bool unknown_frees_{false};
  bool has_run_{false};
};

void print_events(allocation_history const& history)
{
  std::vector<rmm::detail::event const*> all(history.size());
  for (std::size_t thread = 0; thread < history.thread_count(); ++thread) {
    for (auto const& event : history.of_thread(thread)) { all[event.index] = &event; }
  }
  for (auto const* const event : all) { std::cout << *event << '\n'; }
}

/// Returns whether all replays succeeded.
bool run(int argc, char** argv)
{
  benchmark::Initialize(&argc, argv);
  rmm::benchmarks::options options{"REPLAY_BENCH", "Replays a log of allocations on memory resources"};
  options.value('f', "file", "log file, as logging_resource_adaptor writes it")
    .value('r', "resource", "cuda, pool, arena, binning or managed; without it all of them")
    .value('s', "size", "GiB of simulated memory to use instead of the device's (0: none)")
    .flag('v', "verbose", "print every event");
  options.parse(argc, argv);
  if (!options.has("file")) {
    std::cout << options.help();
    return true;
  }
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  std::cout << "Using CUDA per-thread default stream.\n";
#endif
  auto const gib = options.get("size", 0.0F);
  if (!(gib >= 0) || gib > 1e6F) { throw std::invalid_argument{"option 'size' has no valid value"}; }
  auto const bytes = rmm::align_up(static_cast<std::size_t>(std::ldexp(static_cast<double>(gib), 30)), 256);
  if (bytes != 0) { std::cout << "Simulating GPU with memory size of " << bytes << " bytes.\n"; }

  auto const name = options.get<std::string>("resource", "");
  if (options.has("resource") && choices.count(name) == 0) {
    std::cout << "Error: invalid memory_resource name: " << name << '\n';
    return false;
  }

  std::vector<rmm::detail::event> events;
  try {
    events = rmm::detail::parse_csv(options.get<std::string>("file", ""));
  } catch (std::exception const& e) {
    std::cout << "Failed to parse events: " << e.what() << '\n';
    return false;
  }
  allocation_history const history{std::move(events)};
  std::cout << "Total Events: " << history.size() << '\n';
  for (std::size_t thread = 0; thread < history.thread_count(); ++thread) {
    std::cout << "Thread " << thread << ": " << history.of_thread(thread).size() << " events\n";
  }
  if (options.is_set("verbose")) { print_events(history); }
  if (history.size() == 0) { return true; }

  std::vector<std::unique_ptr<replay_benchmark>> replays;
  for (auto const* each : {"pool", "arena", "binning", "cuda", "managed"}) {
    if (options.has("resource") && name != each) { continue; }
    auto const& choice = choices.at(each);
    replays.push_back(std::make_unique<replay_benchmark>(choice, history, bytes));
    auto* const replay = replays.back().get();
    benchmark::RegisterBenchmark(choice.benchmark_name, [replay](benchmark::State& state) { replay->run(state); })
      ->Unit(benchmark::kMillisecond)
      ->Threads(static_cast<int>(history.thread_count()));
  }
  benchmark::RunSpecifiedBenchmarks();
  bool good = true;
  for (auto const& replay : replays) { good = replay->report() && good; }
  return good;
}

}  // namespace

int main(int argc, char** argv)
{
  try {
    return run(argc, argv) ? 0 : 1;
  } catch (std::exception const& e) {
    std::cout << "Exception caught: " << e.what() << '\n';
    return 1;
  }
}
