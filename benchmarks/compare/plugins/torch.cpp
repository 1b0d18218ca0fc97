// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's caching allocator, from the library in its Python package. A process has only one. So a "new" allocator here is the
// same one with an empty cache. Its limit is set as a fraction of the device's memory.

#include <benchmarks/compare/plugin_interface.h>
#include <benchmarks/compare/plugins/failure.hpp>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

void check(cudaError_t status)
{
  if (status != cudaSuccess) { throw std::runtime_error{cudaGetErrorString(status)}; }
}

bool has_expandable_segments()
{
  for (auto const* const name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    auto const* const settings = std::getenv(name);
    if (settings != nullptr && std::strstr(settings, "expandable_segments:True") != nullptr) { return true; }
  }
  return false;
}

/// Sets the most bytes that the allocator may take; 0 means all of the device.
void set_limit(std::size_t bytes)
{
  std::size_t free{};
  std::size_t total{};
  check(cudaMemGetInfo(&free, &total));
  auto const device = c10::cuda::current_device();
  caching::setMemoryFraction(bytes == 0 ? 1.0 : static_cast<double>(bytes) / static_cast<double>(total), device);
}

struct instance {
  c10::DeviceIndex device;
};

}  // namespace

char const* plugin_allocator(int index)
{
  return index != 0 ? nullptr : has_expandable_segments() ? "torch (expandable)" : "torch";
}

char const* plugin_description(int) { return "PyTorch's caching allocator (" RMM_COMPARE_TORCH_VERSION ")"; }

unsigned plugin_features(int) { return plugin_feature_times | plugin_feature_memory | plugin_feature_bounded; }

void* plugin_make(int, size_t, size_t maximum)  // the initial size is ignored: PyTorch has no such option
{
  return plugin::attempt<void*>(nullptr, [&] {
    static bool const ready = [] {
      caching::init(c10::cuda::device_count());
      return true;
    }();
    static_cast<void>(ready);
    caching::emptyCache();
    set_limit(maximum);
    return new instance{c10::cuda::current_device()};
  });
}

void plugin_end(void* allocator)
{
  plugin::attempt<int>(0, [] {
    caching::emptyCache();
    set_limit(0);
    return 0;
  });
  delete static_cast<instance*>(allocator);
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

void* plugin_allocate(void*, size_t bytes, cudaStream_t stream)
{
  try {
    return caching::raw_alloc_with_stream(bytes, stream);
  } catch (std::exception const& e) {
    plugin::last_error() = e.what();
    return nullptr;
  }
}

void plugin_deallocate(void*, void* ptr, size_t, cudaStream_t)
{
  plugin::attempt<int>(0, [&] {
    caching::raw_delete(ptr);
    return 0;
  });
}

size_t plugin_reserved(void* allocator)
{
  return plugin::attempt<size_t>(0, [&] {
    auto const stats = caching::getDeviceStats(static_cast<instance*>(allocator)->device);
    return static_cast<size_t>(stats.reserved_bytes[0].current);  // index 0: the sum over small and large pools
  });
}

void plugin_install(void*) {}

int plugin_uvectors(size_t, size_t, cudaStream_t) { return 0; }
