// SPDX-License-Identifier: Apache-2.0

// The functions that PyTorch's pluggable allocator calls (two by name, the others as hooks), and those that rmm.allocators.torch
// calls. Their types are those of torch/csrc/cuda/CUDAPluggableAllocator.h. Some are C++ types, so PyTorch must be built with
// libstdc++, as all its wheels are.

#include "librmm/_torch_memory.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/cuda/driver.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#define RMM_TORCH_ENTRY extern "C" __attribute__((visibility("default")))

using rmm_python::torch_figures;
using rmm_python::torch_graphs;
using rmm_python::torch_memory;

namespace {

/// Runs `action` and logs its exceptions, for functions that PyTorch does not expect to throw.
template <class Action>
void log_failure_of(Action&& action) noexcept
{
  try {
    action();
  } catch (std::exception const& error) {
    rmm::detail::log(rmm::detail::log_level::error, error.what());
  }
}

struct driver_allocation {
  void* base;
  std::size_t bytes;
};

/// Returns the allocation of the driver that contains `ptr`; nothing if the driver does not tell.
std::optional<driver_allocation> driver_allocation_of(void* ptr)
{
  decltype(&::cuMemGetAddressRange) address_range{};
  CUdeviceptr base{};
  std::size_t bytes{};
  if (!rmm::detail::find_driver_function(address_range, "cuMemGetAddressRange") ||
      address_range(&base, &bytes, reinterpret_cast<CUdeviceptr>(ptr)) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  return driver_allocation{reinterpret_cast<void*>(base), bytes};
}

}  // namespace

// --- memory ----------------------------------------------------------------------------------------------------------

/// Allocates on `device`, for use on `stream`. Throws the resource's exceptions, but PyTorch's own out-of-memory error if memory is
/// missing.
RMM_TORCH_ENTRY void* allocate(std::size_t size, int device, void* stream)
{
  return torch_memory::get().allocate(size, device, static_cast<cudaStream_t>(stream));
}

/// Frees what allocate() returned for this `size` and `device`, in the order of `stream`.
RMM_TORCH_ENTRY void deallocate(void* ptr, std::size_t size, int device, void* stream)
{
  log_failure_of([&] { torch_memory::get().deallocate(ptr, size, device, static_cast<cudaStream_t>(stream)); });
}

/// Allocates a segment of a torch.cuda.MemPool. Returns null if there is not enough memory.
RMM_TORCH_ENTRY void* allocate_segment(std::size_t size, int device, void* /*stream*/)
{
  return torch_memory::get().allocate_segment(size, device);
}

/// Frees a segment.
RMM_TORCH_ENTRY void deallocate_segment(void* ptr, std::size_t /*size*/, int device, void* /*stream*/)
{
  log_failure_of([&] { torch_memory::get().deallocate_segment(ptr, device); });
}

// --- hooks -----------------------------------------------------------------------------------------------------------

/// Called before PyTorch uses devices.
RMM_TORCH_ENTRY void torch_init(int device_count)
{
  for (int device = 0; device < device_count; ++device) { static_cast<void>(torch_memory::get().of(device)); }
}

/// Implements torch.cuda.empty_cache(): resources give unused memory back to the devices.
RMM_TORCH_ENTRY void torch_empty_cache() { torch_memory::get().release_unused_memory(); }

/// Implements torch.cuda.set_per_process_memory_fraction(): limits the bytes in use.
RMM_TORCH_ENTRY void torch_set_memory_fraction(double fraction, int device)
{
  torch_memory::get().set_fraction(fraction, device);
}

/// Returns the allocation of the driver that contains `ptr`, for sharing with other processes; `ptr` itself if unknown.
RMM_TORCH_ENTRY void* torch_base_allocation(void* ptr, std::size_t* size)
{
  auto const found = driver_allocation_of(ptr);
  if (size != nullptr) { *size = found ? found->bytes : torch_memory::get().bytes_of(ptr); }
  return found ? found->base : ptr;
}

/// Implements Tensor.record_stream(): `stream` uses the block, too.
RMM_TORCH_ENTRY void torch_record_stream(void* ptr, cudaStream_t stream) { torch_memory::get().add_user(ptr, stream); }

/// Called when a capture begins on the streams for which `is_in_it` returns true. Its graph uses the memory of `pool`.
RMM_TORCH_ENTRY void torch_begin_allocate_to_pool(int device, torch_graphs::pool_id pool, torch_graphs::filter is_in_it)
{
  torch_memory::get().graphs.begin(device, pool, std::move(is_in_it));
}

RMM_TORCH_ENTRY void torch_end_allocate_to_pool(int device, torch_graphs::pool_id pool)
{
  torch_memory::get().graphs.end(device, pool);
  log_failure_of([] { torch_memory::get().free_postponed(); });
}

/// Called when a graph that was captured with the memory of `pool` is destroyed.
RMM_TORCH_ENTRY void torch_release_pool(int device, torch_graphs::pool_id pool)
{
  torch_memory::get().graphs.release(device, pool);
}

// --- for Python ------------------------------------------------------------------------------------------------------

/// Returns the offset of the segment at `ptr` in its allocation of the driver; -1 if no segment of RMM begins there, -2 if the
/// driver does not tell.
RMM_TORCH_ENTRY std::int64_t torch_place_of_segment(void* ptr) noexcept
{
  constexpr std::int64_t not_ours = -1;
  constexpr std::int64_t unknown  = -2;
  std::int64_t place              = unknown;
  log_failure_of([&] {
    auto const device = torch_memory::get().device_of(ptr);
    if (!device) {
      place = not_ours;
      return;
    }
    rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{*device}};
    if (auto const found = driver_allocation_of(ptr)) {
      place = static_cast<char const*>(ptr) - static_cast<char const*>(found->base);
    }
  });
  return place;
}

/// Stores PyTorch's statistics for `device` in `out`. Returns whether there is such a device.
RMM_TORCH_ENTRY bool torch_statistics(int device, torch_figures* out) noexcept
{
  if (device < 0 || device >= rmm::get_num_cuda_devices()) { return false; }
  bool known = false;
  log_failure_of([&] {
    *out  = torch_memory::get().figures(device);
    known = true;
  });
  return known;
}

/// Resets the peaks. Returns whether there is such a device.
RMM_TORCH_ENTRY bool torch_reset_peaks(int device) noexcept
{
  if (device < 0 || device >= rmm::get_num_cuda_devices()) { return false; }
  log_failure_of([&] { torch_memory::get().of(device).usage.reset_peaks(); });
  return true;
}

/// Resets the sums. Returns whether there is such a device.
RMM_TORCH_ENTRY bool torch_reset_sums(int device) noexcept
{
  if (device < 0 || device >= rmm::get_num_cuda_devices()) { return false; }
  log_failure_of([&] { torch_memory::get().of(device).usage.reset_sums(); });
  return true;
}
