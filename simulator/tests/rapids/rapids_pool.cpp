// SPDX-License-Identifier: Apache-2.0
//
// RAPIDS' pool on the simulator, under the ordering checker: a merge of free lists, growth, or random use by streams.
//
// rapids_pool.py builds it with the headers and the librmm.so of a wheel. RAPIDS orders streams in its headers, so
// these calls of the CUDA runtime are compiled here and reach the simulator. The parts of librmm.so that this program
// uses (splitting, growing) call CUDA only for the two queries that are answered below; librmm.so has its own CUDA
// runtime, which would need a driver.

#include <rmm/cuda_device.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <vector>

#ifndef RMM_NAMESPACE_BEGIN  // until 26.06
#define RMM_NAMESPACE_BEGIN namespace RMM_NAMESPACE {
#define RMM_NAMESPACE_END }
#endif

RMM_NAMESPACE_BEGIN

cuda_device_id get_current_cuda_device()
{
  int device = 0;
  cudaGetDevice(&device);
  return cuda_device_id{device};
}

int get_num_cuda_devices()
{
  int count = 0;
  cudaGetDeviceCount(&count);
  return count;
}

RMM_NAMESPACE_END

namespace {

constexpr std::size_t alignment = 256;

void check(cudaError_t error)
{
  if (error == cudaSuccess) { return; }
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::exit(2);
}

/// The upstream of a pool: cudaMalloc, or cudaMallocAsync.
class simulated_memory {
 public:
  explicit simulated_memory(bool in_order) : in_order_{in_order} {}

  void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t /*alignment*/)
  {
    void* ptr        = nullptr;
    auto const error = in_order_ ? cudaMallocAsync(&ptr, bytes, stream.get()) : cudaMalloc(&ptr, bytes);
    if (error != cudaSuccess) { throw std::bad_alloc{}; }
    return ptr;
  }
  void deallocate(cuda::stream_ref stream, void* ptr, std::size_t /*bytes*/, std::size_t /*alignment*/) noexcept
  {
    check(in_order_ ? cudaFreeAsync(ptr, stream.get()) : cudaFree(ptr));
  }
  void* allocate_sync(std::size_t bytes, std::size_t bytes_alignment)
  {
    auto* const ptr = allocate(cuda::stream_ref{cudaStreamLegacy}, bytes, bytes_alignment);
    check(cudaStreamSynchronize(cudaStreamLegacy));
    return ptr;
  }
  void deallocate_sync(void* ptr, std::size_t bytes, std::size_t bytes_alignment) noexcept
  {
    check(cudaDeviceSynchronize());
    deallocate(cuda::stream_ref{cudaStreamLegacy}, ptr, bytes, bytes_alignment);
  }
  friend bool operator==(simulated_memory const& a, simulated_memory const& b) { return a.in_order_ == b.in_order_; }
  friend bool operator!=(simulated_memory const& a, simulated_memory const& b) { return !(a == b); }
  friend void get_property(simulated_memory const&, cuda::mr::device_accessible) noexcept {}

 private:
  bool in_order_;
};

/// A pool, and streams that use its memory.
class bench {
 public:
  bench(std::size_t streams, std::size_t most_bytes, bool in_order)
    // Never destroyed: the destructor is code of librmm.so.
    : pool_{*new rmm::mr::pool_memory_resource{simulated_memory{in_order}, 0, most_bytes}}, streams_(streams)
  {
    for (auto& stream : streams_) { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  }

  [[nodiscard]] cudaStream_t stream(std::size_t which) const { return streams_[which]; }

  void* allocate(std::size_t which, std::size_t bytes)
  {
    return pool_.allocate(cuda::stream_ref{streams_[which]}, bytes, alignment);
  }
  void deallocate(std::size_t which, void* ptr, std::size_t bytes)
  {
    pool_.deallocate(cuda::stream_ref{streams_[which]}, ptr, bytes, alignment);
  }
  /// A kernel that writes the bytes.
  void write(std::size_t which, void* ptr, std::size_t bytes)
  {
    cudasim::launch(streams_[which], {}, {{ptr, bytes}}, [=] { std::memset(ptr, 1, bytes); });
  }

 private:
  rmm::mr::pool_memory_resource& pool_;
  std::vector<cudaStream_t> streams_;
};

/// Stream 0 merges memory that stream 1 still uses into its own list; stream 2 then takes a part of it from stream 0.
void merge_lists()
{
  constexpr std::size_t half = std::size_t{1} << 20U;
  bench b{3, 2 * half, false};
  auto* const whole = b.allocate(0, 2 * half);  // the pool grows to its limit
  b.deallocate(0, whole, 2 * half);
  auto* const of_0 = b.allocate(0, half);
  auto* const of_1 = b.allocate(1, half);
  b.deallocate(0, of_0, half);
  b.write(1, of_1, half);
  b.deallocate(1, of_1, half);
  auto* const merged = b.allocate(0, half + half / 2);
  auto* const of_2   = b.allocate(2, half / 2);  // the rest of what was merged
  b.write(0, merged, half + half / 2);
  b.write(2, of_2, half / 2);
  b.deallocate(0, merged, half + half / 2);
  b.deallocate(2, of_2, half / 2);
}

/// Stream 0 makes the pool grow by memory that is allocated in its order; stream 1 takes a part of that memory.
void grow()
{
  constexpr std::size_t bytes = std::size_t{1} << 20U;
  bench b{2, 8 * bytes, true};
  auto* const of_0 = b.allocate(0, bytes);
  auto* const of_1 = b.allocate(1, bytes);
  b.write(0, of_0, bytes);
  b.write(1, of_1, bytes);
  b.deallocate(0, of_0, bytes);
  b.deallocate(1, of_1, bytes);
}

/// Each stream writes to the memory that it allocates, and frees it.
void random_streams(std::uint64_t seed, bool in_order, bool synchronizes)
{
  constexpr std::size_t unit    = 4096;
  constexpr std::size_t streams = 4;
  struct block {
    std::size_t stream;
    void* ptr;
    std::size_t bytes;
  };
  std::mt19937_64 random{seed};
  bench b{streams, 64 * unit, in_order};
  std::vector<block> live;
  for (int step = 0; step < 300; ++step) {
    auto const which = random() % streams;
    if (synchronizes && random() % 20 == 0) { check(cudaStreamSynchronize(b.stream(which))); }
    if (random() % 2 == 0 || live.empty()) {
      auto const bytes = unit * (1 + random() % 24);
      try {
        live.push_back({which, b.allocate(which, bytes), bytes});
        b.write(which, live.back().ptr, bytes);
      } catch (std::bad_alloc const&) {  // the pool is full
      }
    } else {
      auto const victim = random() % live.size();
      auto const freed  = live[victim];
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
      b.write(freed.stream, freed.ptr, freed.bytes);
      b.deallocate(freed.stream, freed.ptr, freed.bytes);
    }
  }
}

}  // namespace

/// rapids_pool merge|grow, or rapids_pool random|random-in-order RUNS
int main(int count, char** arguments)
{
  std::string const what = count > 1 ? arguments[1] : "merge";
  bool const is_random   = what.rfind("random", 0) == 0;
  auto const runs        = is_random && count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 1;
  cudasim::options machine;
  machine.check_ordering = true;
  machine.mode           = cudasim::execution::stepped;
  unsigned long found    = 0;
  for (unsigned long seed = 0; seed < runs; ++seed) {
    cudasim::reset(machine);
    if (what == "merge") {
      merge_lists();
    } else if (what == "grow") {
      grow();
    } else {
      random_streams(seed, what == "random-in-order", seed % 2 == 0);
    }
    check(cudaDeviceSynchronize());
    if (cudasim::violation_count() != 0) { ++found; }
    cudasim::clear_violations();  // they were printed
  }
  std::printf("%s: violations in %lu of %lu runs\n", what.c_str(), found, runs);
  return 0;
}
