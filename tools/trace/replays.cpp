// SPDX-License-Identifier: Apache-2.0
#include <tools/trace/replays.hpp>

#include <tools/recorded/log_replay.hpp>
#include <tools/recorded/trace_events.hpp>

#include <rmm/cuda_device.hpp>
#include <rmm/mr/configured_resource.hpp>

#include <cudasim/cudasim.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

namespace rmm::tools {

namespace {

constexpr std::size_t most_threads = 64;  // of a replay; a trace with more shares these

/// Returns the events, assigned to the threads of the replay.
rmm::recorded::allocation_history history_of(rmm::recorded::recorded_trace const& trace)
{
  auto events = rmm::recorded::events_of(trace).events;
  if (trace.threads.size() > most_threads) {
    for (std::size_t i = 0; i < events.size(); ++i) { events[i].thread_id = trace.events[i].thread % most_threads; }
  }
  return rmm::recorded::allocation_history{std::move(events)};
}

/// Returns the bytes that the program holds on a simulated device.
std::size_t reserved_on(int device)
{
  auto const usage = cudasim::usage(device);
  return usage.allocated + usage.reserved_by_pools + usage.physical;
}

std::uint64_t upstream_calls()
{
  std::uint64_t sum = 0;
  for (auto const* const each : {"cudaMalloc",
                                 "cudaFree",
                                 "cudaMallocAsync",
                                 "cudaFreeAsync",
                                 "cudaMallocFromPoolAsync",
                                 "cudaMallocManaged",
                                 "cudaHostAlloc",
                                 "cudaFreeHost",
                                 "cuMemCreate",
                                 "cuMemRelease"}) {
    sum += cudasim::calls(each);
  }
  return sum;
}

}  // namespace

struct replays::content {
  explicit content(rmm::recorded::recorded_trace const& trace) : history{history_of(trace)} {}

  rmm::recorded::allocation_history history;
};

replays::replays(rmm::recorded::recorded_trace const& trace, std::size_t memory)
{
  int last = 0;
  for (auto const& place : trace.places) {
    if (place.device < 0 || place.device >= most_devices) {
      throw std::invalid_argument{"the trace has events of device " + std::to_string(place.device) + ", and at most " +
                                  std::to_string(most_devices) + " are simulated"};
    }
    last = std::max(last, static_cast<int>(place.device));
  }
  auto machine         = cudasim::environment_options();
  machine.devices      = last + 1;
  machine.memory_bytes = memory;
  cudasim::reset(machine);
  content_ = std::make_unique<content>(trace);
}

replays::~replays() = default;

void replays::check_configuration(std::string_view configuration)
{
  static_cast<void>(rmm::mr::resource_configuration::parse(configuration));
}

std::size_t replays::events() const { return content_->history.size(); }

std::vector<int> const& replays::devices() const { return content_->history.devices(); }

replay_figures replays::replay(std::string const& configuration,
                               std::vector<std::size_t> const& moments,
                               std::function<void(std::size_t)> const& on_progress)
{
  auto const& history = content_->history;
  replay_figures result;
  result.configuration = configuration;
  result.reserved.resize(history.devices().size());
  if (history.size() == 0) { return result; }

  auto const parsed = rmm::mr::resource_configuration::parse(configuration);
  std::vector<std::unique_ptr<rmm::mr::configured_resource>> resources;
  std::vector<rmm::recorded::replay_target> targets;
  auto const calls_before = upstream_calls();
  try {
    for (auto const device : history.devices()) {
      rmm::cuda_set_device_raii const with_device{rmm::cuda_device_id{device}};
      resources.push_back(std::make_unique<rmm::mr::configured_resource>(parsed));
      targets.push_back({device, resources.back()->get(), [device] { return reserved_on(device); }});
    }
  } catch (std::exception const& error) {
    result.first_failure = replay_figures::failure{0, 0, 0, error.what()};
    return result;
  }
  rmm::recorded::log_replay replay{history, std::move(targets)};
  auto next = moments.begin();
  std::size_t at_end{};
  replay.observe([&](rmm::recorded::replay_moment const& now) {
    at_end = now.reserved;
    for (; next != moments.end() && *next <= now.event; ++next) {
      for (std::size_t i = 0; i < history.devices().size(); ++i) {
        result.reserved[i].push_back(reserved_on(history.devices()[i]));
      }
    }
    if (on_progress && now.event % 4096 == 0) { on_progress(now.event); }
  });
  auto const start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < history.thread_count(); ++i) {
    threads.emplace_back([&replay, i] { replay.play(i); });
  }
  replay.play(0);
  for (auto& each : threads) { each.join(); }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  if (auto const& failed = replay.failure()) {
    result.first_failure =
      replay_figures::failure{failed->event.index, failed->event.time_ns, failed->event.size, failed->what};
  }
  result.peak_live      = replay.peak_live().live;
  result.upstream_calls = upstream_calls() - calls_before;
  // Without reserved device memory, the resource uses managed or host memory.
  if (replay.peak_reserved().reserved != 0 || result.peak_live == 0) {
    result.peak_reserved   = replay.peak_reserved().reserved;
    result.reserved_at_end = at_end;
  }
  return result;
}

}  // namespace rmm::tools
