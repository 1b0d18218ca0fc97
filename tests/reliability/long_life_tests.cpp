// SPDX-License-Identifier: Apache-2.0
//
// One pool for a long time, or one for each of several devices, in one process or in several that share the devices, while threads and
// their streams begin and end. At the end a request may not cost more than at the beginning, and host, devices and pools may not use
// more memory. With several devices, another than the pool's is current in half of the calls.
//
// RMM_SOAK_SECONDS=n       duration; by default 3 on the simulator, 20 on a device
// RMM_SOAK_PROCESSES=n     number of processes; by default 1
// RMM_SOAK_DEVICES=n       number of devices, from device 0 on; by default 1
// RMM_SOAK_RESOURCE=text   configuration of each pool
// RMM_SOAK_CSV=file        gets a line for each sample, with the sums over devices and pools; with several processes, each writes to its
//                          own file.N
//
// tools/plot_soak.py draws such files.

#include "../support/pool_contents.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <malloc.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using steady = std::chrono::steady_clock;

constexpr std::size_t MiB                 = std::size_t{1} << 20;
constexpr std::size_t samples_of_run      = 100;
constexpr std::uint64_t least_of_a_sample = 5000;  // requests, however slow the machine is
constexpr int threads_at_a_time           = 8;

[[nodiscard]] std::string variable(char const* name, std::string otherwise)
{
  auto const* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : std::move(otherwise);
}

// --- latencies

/// Counts latencies in ranges that are an eighth of a power of two wide. Thread-safe.
class latency_counts {
 public:
  void add(std::uint64_t nanoseconds) noexcept
  {
    counts_[range_of(nanoseconds)].fetch_add(1, std::memory_order_relaxed);
  }

  /// Returns the number of latencies since the last take().
  [[nodiscard]] std::uint64_t count() const noexcept
  {
    std::uint64_t result{};
    for (auto const& each : counts_) { result += each.load(std::memory_order_relaxed); }
    return result;
  }

  /// The latencies since the last call: their number, and percentiles in nanoseconds.
  struct summary {
    std::uint64_t count{};
    double p50_ns{};
    double p99_ns{};
  };
  [[nodiscard]] summary take()
  {
    std::array<std::uint64_t, ranges> taken{};
    summary result;
    for (std::size_t i = 0; i != ranges; ++i) {
      taken[i] = counts_[i].exchange(0, std::memory_order_relaxed);
      result.count += taken[i];
    }
    result.p50_ns = percentile(taken, result.count, 50);
    result.p99_ns = percentile(taken, result.count, 99);
    return result;
  }

 private:
  static constexpr std::size_t ranges = 8 * 64;

  [[nodiscard]] static std::size_t range_of(std::uint64_t value) noexcept
  {
    if (value < 8) { return value; }
    auto const exponent = static_cast<std::size_t>(63 - __builtin_clzll(value));
    return 8 * (exponent - 2) + (value >> (exponent - 3)) % 8;
  }

  [[nodiscard]] static double middle_of(std::size_t range)
  {
    if (range < 8) { return static_cast<double>(range); }
    return (static_cast<double>(8 + range % 8) + 0.5) * static_cast<double>(std::uint64_t{1} << (range / 8 - 1));
  }

  [[nodiscard]] static double percentile(std::array<std::uint64_t, ranges> const& counts,
                                         std::uint64_t all,
                                         std::uint64_t share)
  {
    std::uint64_t below{};
    for (std::size_t i = 0; i != ranges; ++i) {
      below += counts[i];
      if (below * 100 > all * share) { return middle_of(i); }
    }
    return 0;
  }

  std::array<std::atomic<std::uint64_t>, ranges> counts_{};
};

// --- the pools

/// A pool on each of the first devices.
class pools_of_devices {
 public:
  pools_of_devices(std::string const& configuration, int devices)
  {
    for (int i = 0; i != devices; ++i) {
      rmm::cuda_set_device_raii const on_device{rmm::cuda_device_id{i}};
      pools_.emplace_back(configuration);
    }
  }

  [[nodiscard]] int devices() const noexcept { return static_cast<int>(pools_.size()); }
  [[nodiscard]] rmm::mr::device_memory_resource& of(int device) const
  {
    return *pools_[static_cast<std::size_t>(device)];
  }

  /// Returns the bytes in use on the devices, also by others.
  [[nodiscard]] std::size_t device_bytes() const
  {
    std::size_t result{};
    for (int i = 0; i != devices(); ++i) {
      rmm::cuda_set_device_raii const on_device{rmm::cuda_device_id{i}};
      std::size_t free{};
      std::size_t total{};
      EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
      result += total - free;
    }
    return result;
  }

  /// Returns the sums of the pools' figures.
  [[nodiscard]] rmm::heap_figures figures() const
  {
    rmm::heap_figures result{};
    for (auto const& pool : pools_) { result = result + rmm::test::figures_of(*pool).value(); }
    return result;
  }

 private:
  std::vector<rmm::mr::configured_resource> pools_;
};

// --- the threads

/// Writes the beginning of a block, and expects that it is memory of that device, which is current.
void use(void* block, std::size_t bytes, int value, rmm::cuda_stream_view stream, int device)
{
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, block), cudaSuccess);
  EXPECT_EQ(attributes.device, device);
  EXPECT_EQ(cudaMemsetAsync(block, value, std::min(bytes, std::size_t{64} << 10), stream.value()), cudaSuccess);
}

/// The life of a thread: a stream, and two thousand requests with at most 16 live blocks.
void live(pools_of_devices const& pools, latency_counts& latencies, std::uint64_t number)
{
  struct block {
    void* ptr;
    std::size_t bytes;
  };
  std::mt19937_64 random{number};
  auto const devices = static_cast<std::uint64_t>(pools.devices());
  auto const device  = static_cast<int>(number % devices);
  auto& pool         = pools.of(device);
  rmm::cuda_set_device_raii const on_device{rmm::cuda_device_id{device}};
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  std::vector<block> blocks;
  auto const timed = [&](auto const& task) {
    std::optional<rmm::cuda_set_device_raii> elsewhere;
    if (devices > 1 && random() % 2 == 0) {
      elsewhere.emplace(rmm::cuda_device_id{static_cast<int>((number + 1 + random() % (devices - 1)) % devices)});
    }
    auto const begin = steady::now();
    task();
    latencies.add(static_cast<std::uint64_t>(std::chrono::nanoseconds{steady::now() - begin}.count()));
  };
  auto const free_one = [&] {
    std::swap(blocks[random() % blocks.size()], blocks.back());
    timed([&] { pool.deallocate(blocks.back().ptr, blocks.back().bytes, stream); });
    blocks.pop_back();
  };
  for (int request = 0; request != 2000; ++request) {
    if (blocks.size() == 16 || (!blocks.empty() && random() % 2 == 0)) {
      free_one();
    } else {
      auto const bytes = std::size_t{1} << (8 + random() % 15);  // up to 4 MiB
      block made{nullptr, bytes};
      timed([&] { made.ptr = pool.allocate(bytes, stream); });
      blocks.push_back(made);
      if (request % 16 == 0) { use(made.ptr, bytes, request % 256, stream, device); }
    }
  }
  while (!blocks.empty()) { free_one(); }
}

struct sample {
  double seconds{};
  latency_counts::summary latency{};
  std::size_t host_bytes{};
  std::size_t device_bytes{};
  std::size_t pool_bytes{};
};

[[nodiscard]] std::size_t host_bytes()
{
  auto const now = mallinfo2();
  return now.uordblks + now.hblkhd;
}

/// Lets threads begin and end, and samples the process at equal intervals, which are longer on a slow machine: each has some thousand
/// requests.
std::vector<sample> run(pools_of_devices const& pools, std::chrono::duration<double> time, std::size_t count)
{
  latency_counts latencies;
  std::atomic<bool> ends{false};
  std::atomic<std::uint64_t> next{0};
  std::vector<std::thread> parents;
  for (int i = 0; i != threads_at_a_time; ++i) {
    parents.emplace_back([&] {
      while (!ends) { std::thread{live, std::cref(pools), std::ref(latencies), next++}.join(); }
    });
  }
  std::vector<sample> samples;
  auto const begin = steady::now();
  for (std::size_t i = 1; i <= count; ++i) {
    std::this_thread::sleep_until(begin + std::chrono::duration_cast<steady::duration>(time * i / count));
    while (latencies.count() < least_of_a_sample) { std::this_thread::sleep_for(std::chrono::milliseconds{1}); }
    samples.push_back({std::chrono::duration<double>{steady::now() - begin}.count(),
                       latencies.take(),
                       host_bytes(),
                       pools.device_bytes(),
                       pools.figures().reserved_bytes});
  }
  ends = true;
  for (auto& parent : parents) { parent.join(); }
  std::printf("%llu threads with a stream each\n", static_cast<unsigned long long>(next.load()));
  return samples;
}

void write_csv(std::string const& path, std::vector<sample> const& samples)
{
  auto* const file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr) << path;
  std::fprintf(file, "seconds,requests,p50_ns,p99_ns,host_bytes,device_bytes,pool_bytes\n");
  for (auto const& each : samples) {
    std::fprintf(file,
                 "%.2f,%llu,%.0f,%.0f,%zu,%zu,%zu\n",
                 each.seconds,
                 static_cast<unsigned long long>(each.latency.count),
                 each.latency.p50_ns,
                 each.latency.p99_ns,
                 each.host_bytes,
                 each.device_bytes,
                 each.pool_bytes);
  }
  EXPECT_EQ(std::fclose(file), 0);
}

// --- expectations at the end

/// The median of the samples from `begin` to `end`, in tenths of all.
template <class Value>
[[nodiscard]] double middle_of(std::vector<sample> const& samples, std::size_t begin, std::size_t end, Value value)
{
  std::vector<double> values;
  for (auto i = samples.size() * begin / 10; i != samples.size() * end / 10; ++i) {
    values.push_back(static_cast<double>(value(samples[i])));
  }
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// By the end of the second tenth a pool has its final size. The additional allowance is for noise, on each device.
void expect_flat(std::vector<sample> const& samples, int devices)
{
  auto const compare = [&](char const* what, double allowed, auto value) {
    auto const before = middle_of(samples, 2, 3, value);
    auto const after  = middle_of(samples, 9, 10, value);
    std::printf("%s: %.1f MiB in the third tenth, %.1f MiB in the last\n", what, before / MiB, after / MiB);
    EXPECT_LE(after, 1.02 * before + allowed) << what;
  };
  compare("host memory", 2 * MiB, [](sample const& each) { return each.host_bytes; });
  compare("device memory", 64.0 * devices * MiB, [](sample const& each) { return each.device_bytes; });
  compare("pool", 32.0 * devices * MiB, [](sample const& each) { return each.pool_bytes; });
}

[[nodiscard]] double middle_p50(std::vector<sample> const& samples, std::size_t begin, std::size_t end)
{
  return middle_of(samples, begin, end, [](sample const& each) { return each.latency.p50_ns; });
}

/// Expects that the last requests took about as long as the first. If they did not, the machine may be slower now, because other
/// programs run. So the pools are then compared with new ones, in turn.
void expect_fast(pools_of_devices const& pools,
                 std::string const& configuration,
                 std::vector<sample> const& samples,
                 std::chrono::duration<double> time)
{
  auto first             = middle_p50(samples, 0, 1);
  auto last              = middle_p50(samples, 9, 10);
  auto const is_fast     = [&] { return last <= 1.5 * first + 100; };  // clocks are not exact to 100 ns
  auto const run_shortly = [&](pools_of_devices const& which) {
    return middle_p50(run(which, time / 10, samples_of_run / 10), 0, 10);
  };
  std::printf("p50: %.0f ns in the first tenth, %.0f ns in the last\n", first, last);
  for (int i = 0; i != 5 && !is_fast(); ++i) {
    first = run_shortly(pools_of_devices{configuration, pools.devices()});
    last  = run_shortly(pools);
    std::printf("p50: %.0f ns of a new pool, %.0f ns of this one\n", first, last);
  }
  EXPECT_TRUE(is_fast()) << last << " ns, a new pool " << first << " ns";
}

/// Starts this test in further processes, which start no others, and waits for all.
void run_in_processes(int count)
{
  auto const csv = variable("RMM_SOAK_CSV", "");
  std::vector<pid_t> started;
  ::setenv("RMM_SOAK_PROCESSES", "1", 1);
  for (int i = 0; i != count; ++i) {
    if (!csv.empty()) { ::setenv("RMM_SOAK_CSV", (csv + "." + std::to_string(i)).c_str(), 1); }
    std::string program{"/proc/self/exe"};
    std::string filter{"--gtest_filter=LongLife.*"};
    std::string no_file{"--gtest_output="};  // only the first process writes reports
    std::array<char*, 4> arguments{program.data(), filter.data(), no_file.data(), nullptr};
    pid_t child{};
    ASSERT_EQ(::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ), 0);
    started.push_back(child);
  }
  for (auto const child : started) {
    int status{};
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "of process " << child;
  }
}

TEST(LongLife, EndsAsFastAndAsSmallAsItBegins)
{
  auto const processes = std::atoi(variable("RMM_SOAK_PROCESSES", "1").c_str());
  if (processes > 1) { return run_in_processes(processes); }
  auto const devices = std::atoi(variable("RMM_SOAK_DEVICES", "1").c_str());
  // The more devices, the more seldom all threads of one hold much. So these pools are large enough from the beginning.
  auto const usual         = devices == 1 ? "pool,initial=64MiB,max=4GiB" : "pool,initial=1GiB,max=4GiB";
  auto const configuration = variable("RMM_SOAK_RESOURCE", usual);
  ASSERT_TRUE(devices >= 1 && devices <= rmm::get_num_cuda_devices()) << devices;
  pools_of_devices const pools{configuration, devices};
  auto const seconds = std::strtod(variable("RMM_SOAK_SECONDS", RMM_USUAL_SOAK_SECONDS).c_str(), nullptr);
  std::chrono::duration<double> const time{seconds};
  auto const samples = run(pools, time, samples_of_run);
  if (auto const path = variable("RMM_SOAK_CSV", ""); !path.empty()) { write_csv(path, samples); }
  EXPECT_EQ(pools.figures().live_bytes, 0U);
  expect_flat(samples, devices);
  expect_fast(pools, configuration, samples, time);
}

}  // namespace
