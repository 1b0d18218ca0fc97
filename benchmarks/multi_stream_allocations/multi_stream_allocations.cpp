// SPDX-License-Identifier: Apache-2.0
//
// MULTI_STREAM_ALLOCATIONS_BENCH: small vectors and kernels on several streams. Without a CUDA compiler it leaves out the
// kernels, and on the simulator they take no time. The first line of the output says so.

#include <benchmarks/utilities/device_work.hpp>
#include <benchmarks/utilities/options.hpp>
#include <benchmarks/utilities/resources.hpp>

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <cuda_runtime_api.h>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>

namespace {

using rmm::benchmarks::device_work;
using rmm::benchmarks::resource_ptr;

/// Returns the nanoseconds of about a million ticks of the device's clock.
unsigned kernel_ns()
{
  constexpr double ticks = 1'000'000;
  int khz{};
  RMM_CUDA_TRY(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, rmm::get_current_cuda_device().value()));
  return static_cast<unsigned>(ticks * 1e6 / (khz > 0 ? khz : 1'000'000));
}

void launch_kernels(rmm::cuda_stream_pool const& streams, std::size_t kernels, unsigned ns)
{
  for (std::size_t i = 0; i < kernels; ++i) {
    auto const stream = streams.get_stream(i);
    rmm::device_uvector<std::int64_t> const vector{1, stream};
    if (rmm::benchmarks::device_work_kind() == device_work::none) { continue; }
    RMM_EXPECTS(rmm::benchmarks::run_on_device(stream.value(), const_cast<std::int64_t*>(vector.data()), ns),
                "a kernel could not be launched");
  }
}

void allocate_once(rmm::cuda_stream_pool const& streams)
{
  for (std::size_t i = 0; i < streams.get_pool_size(); ++i) {
    rmm::device_uvector<std::int64_t> const vector{1, streams.get_stream(i)};
  }
}

void synchronize(rmm::cuda_stream_pool const& streams)
{
  for (std::size_t i = 0; i < streams.get_pool_size(); ++i) { streams.get_stream(i).synchronize(); }
}

/// A scope in which a resource is the current one.
class current_resource {
 public:
  explicit current_resource(resource_ptr resource) : resource_{std::move(resource)}
  {
    rmm::mr::set_current_device_resource(resource_.get());
  }
  ~current_resource() { rmm::mr::set_current_device_resource(nullptr); }
  current_resource(current_resource const&)            = delete;
  current_resource& operator=(current_resource const&) = delete;

 private:
  resource_ptr resource_;
};

struct resource_choice {
  char const* benchmark_name;
  resource_ptr (*make)();
};

/// The resources of the option --resource.
std::map<std::string, resource_choice> const choices{
  {"cuda", {"cuda", rmm::benchmarks::make_cuda}},
  {"cuda_async", {"cuda_async", rmm::benchmarks::make_cuda_async}},
  {"pool", {"pool_mr", []() -> resource_ptr { return rmm::benchmarks::make_pool(); }}},
  {"arena", {"arena", [] { return rmm::benchmarks::make_arena(); }}},
  {"binning", {"binning", rmm::benchmarks::make_binning}},
};

void register_benchmark(resource_choice const& choice)
{
  auto const run = [make = choice.make](benchmark::State& state) {
    current_resource const current{make()};
    rmm::cuda_stream_pool const streams{static_cast<std::size_t>(state.range(0))};
    auto const kernels = static_cast<std::size_t>(state.range(1));
    auto const ns      = kernel_ns();
    if (state.range(2) != 0) { allocate_once(streams); }
    for ([[maybe_unused]] auto _ : state) {
      launch_kernels(streams, kernels, ns);
      synchronize(streams);
    }
    state.SetItemsProcessed(static_cast<std::int64_t>(kernels) * static_cast<std::int64_t>(state.iterations()));
  };
  benchmark::RegisterBenchmark((std::string{"BM_MultiStreamAllocations/"} + choice.benchmark_name).c_str(), run)
    ->ArgsProduct({{1, 2, 4}, {4}, {0, 1}})
    ->Unit(benchmark::kMicrosecond);
}

void run(int argc, char** argv)
{
  rmm::benchmarks::options options{"MULTI_STREAM_ALLOCATIONS_BENCH", "Allocations and kernels on several streams"};
  options.flag('p', "profile", "run once, without the benchmark harness")
    .value('r', "resource", "cuda, cuda_async, pool (default), arena or binning")
    .value('k', "kernels", "number of kernels, with -p (8)")
    .value('s', "streams", "number of streams, with -p (8)")
    .flag('w', "warm", "allocate once on each stream before the kernels, with -p");
  if (options.is_help(argc, argv)) {
    std::cout << options.help_with_harness();
    return;
  }
  benchmark::Initialize(&argc, argv);
  options.parse(argc, argv);
  auto const name  = options.get<std::string>("resource", "pool");
  auto const found = choices.find(name);
  if (found == choices.end()) {
    std::cout << "Error: invalid memory_resource name: " << name << '\n';
    return;
  }
  if (rmm::benchmarks::device_work_kind() == device_work::none) {
    std::cout << "Built without a CUDA compiler: the kernels are left out.\n";
  } else if (rmm::benchmarks::device_work_kind() == device_work::simulated) {
    std::cout << "Simulated CUDA runtime: the kernels take no time.\n";
  }

  if (options.is_set("profile")) {
    auto const kernels = options.get<std::size_t>("kernels", 8);
    rmm::cuda_stream_pool const streams{options.get<std::size_t>("streams", 8)};
    current_resource const current{found->second.make()};
    if (options.is_set("warm")) { allocate_once(streams); }
    launch_kernels(streams, kernels, kernel_ns());
    synchronize(streams);
    return;
  }
  if (options.has("resource")) {
    register_benchmark(found->second);
  } else {
    for (auto const* each : {"cuda", "cuda_async", "pool", "arena", "binning"}) {
      register_benchmark(choices.at(each));
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace

int main(int argc, char** argv)
{
  try {
    run(argc, argv);
  } catch (std::exception const& e) {
    std::cout << "Exception caught: " << e.what() << '\n';
  }
}
