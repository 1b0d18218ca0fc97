// SPDX-License-Identifier: Apache-2.0
//
// The allocators of CUDA itself: cudaMalloc, and a pool of the driver.

#include <benchmarks/compare/plugin_interface.h>
#include <benchmarks/compare/plugins/failure.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace {

void check(cudaError_t status)
{
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw std::runtime_error{cudaGetErrorString(status)};
  }
}

int current_device()
{
  int device{};
  check(cudaGetDevice(&device));
  return device;
}

enum allocators { device_memory, driver_pool, allocator_count };

/// An allocator. Invariant: `pool` is null for the allocator that calls cudaMalloc.
struct instance {
  cudaMemPool_t pool{};
};

cudaMemPool_t make_pool(std::size_t initial, std::size_t maximum)
{
  cudaMemPoolProps properties{};
  properties.allocType     = cudaMemAllocationTypePinned;
  properties.handleTypes   = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id   = current_device();
  properties.maxSize       = maximum;
  cudaMemPool_t pool{};
  check(cudaMemPoolCreate(&pool, &properties));
  auto threshold = std::numeric_limits<std::uint64_t>::max();  // never gives memory back to the device by itself
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  if (initial != 0) {
    void* block{};
    check(cudaMallocFromPoolAsync(&block, initial, pool, nullptr));
    check(cudaFreeAsync(block, nullptr));
    check(cudaStreamSynchronize(nullptr));
  }
  return pool;
}

}  // namespace

char const* plugin_allocator(int index)
{
  static char const* const names[] = {"cudaMalloc", "driver pool"};
  return index >= 0 && index < allocator_count ? names[index] : nullptr;
}

char const* plugin_description(int index)
{
  thread_local std::string text;
  int driver{};
  static_cast<void>(cudaDriverGetVersion(&driver));
  text = std::string{index == device_memory ? "cudaMalloc and cudaFree" : "cudaMallocFromPoolAsync and cudaFreeAsync"} +
         " (driver " + std::to_string(driver / 1000) + '.' + std::to_string(driver % 1000 / 10) + ')';
  return text.c_str();
}

unsigned plugin_features(int index)
{
  constexpr unsigned both = plugin_feature_times | plugin_feature_memory;
  return index == driver_pool ? both | plugin_feature_bounded : both;
}

void* plugin_make(int index, size_t initial, size_t maximum)
{
  return plugin::attempt<void*>(
    nullptr, [&] { return new instance{index == driver_pool ? make_pool(initial, maximum) : nullptr}; });
}

void plugin_end(void* allocator)
{
  auto* const self = static_cast<instance*>(allocator);
  if (self->pool != nullptr) { static_cast<void>(cudaMemPoolDestroy(self->pool)); }
  delete self;
}

char const* plugin_error() { return plugin::last_error().c_str(); }

cudaStream_t plugin_make_stream(void*)
{
  return plugin::attempt<cudaStream_t>(nullptr, [] {
    cudaStream_t stream{};
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  });
}

void plugin_end_stream(void*, cudaStream_t stream) { static_cast<void>(cudaStreamDestroy(stream)); }

void* plugin_allocate(void* allocator, size_t bytes, cudaStream_t stream)
{
  auto* const pool = static_cast<instance*>(allocator)->pool;
  void* ptr{};
  auto const status = pool != nullptr ? cudaMallocFromPoolAsync(&ptr, bytes, pool, stream) : cudaMalloc(&ptr, bytes);
  if (status == cudaSuccess) { return ptr; }
  plugin::last_error() = cudaGetErrorString(status);
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

void plugin_deallocate(void* allocator, void* ptr, size_t, cudaStream_t stream)
{
  static_cast<void>(static_cast<instance*>(allocator)->pool != nullptr ? cudaFreeAsync(ptr, stream) : cudaFree(ptr));
}

size_t plugin_reserved(void* allocator)
{
  auto* const pool = static_cast<instance*>(allocator)->pool;
  std::uint64_t bytes{};
  if (pool == nullptr || cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes) != cudaSuccess) {
    return 0;
  }
  return bytes;
}

void plugin_install(void*) {}

int plugin_uvectors(size_t, size_t, cudaStream_t) { return 0; }
