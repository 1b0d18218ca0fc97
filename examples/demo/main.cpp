// SPDX-License-Identifier: Apache-2.0
//
// Compares memory resources: the demo runs a burst of allocations through the current resource, once with each resource as the
// current one.

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

namespace {

/// A resource that the program defines in a few lines. It keeps freed blocks, and reuses them for requests of equal size on the
/// stream of the free, where they may be used immediately.
class recycling_resource final : public rmm::mr::device_memory_resource {
 public:
  explicit recycling_resource(rmm::mr::device_memory_resource* upstream) : upstream_{upstream} {}
  recycling_resource(recycling_resource const&)            = delete;
  recycling_resource& operator=(recycling_resource const&) = delete;

  ~recycling_resource() override
  {
    for (auto const& [key, blocks] : kept_) {
      for (auto* const block : blocks) { upstream_->deallocate(block, key.second, rmm::cuda_stream_view{key.first}); }
    }
  }

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    {
      std::lock_guard<std::mutex> const lock{mutex_};
      auto& blocks = kept_[{stream.value(), bytes}];
      if (!blocks.empty()) {
        auto* const block = blocks.back();
        blocks.pop_back();
        return block;
      }
    }
    return upstream_->allocate(bytes, stream);
  }

  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    kept_[{stream.value(), bytes}].push_back(ptr);
  }

  rmm::mr::device_memory_resource* upstream_;
  std::mutex mutex_;
  std::map<std::pair<cudaStream_t, std::size_t>, std::vector<void*>> kept_;
};

/// One step of the burst: a buffer of `bytes` on stream number `stream` replaces the buffer in `slot`.
struct step {
  std::size_t slot;
  std::size_t stream;
  std::size_t bytes;
};

constexpr std::size_t live_buffers = 200;

/// Makes a burst such as a data-frame query: its sizes range over many powers of two, and are drawn from a set of 64.
std::vector<step> make_burst(std::size_t streams)
{
  std::mt19937 random{2024};
  std::lognormal_distribution<double> size{std::log(64.0 * 1024), 1.8};
  std::vector<std::size_t> sizes(64);
  std::generate(sizes.begin(), sizes.end(), [&] {
    return static_cast<std::size_t>(std::clamp(size(random), 256.0, 16.0 * 1024 * 1024));
  });
  std::vector<step> burst(4000);
  for (auto& s : burst) {
    auto const slot = random() % live_buffers;
    s               = {slot, slot % streams, sizes[random() % sizes.size()]};
  }
  return burst;
}

struct outcome {
  double microseconds;      ///< time of one step
  std::size_t live;         ///< peak of the bytes in use
  std::size_t device_peak;  ///< peak of the bytes taken from the device
};

/// Runs the burst on the current resource twice: first to warm up and to measure memory, then to measure time.
outcome run(std::vector<step> const& burst, rmm::cuda_stream_pool const& streams, std::size_t free_before)
{
  outcome result{};
  std::vector<rmm::device_buffer> buffers(live_buffers);
  auto const replace = [&](step const& s) {
    auto const stream = streams.get_stream(s.stream);
    buffers[s.slot]   = rmm::device_buffer{};  // frees the old buffer before the new one is allocated
    buffers[s.slot]   = rmm::device_buffer{s.bytes, stream};
  };

  std::size_t live = 0;
  for (std::size_t i = 0; i < burst.size(); ++i) {
    live -= buffers[burst[i].slot].size();
    live += burst[i].bytes;
    result.live = std::max(result.live, live);
    replace(burst[i]);
    if (i % 100 == 0) {
      auto const free_now = rmm::available_device_memory().first;
      result.device_peak  = std::max(result.device_peak, free_before - std::min(free_before, free_now));
    }
  }
  auto const start = std::chrono::steady_clock::now();
  std::for_each(burst.begin(), burst.end(), replace);
  std::chrono::duration<double, std::micro> const time = std::chrono::steady_clock::now() - start;
  result.microseconds                                  = time.count() / static_cast<double>(burst.size());
  return result;
}

void print_backend()
{
  cudaDeviceProp properties{};
  int driver{};
  RMM_CUDA_TRY(cudaGetDeviceProperties(&properties, rmm::get_current_cuda_device().value()));
  RMM_CUDA_TRY(cudaDriverGetVersion(&driver));
  bool const simulated = std::strstr(properties.name, "simulated") != nullptr;
  std::printf("backend: %s, %s, CUDA %d.%d, %.1f GB\n",
              simulated ? "simulator (no GPU: times are host times only)" : "CUDA",
              properties.name,
              driver / 1000,
              driver % 1000 / 10,
              static_cast<double>(rmm::available_device_memory().second) / 1e9);
}

void demonstrate()
{
  print_backend();
  rmm::cuda_stream_pool const streams{4};
  auto const burst = make_burst(streams.get_pool_size());
  std::printf("%zu times: free a buffer and allocate another; %zu live, on %zu streams\n\n",
              burst.size(),
              live_buffers,
              streams.get_pool_size());
  std::printf("%-28s %14s %12s %18s\n", "current resource", "time a step", "live", "taken from device");

  auto const show = [&](char const* name, auto const& make) {
    auto const free_before = rmm::available_device_memory().first;
    auto const resource    = make();
    auto* const previous   = rmm::mr::set_current_device_resource(resource.get());
    auto const result      = run(burst, streams, free_before);
    rmm::mr::set_current_device_resource(previous);
    constexpr double mib = 1024.0 * 1024.0;
    std::printf("%-28s %11.2f us %8.1f MiB %14.1f MiB\n",
                name,
                result.microseconds,
                static_cast<double>(result.live) / mib,
                static_cast<double>(result.device_peak) / mib);
  };

  rmm::mr::cuda_memory_resource cuda;
  show("cuda", [] { return std::make_unique<rmm::mr::cuda_memory_resource>(); });
  show("managed", [] { return std::make_unique<rmm::mr::managed_memory_resource>(); });
  show("cuda_async (driver's pool)", [] { return std::make_unique<rmm::mr::cuda_async_memory_resource>(); });
  using pool = rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;
  show("pool over cuda", [&] { return std::make_unique<pool>(&cuda, 64 << 20); });
  for (auto const* const text : {"elastic", "cached", "arena,size=1GiB", "binning"}) {  // the syntax of RMM_RESOURCE
    show(text, [&] { return rmm::mr::configured_resource{text}.share(); });
  }
  show("recycling (in this file)", [&] { return std::make_unique<recycling_resource>(&cuda); });
}

}  // namespace

int main()
{
  try {
    demonstrate();
  } catch (std::exception const& e) {
    std::fprintf(stderr, "the demo failed: %s\n", e.what());
    return 1;
  }
}
