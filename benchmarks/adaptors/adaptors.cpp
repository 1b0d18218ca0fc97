// SPDX-License-Identifier: Apache-2.0
//
// ADAPTORS_BENCH: what the adaptors that observe a program cost. Each thread allocates and frees on its own stream, over a
// resource that does nothing. The difference to BM_Pair/none or BM_Replace/none is the cost of the adaptor. Warm-up runs before
// the clock starts.

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/trace_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>

#include <benchmark/benchmark.h>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace {

/// A resource that does nothing: each thread always gets the same address, which no other thread gets.
class idle_resource final : public rmm::mr::device_memory_resource {
 private:
  void* do_allocate(std::size_t, rmm::cuda_stream_view) override
  {
    static thread_local char place;
    return &place;
  }
  void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
};

using adaptor_ptr = std::unique_ptr<rmm::mr::device_memory_resource>;

idle_resource idle;

adaptor_ptr none() { return std::make_unique<idle_resource>(); }

adaptor_ptr statistics() { return std::make_unique<rmm::mr::statistics_resource_adaptor<idle_resource>>(&idle); }

/// Writes the trace to /dev/shm if it exists, so that no disk takes part. The file is unlinked immediately, and the trace goes
/// on.
adaptor_ptr trace()
{
  std::string const folder = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  rmm::mr::trace_options options;
  options.file = folder + "/rmm-adaptors-bench-%p.rmmtrace";
  auto made    = std::make_unique<rmm::mr::trace_resource_adaptor<idle_resource>>(&idle, options);
  ::unlink(made->get_file_name().c_str());
  return made;
}

adaptor_ptr tracking() { return std::make_unique<rmm::mr::tracking_resource_adaptor<idle_resource>>(&idle); }

adaptor_ptr tracking_stacks()
{
  return std::make_unique<rmm::mr::tracking_resource_adaptor<idle_resource>>(&idle, true);
}

/// Returns the adaptor that all threads of a run share. The first thread makes it, and it ends with the last thread. All
/// threads hold it while the clock runs.
template <adaptor_ptr (*Make)()>
std::shared_ptr<rmm::mr::device_memory_resource> adaptor_of_run()
{
  static std::mutex mutex;
  static std::weak_ptr<rmm::mr::device_memory_resource> made;
  std::lock_guard<std::mutex> const lock{mutex};
  std::shared_ptr<rmm::mr::device_memory_resource> adaptor = made.lock();
  if (adaptor == nullptr) {
    adaptor = Make();
    made    = adaptor;
  }
  return adaptor;
}

template <adaptor_ptr (*Make)()>
void pair(benchmark::State& state)
{
  auto const adaptor = adaptor_of_run<Make>();
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  auto const allocate_and_free = [&] {
    void* const ptr = adaptor->allocate(256, stream);
    benchmark::DoNotOptimize(ptr);
    adaptor->deallocate(ptr, 256, stream);
  };
  for (int i = 0; i < 1000; ++i) { allocate_and_free(); }
  for ([[maybe_unused]] auto _ : state) { allocate_and_free(); }
}

/// Each thread has 1,000 blocks and replaces them one by one with blocks of random size, so the total stays near its peak.
template <adaptor_ptr (*Make)()>
void replace(benchmark::State& state)
{
  constexpr std::size_t live = 1000;
  auto const adaptor         = adaptor_of_run<Make>();
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  std::uint64_t random    = 1 + static_cast<std::uint64_t>(state.thread_index());
  auto const next         = [&] { return (random = random * 6364136223846793005U + 1442695040888963407U) >> 33U; };
  auto const random_bytes = [&] { return static_cast<std::size_t>(next() % 65'536); };
  std::size_t sizes[live]{};
  for (auto& bytes : sizes) { static_cast<void>(adaptor->allocate(bytes = random_bytes(), stream)); }
  auto const replace_one = [&] {
    auto& bytes = sizes[next() % live];
    adaptor->deallocate(&random, bytes, stream);
    bytes = random_bytes();
    benchmark::DoNotOptimize(adaptor->allocate(bytes, stream));
  };
  for (std::size_t i = 0; i < 50 * live; ++i) { replace_one(); }  // until new peaks are rare
  for ([[maybe_unused]] auto _ : state) { replace_one(); }
}

BENCHMARK(pair<none>)->ThreadRange(1, 16)->Name("BM_Pair/none");
BENCHMARK(pair<statistics>)->ThreadRange(1, 16)->Name("BM_Pair/statistics");
BENCHMARK(pair<trace>)->ThreadRange(1, 16)->Name("BM_Pair/trace");
BENCHMARK(pair<tracking>)->ThreadRange(1, 16)->Name("BM_Pair/tracking");
BENCHMARK(pair<tracking_stacks>)->ThreadRange(1, 16)->Name("BM_Pair/tracking_stacks");
BENCHMARK(replace<none>)->ThreadRange(1, 16)->Name("BM_Replace/none");
BENCHMARK(replace<statistics>)->ThreadRange(1, 16)->Name("BM_Replace/statistics");
BENCHMARK(replace<trace>)->ThreadRange(1, 16)->Name("BM_Replace/trace");

}  // namespace

BENCHMARK_MAIN();
