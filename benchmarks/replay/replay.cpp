// SPDX-License-Identifier: Apache-2.0
//
// REPLAY_BENCH: replays a log of logging_resource_adaptor, a trace of trace_resource_adaptor or a memory snapshot of PyTorch on
// other resources. Exit status: 0 if each resource could replay it, 1 if one could not, 2 if there is nothing to replay.

#include <benchmarks/utilities/metered_resource.hpp>
#include <benchmarks/utilities/options.hpp>
#include <benchmarks/utilities/resources.hpp>
#include <benchmarks/utilities/simulated_memory_resource.hpp>
#include <tools/recorded/log_replay.hpp>
#include <tools/recorded/progress.hpp>
#include <tools/recorded/trace_events.hpp>

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/managed_memory_resource.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using rmm::benchmarks::metered_resource;
using rmm::benchmarks::resource_ptr;
using rmm::mr::simulated_memory_resource;
using rmm::recorded::allocation_history;
using rmm::recorded::log_replay;

enum verdict : int { replayed = 0, failed = 1, nothing_to_replay = 2 };

/// A resource, and a function that returns its reserved bytes.
struct measured_resource {
  resource_ptr resource;
  std::function<std::size_t()> reserved;
};

/// Returns the device's memory, or simulated memory of `bytes` bytes if `bytes` is not 0.
std::shared_ptr<metered_resource> make_memory(std::size_t bytes)
{
  if (bytes == 0) { return std::make_shared<metered_resource>(rmm::benchmarks::make_cuda()); }
  return std::make_shared<metered_resource>(std::make_shared<simulated_memory_resource>(bytes));
}

measured_resource over(std::shared_ptr<metered_resource> const& memory, resource_ptr resource)
{
  return {std::move(resource), [memory] { return memory->bytes(); }};
}

measured_resource make_cuda(std::size_t)
{
  auto const memory = make_memory(0);
  return over(memory, memory);
}

measured_resource make_managed(std::size_t)
{
  auto const memory = std::make_shared<metered_resource>(std::make_shared<rmm::mr::managed_memory_resource>());
  return over(memory, memory);
}

auto make_pool_over(std::shared_ptr<metered_resource> const& memory, std::size_t bytes)
{
  std::optional<std::size_t> const most = bytes == 0 ? std::nullopt : std::optional{bytes};
  return rmm::mr::make_owning_wrapper<rmm::mr::pool_memory_resource>(memory, bytes, most);
}

measured_resource make_pool(std::size_t bytes)
{
  auto const memory = make_memory(bytes);
  return over(memory, make_pool_over(memory, bytes));
}

measured_resource make_arena(std::size_t bytes)
{
  auto const memory                     = make_memory(bytes);
  std::optional<std::size_t> const size = bytes == 0 ? std::nullopt : std::optional{bytes};
  return over(memory, rmm::mr::make_owning_wrapper<rmm::mr::arena_memory_resource>(memory, size));
}

measured_resource make_binning(std::size_t bytes)
{
  auto const memory  = make_memory(bytes);
  auto const binning = rmm::mr::make_owning_wrapper<rmm::mr::binning_memory_resource>(make_pool_over(memory, bytes));
  for (unsigned exponent = 18; exponent <= 22; ++exponent) { binning->wrapped().add_bin(std::size_t{1} << exponent); }
  return over(memory, binning);
}

/// Makes the resource of a configuration on the current device.
measured_resource make_configured(rmm::mr::resource_configuration const& configuration)
{
  rmm::mr::configured_resource const made{configuration};
  measured_resource result{made.share(), {}};
  if (auto* const pool = made.find<rmm::mr::detail::growing_pool>()) {
    result.reserved = [pool] { return pool->pool_size(); };
  }
  return result;
}

struct resource_choice {
  std::string benchmark_name;
  std::function<measured_resource(std::size_t bytes)> make;
};

/// The resources of the option --resource, besides configurations.
std::map<std::string, resource_choice> const choices{
  {"pool", {"Pool Resource", make_pool}},
  {"arena", {"Arena Resource", make_arena}},
  {"binning", {"Binning Resource", make_binning}},
  {"cuda", {"CUDA Resource", make_cuda}},
  {"managed", {"Managed Resource", make_managed}},
};

/// Returns the choice for a name or a configuration. Throws std::invalid_argument if the text is neither.
resource_choice choice_of(std::string const& name)
{
  auto const known = choices.find(name);
  if (known != choices.end()) { return known->second; }
  auto const configuration = rmm::mr::resource_configuration::parse(name);
  return {name, [configuration](std::size_t) { return make_configured(configuration); }};
}

/// The replays on one resource, and their results.
class replay_benchmark {
 public:
  replay_benchmark(resource_choice const& choice, allocation_history const& history, std::size_t bytes)
    : choice_{choice}, history_{history}, bytes_{bytes}
  {}

  /// Runs one thread of a replay. The first thread to arrive makes the resource, and the last to leave destroys it. The harness
  /// starts all threads together, after all have arrived.
  void run(benchmark::State& state)
  {
    auto const problem = enter();
    auto const thread  = static_cast<std::size_t>(state.thread_index());
    if (!problem.empty()) { state.SkipWithError(problem.c_str()); }
    for ([[maybe_unused]] auto _ : state) {
      if (!replay_->play(thread)) {
        state.SkipWithError(replay_->failure()->pass == 0 ? "the replay failed" : "a repetition failed");
        break;
      }
    }
    leave(state.threads());
  }

  /// Prints the result. Returns whether all events could be replayed.
  bool report() const
  {
    if (!has_run_) { return true; }
    bool const has_failed = failure_ && failure_->pass == 0;
    if (left_.allocations != 0 && !has_failed) {
      std::cout << "LOG shows leak of " << left_.allocations << " allocations of " << left_.bytes << " total bytes\n";
    }
    if (unknown_frees_) { std::cout << "LOG frees what it never allocated; these events were left out\n"; }
    std::cout << choice_.benchmark_name << ": ";
    if (!problem_.empty()) {
      std::cout << "FAILED before the first event: " << problem_ << '\n';
      return false;
    }
    if (has_failed) {
      std::cout << "FAILED at " << failure_->event << ", with " << failure_->before.live << " bytes live";
      if (knows_reserved_) { std::cout << " and " << failure_->before.reserved << " reserved"; }
      std::cout << ": " << failure_->what << '\n';
      return false;
    }
    std::cout << "replayed; peak live " << peak_live_.live << " bytes at event " << peak_live_.event;
    if (knows_reserved_) {
      std::cout << ", peak reserved " << peak_reserved_.reserved << " bytes at event " << peak_reserved_.event
                << ", fragmentation " << std::fixed << std::setprecision(1) << 100 * fragmentation() << " %"
                << std::defaultfloat;
    }
    std::cout << '\n';
    if (failure_) {
      std::cout << "No time: repetition " << failure_->pass << " on what was left of the same resource failed at "
                << failure_->event << '\n';
    }
    return true;
  }

  /// Writes lines of CSV: name, event, nanoseconds, live bytes, reserved bytes.
  void write_curve(std::ostream& out) const
  {
    for (auto const& each : curve_) {
      out << '"' << choice_.benchmark_name << "\"," << each.event << ',' << each.time_ns << ',' << each.live << ',';
      if (knows_reserved_) { out << each.reserved; }
      out << '\n';
    }
  }

 private:
  /// Returns the share of the peak of reserved bytes that exceeds the peak of live bytes.
  double fragmentation() const
  {
    if (peak_reserved_.reserved == 0) { return 0; }
    auto const unused = peak_reserved_.reserved - std::min(peak_reserved_.reserved, peak_live_.live);
    return static_cast<double>(unused) / static_cast<double>(peak_reserved_.reserved);
  }

  /// Makes the resources if this is the first thread. Returns the error message if that failed.
  std::string enter()
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    if (inside_++ != 0) { return problem_; }
    try {
      make_resources();
    } catch (std::exception const& e) {
      problem_ = e.what();
      resources_.clear();
    }
    return problem_;
  }

  void make_resources()
  {
    std::vector<rmm::recorded::replay_target> targets;
    for (auto const device : history_.devices()) {
      rmm::cuda_set_device_raii const with_device{rmm::cuda_device_id{device}};
      auto made = choice_.make(bytes_);
      targets.push_back({device, made.resource.get(), std::move(made.reserved)});
      resources_.emplace_back(device, std::move(made.resource));
    }
    replay_ = std::make_unique<log_replay>(history_, std::move(targets));
    if (!shown_.is_shown()) { return; }  // otherwise no observer, which would take time
    shown_.begin("replaying on " + choice_.benchmark_name, history_.size());
    replay_->observe([this](rmm::recorded::replay_moment const& now) {
      if (now.event % 4096 == 0) { shown_.advance(now.event); }
    });
  }

  void leave(int threads)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    if (++gone_ != threads) { return; }
    has_run_ = true;
    inside_  = 0;
    gone_    = 0;
    shown_.clear();
    if (replay_ == nullptr) { return; }
    if (replay_->failure()) { failure_ = replay_->failure(); }
    left_           = replay_->left();
    peak_live_      = replay_->peak_live();
    peak_reserved_  = replay_->peak_reserved();
    knows_reserved_ = replay_->knows_reserved();
    curve_          = replay_->curve();
    unknown_frees_  = replay_->unknown_frees() != 0;
    replay_.reset();
    for (auto& [device, resource] : resources_) {
      rmm::cuda_set_device_raii const with_device{rmm::cuda_device_id{device}};
      resource.reset();
    }
    resources_.clear();
  }

  resource_choice choice_;
  allocation_history const& history_;
  std::size_t bytes_;
  rmm::recorded::progress shown_;
  std::mutex mutex_;
  int inside_{0};
  int gone_{0};
  std::vector<std::pair<int, resource_ptr>> resources_;
  std::unique_ptr<log_replay> replay_;
  std::string problem_;  // the error if the resources could not be made
  std::optional<rmm::recorded::replay_failure> failure_;
  rmm::recorded::leftovers left_;
  rmm::recorded::replay_moment peak_live_;
  rmm::recorded::replay_moment peak_reserved_;
  std::vector<rmm::recorded::replay_moment> curve_;
  bool knows_reserved_{false};
  bool unknown_frees_{false};
  bool has_run_{false};
};

void print_events(allocation_history const& history)
{
  std::vector<rmm::detail::event const*> all(history.size());
  for (std::size_t thread = 0; thread < history.thread_count(); ++thread) {
    for (auto const& call : history.of_thread(thread)) { all[call.event.index] = &call.event; }
  }
  for (auto const* const event : all) { std::cout << *event << '\n'; }
}

void print_summary(allocation_history const& history, rmm::recorded::logged_events const& log)
{
  std::cout << "Total Events: " << history.size() << '\n';
  for (std::size_t thread = 0; thread < history.thread_count(); ++thread) {
    std::cout << "Thread " << thread << ": " << history.of_thread(thread).size() << " events\n";
  }
  std::cout << "Streams besides the default ones: " << history.own_streams().size() << '\n';
  if (history.devices().size() > 1) { std::cout << "Devices: " << history.devices().size() << '\n'; }
  if (history.logged_failures() != 0) {
    std::cout << "LOG shows " << history.logged_failures() << " allocations without memory, which are left out\n";
  }
  if (log.lost != 0) { std::cout << "LOG lacks " << log.lost << " events that could not be written\n"; }
  if (!log.damage.empty()) { std::cout << "LOG is damaged: " << log.damage << '\n'; }
}

void write_curves(std::string const& path, std::vector<std::unique_ptr<replay_benchmark>> const& replays)
{
  std::ofstream out{path};
  out << "resource,event,time_ns,live,reserved\n";
  for (auto const& each : replays) { each->write_curve(out); }
  if (!out.flush()) { throw std::runtime_error{"'" + path + "' cannot be written"}; }
}

verdict run(int argc, char** argv)
{
  rmm::benchmarks::options options{"REPLAY_BENCH", "Replays a log or trace of allocations on memory resources"};
  options.value('f', "file", "log of logging_resource_adaptor, trace of trace_resource_adaptor, or snapshot of PyTorch")
    .value('r', "resource", "cuda, pool, arena, binning, managed or a configuration; repeatable (the five named)")
    .value('s', "size", "GiB of simulated memory to use instead of the device's (0: none)")
    .value('c', "curve", "file to write live and reserved memory over time to, as CSV")
    .flag('v', "verbose", "print every event");
  if (options.is_help(argc, argv)) {
    std::cout << options.help_with_harness();
    return replayed;
  }
  benchmark::Initialize(&argc, argv);
  options.parse(argc, argv);
  if (!options.has("file")) {
    std::cout << options.help_with_harness();
    return replayed;
  }
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  std::cout << "Using CUDA per-thread default stream.\n";
#endif
  auto const gib = options.get("size", 0.0F);
  if (!(gib >= 0) || gib > 1e6F) { throw std::invalid_argument{"option 'size' has no valid value"}; }
  auto const bytes = rmm::align_up(static_cast<std::size_t>(std::ldexp(static_cast<double>(gib), 30)), 256);
  if (bytes != 0) { std::cout << "Simulating GPU with memory size of " << bytes << " bytes.\n"; }

  std::vector<resource_choice> chosen;
  for (auto const& name : options.all("resource")) {
    try {
      chosen.push_back(choice_of(name));
    } catch (std::invalid_argument const& e) {
      std::cout << "Error: invalid memory_resource name: " << name << '\n' << e.what() << '\n';
      return nothing_to_replay;
    }
  }
  if (chosen.empty()) {
    for (auto const* each : {"pool", "arena", "binning", "cuda", "managed"}) { chosen.push_back(choices.at(each)); }
  }

  rmm::recorded::logged_events log;
  try {
    auto const file = options.get<std::string>("file", "");
    rmm::recorded::progress shown;
    shown.begin("reading " + file);
    log = rmm::recorded::read_events(file);
  } catch (std::exception const& e) {
    std::cout << "Failed to parse events: " << e.what() << '\n';
    return nothing_to_replay;
  }
  allocation_history const history{std::move(log.events)};
  print_summary(history, log);
  if (options.is_set("verbose")) { print_events(history); }
  if (history.size() == 0) {
    std::cout << "Nothing to replay: the log has no events\n";
    return nothing_to_replay;
  }
  if (history.devices().front() < 0 || history.devices().back() >= rmm::get_num_cuda_devices()) {
    std::cout << "Error: the log has events of device " << history.devices().back() << ", and this machine has "
              << rmm::get_num_cuda_devices() << " devices\n";
    return nothing_to_replay;
  }

  std::vector<std::unique_ptr<replay_benchmark>> replays;
  for (auto const& choice : chosen) {
    replays.push_back(std::make_unique<replay_benchmark>(choice, history, bytes));
    auto* const replay = replays.back().get();
    benchmark::RegisterBenchmark(choice.benchmark_name.c_str(),
                                 [replay](benchmark::State& state) { replay->run(state); })
      ->Unit(benchmark::kMillisecond)
      ->Threads(static_cast<int>(history.thread_count()));
  }
  benchmark::RunSpecifiedBenchmarks();
  bool good = true;
  for (auto const& replay : replays) { good = replay->report() && good; }
  if (options.has("curve")) { write_curves(options.get<std::string>("curve", ""), replays); }
  return good ? replayed : failed;
}

}  // namespace

int main(int argc, char** argv)
{
  try {
    return run(argc, argv);
  } catch (std::invalid_argument const& e) {
    std::cout << "Exception caught: " << e.what() << '\n';
    return nothing_to_replay;
  } catch (std::exception const& e) {
    std::cout << "Exception caught: " << e.what() << '\n';
    return failed;
  }
}
