// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/host_bytes.hpp"
#include "../support/pool_contents.hpp"
#include "../support/simulated.hpp"
#include "../support/worker.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

/// @file
/// Long runs of requests on one resource, and the cost of a run at its beginning and at its end.

namespace rmm::test {

/// A block that a run has allocated.
struct run_block {
  void* ptr{};
  std::size_t bytes{};
  cuda_stream_view stream{};
};

/// Makes the allocations and frees of a run.
///
/// Without work, measures the processor time of the calls. With work, each block is written by its stream after the
/// allocation and before the deallocation, so that the ordering checker sees memory that is handed out too early.
///
/// Threads may use it one after another, but not concurrently.
class run_requests {
 public:
  run_requests(mr::device_memory_resource& mr, int device, bool has_work)
    : mr_{mr}, device_{device}, has_work_{has_work}
  {}

  [[nodiscard]] run_block allocate(std::size_t bytes, cuda_stream_view stream)
  {
    auto const begin = clock::now();
    run_block const made{mr_.allocate(bytes, stream), bytes, stream};
    spent_ += clock::now() - begin;
    write(made);
    return made;
  }

  void free(run_block const& block)
  {
    write(block);
    auto const begin = clock::now();
    mr_.deallocate(block.ptr, block.bytes, block.stream);
    spent_ += clock::now() - begin;
  }

  /// Orders later work of `stream` after the work of the block's stream, and makes `stream` the one that frees the block.
  void hand_over(run_block& block, cuda_stream_view stream) const
  {
    if (has_work_ && block.stream != stream) {
      cuda_set_device_raii const on_device{cuda_device_id{device_}};
      cudaEvent_t event{};
      EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
      EXPECT_EQ(cudaEventRecord(event, block.stream.value()), cudaSuccess);
      EXPECT_EQ(cudaStreamWaitEvent(stream.value(), event, 0), cudaSuccess);
      EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    }
    block.stream = stream;
  }

  /// Runs the task on a new thread. The thread's end counts as a call, because it runs code of the resource.
  template <class Task>
  void run_on_a_thread_that_ends(Task&& task)
  {
    clock::time_point end_of_task{};
    test::run_on_a_thread_that_ends([&] {
      task();
      end_of_task = clock::now();
    });
    spent_ += clock::now() - end_of_task;
  }

  [[nodiscard]] mr::device_memory_resource& resource() const noexcept { return mr_; }
  [[nodiscard]] int device() const noexcept { return device_; }

  /// Nanoseconds in calls of the resource since the last take_nanoseconds().
  [[nodiscard]] double take_nanoseconds() noexcept
  {
    auto const spent = std::chrono::duration<double, std::nano>{spent_}.count();
    spent_           = {};
    return spent;
  }

 private:
  /// Processor time of all threads of the program. Other programs change it little.
  struct clock {
    using duration   = std::chrono::nanoseconds;
    using time_point = std::chrono::time_point<clock, duration>;

    [[nodiscard]] static time_point now() noexcept
    {
      timespec spent{};
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
      return time_point{std::chrono::seconds{spent.tv_sec} + std::chrono::nanoseconds{spent.tv_nsec}};
    }
  };

  void write(run_block const& block) const
  {
    if (!has_work_) { return; }
    cuda_set_device_raii const on_device{cuda_device_id{device_}};
    EXPECT_EQ(cudasim::launch(block.stream.value(), {}, {{block.ptr, block.bytes}}), cudaSuccess);
  }

  mr::device_memory_resource& mr_;
  int device_;
  bool has_work_;
  clock::duration spent_{};
};

/// Requests per round. All rounds have the same sizes, so that they can be compared.
inline constexpr std::size_t round_length = 50;

/// The size of a request: between the two bounds, evenly on a logarithmic scale.
[[nodiscard]] inline std::size_t size_of_request(std::size_t number, std::size_t smallest, std::size_t largest)
{
  static auto const shares = [] {
    std::mt19937_64 random{1};
    std::array<double, round_length> made{};
    for (auto& share : made) { share = static_cast<double>(random() % 10'001) / 10'000; }
    return made;
  }();
  if (smallest >= largest) { return largest; }
  auto const ratio = static_cast<double>(largest) / static_cast<double>(smallest);
  auto const bytes = static_cast<double>(smallest) * std::pow(ratio, shares[number % round_length]);
  return std::min(static_cast<std::size_t>(bytes), largest);
}

/// The requests of a run.
class run_program {
 public:
  run_program()                              = default;
  run_program(run_program const&)            = delete;
  run_program& operator=(run_program const&) = delete;
  virtual ~run_program()                     = default;

  virtual void request(std::size_t number) = 0;

  /// Frees what is still allocated.
  virtual void finish() {}
};

/// The resource and the program of a run.
struct run_plan {
  std::function<std::shared_ptr<mr::device_memory_resource>()> make_resource;
  std::function<std::unique_ptr<run_program>(run_requests&)> make_program;
  std::size_t requests{};  ///< a multiple of 20 rounds
  int devices{1};          ///< the resource and all streams belong to the last one; device 0 is current
  bool checks_order{};     ///< works on the blocks, under the ordering checker
};

/// The result of a run. A run that makes an error, or becomes very slow, ends early.
struct run_result {
  std::size_t requests{};  ///< number of requests that were made
  double first_ns{};       ///< per request in the first tenth after the warm-up; median of the rounds
  double last_ns{};        ///< per request in the last tenth
  std::int64_t
    host_growth{};  ///< bytes of host memory from the first fifth of the run (earlier if it ended early) to its end
  std::int64_t objects_growth{};  ///< events, streams and other objects of CUDA, counted likewise
  std::size_t reserved_first{};   ///< most bytes from upstream in the first fifth
  std::size_t reserved_later{};   ///< most bytes from upstream in the rest
  std::size_t live_at_end{};
  std::vector<std::string> violations{};
  std::string leaks{};
};

/// The median of some rounds.
[[nodiscard]] inline double median_of(std::vector<double> times, std::size_t first, std::size_t count)
{
  auto const begin  = times.begin() + static_cast<std::ptrdiff_t>(first);
  auto const middle = begin + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(begin, middle, begin + static_cast<std::ptrdiff_t>(count));
  return *middle;
}

/// Rounds at the beginning of a run that are compared with as many at the end, to stop hopeless runs.
inline constexpr std::size_t rounds_to_compare = 20;

/// Whether requests take twenty times as long as the first thousand. The rest of such a run could take hours.
[[nodiscard]] inline bool is_hopeless(std::vector<double> const& times)
{
  constexpr std::size_t count = rounds_to_compare;
  if (times.size() < 2 * count || times.size() % count != 0) { return false; }
  return median_of(times, times.size() - count, count) > std::max(20 * median_of(times, 0, count), 20'000.0);
}

/// Runs the requests on a new machine in stepped mode.
inline run_result make_run(run_plan const& plan)
{
  cudasim::options machine;
  machine.devices        = plan.devices;
  machine.mode           = cudasim::execution::stepped;
  machine.check_ordering = plan.checks_order;
  machine.seed           = 1;
  Simulated::start(machine);
  auto const device = plan.devices - 1;
  auto const rounds = plan.requests / round_length;
  run_result result;
  std::vector<double> times;
  times.reserve(rounds);
  std::mt19937_64 random{1};
  EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
  auto mr = plan.make_resource();
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  {
    run_requests requests{*mr, device, plan.checks_order};
    auto const program        = plan.make_program(requests);
    auto const reserved_bytes = [&] {
      auto const now = figures_of(*mr);
      return now ? now->reserved_bytes : 0;
    };
    auto const objects = [] { return static_cast<std::int64_t>(cudasim::ledger().size()); };
    for (std::size_t round = 0; round < rounds && result.violations.empty() && !is_hopeless(times); ++round) {
      for (std::size_t i = 0; i < round_length; ++i) {
        program->request(round * round_length + i);
        if (plan.checks_order) {
          for (auto steps = random() % 8; steps > 0 && cudasim::step(); --steps) {}
        }
      }
      times.push_back(requests.take_nanoseconds() / round_length);
      if (!plan.checks_order) { cudasim::run_until_idle(); }
      for (auto const& each : cudasim::violations()) { result.violations.push_back(each.text); }
      if (round == 0 || round + 1 == rounds / 5) {
        result.objects_growth = -objects();
        result.host_growth    = -static_cast<std::int64_t>(allocated_host_bytes());
      }
      if ((round + 1) % (rounds / 20) == 0) {
        auto& most = round < rounds / 5 ? result.reserved_first : result.reserved_later;
        most       = std::max(most, reserved_bytes());
      }
    }
    result.host_growth += static_cast<std::int64_t>(allocated_host_bytes());
    result.objects_growth += objects();
    program->finish();
    if (auto const now = figures_of(*mr)) { result.live_at_end = now->live_bytes; }
  }
  mr.reset();
  if (result.violations.empty()) {
    for (auto const& each : cudasim::violations()) { result.violations.push_back(each.text); }
  }
  cudasim::clear_violations();
  result.leaks    = cudasim::leak_report();
  result.requests = times.size() * round_length;
  if (result.requests == plan.requests) {
    result.first_ns = median_of(times, rounds / 20, rounds / 10);
    result.last_ns  = median_of(times, rounds - rounds / 10, rounds / 10);
  } else if (result.violations.empty()) {
    result.first_ns = median_of(times, 0, rounds_to_compare);
    result.last_ns  = median_of(times, times.size() - rounds_to_compare, rounds_to_compare);
  }
  return result;
}

}  // namespace rmm::test
