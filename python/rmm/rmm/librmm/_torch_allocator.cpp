// SPDX-License-Identifier: Apache-2.0

// What PyTorch's pluggable allocator calls: the two functions that it asks for by name, and those of its hooks. They have the
// types of torch/csrc/cuda/CUDAPluggableAllocator.h, some of which are C++, so that PyTorch has to be built with the C++
// library of GCC, which it is wherever there are wheels of it. And what rmm.allocators.torch calls itself.

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

/// Calls what may fail where PyTorch does not expect that.
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

/// What `ptr` lies in; nothing where the driver does not tell.
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

/// Allocates on `device`, for use on `stream`. Throws what the resource throws, as PyTorch has it where memory is missing.
RMM_TORCH_ENTRY void* allocate(std::size_t size, int device, void* stream)
{
  return torch_memory::get().allocate(size, device, static_cast<cudaStream_t>(stream));
}

/// Gives back what allocate() returned for the same `size` and `device`, in the order of `stream`.
RMM_TORCH_ENTRY void deallocate(void* ptr, std::size_t size, int device, void* stream)
{
  log_failure_of([&] { torch_memory::get().deallocate(ptr, size, device, static_cast<cudaStream_t>(stream)); });
}

/// Allocates a segment of a torch.cuda.MemPool; null where there is not enough memory.
RMM_TORCH_ENTRY void* allocate_segment(std::size_t size, int device, void* /*stream*/)
{
  return torch_memory::get().allocate_segment(size, device);
}

/// Gives that back.
RMM_TORCH_ENTRY void deallocate_segment(void* ptr, std::size_t /*size*/, int device, void* /*stream*/)
{
  log_failure_of([&] { torch_memory::get().deallocate_segment(ptr, device); });
}

// --- hooks -----------------------------------------------------------------------------------------------------------

/// PyTorch is about to use so many devices.
RMM_TORCH_ENTRY void torch_init(int device_count)
{
  for (int device = 0; device < device_count; ++device) { static_cast<void>(torch_memory::get().of(device)); }
}

/// torch.cuda.empty_cache(): what resources hold and nobody uses goes back to the devices.
RMM_TORCH_ENTRY void torch_empty_cache() { torch_memory::get().release_unused_memory(); }

/// torch.cuda.set_per_process_memory_fraction(): a limit of what is in use at a time.
RMM_TORCH_ENTRY void torch_set_memory_fraction(double fraction, int device)
{
  torch_memory::get().set_fraction(fraction, device);
}

/// The allocation of the driver's that `ptr` lies in, for sharing with other processes; the block itself if it has none.
RMM_TORCH_ENTRY void* torch_base_allocation(void* ptr, std::size_t* size)
{
  auto const found = driver_allocation_of(ptr);
  if (size != nullptr) { *size = found ? found->bytes : torch_memory::get().bytes_of(ptr); }
  return found ? found->base : ptr;
}

/// Tensor.record_stream(): `stream` uses the block, too.
RMM_TORCH_ENTRY void torch_record_stream(void* ptr, cudaStream_t stream) { torch_memory::get().add_user(ptr, stream); }

/// A capture begins on the streams that `is_in_it` tells, whose graph uses the memory of `pool`.
RMM_TORCH_ENTRY void torch_begin_allocate_to_pool(int device, torch_graphs::pool_id pool, torch_graphs::filter is_in_it)
{
  torch_memory::get().graphs.begin(device, pool, std::move(is_in_it));
}

RMM_TORCH_ENTRY void torch_end_allocate_to_pool(int device, torch_graphs::pool_id pool)
{
  torch_memory::get().graphs.end(device, pool);
  log_failure_of([] { torch_memory::get().free_postponed(); });
}

/// A graph that was captured with the memory of `pool` is gone.
RMM_TORCH_ENTRY void torch_release_pool(int device, torch_graphs::pool_id pool)
{
  torch_memory::get().graphs.release(device, pool);
}

// --- for Python ------------------------------------------------------------------------------------------------------

/// How many bytes the segment that begins at `ptr` is behind the begin of the driver's allocation that it lies in. -1 if no segment of
/// ours begins there, -2 if the driver does not tell.
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

/// What PyTorch has on `device`. Returns whether there is such a device.
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

/// Lets peaks begin anew. Returns whether there is such a device.
RMM_TORCH_ENTRY bool torch_reset_peaks(int device) noexcept
{
  if (device < 0 || device >= rmm::get_num_cuda_devices()) { return false; }
  log_failure_of([&] { torch_memory::get().of(device).usage.reset_peaks(); });
  return true;
}

/// Lets sums begin anew. Returns whether there is such a device.
RMM_TORCH_ENTRY bool torch_reset_sums(int device) noexcept
{
  if (device < 0 || device >= rmm::get_num_cuda_devices()) { return false; }
  log_failure_of([&] { torch_memory::get().of(device).usage.reset_sums(); });
  return true;
}
