// SPDX-License-Identifier: Apache-2.0
//
// Device, pinned and registered memory, and queries about pointers. Managed memory is in api_managed.cpp.

#include "memory.hpp"
#include "pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <limits>

namespace cudasim {
namespace {

constexpr std::size_t pitch_bytes   = 512;
constexpr std::size_t host_bytes    = std::size_t{256} << 30U;  ///< host memory that can be pinned
constexpr std::size_t managed_bytes = std::size_t{16} << 40U;
constexpr unsigned host_alloc_flags = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
constexpr unsigned register_flags   = cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterReadOnly;

/// The common part of cudaMalloc and its relatives.
cudaError_t allocate(call& c, void** out, std::size_t bytes)
{
  if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer is null"); }
  if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
  if (bytes == 0) {
    *out = nullptr;
    return cudaSuccess;
  }
  auto const device = this_thread().device;
  auto const begin  = allocate_on_device(device, bytes);
  if (begin == 0) { return cudaErrorMemoryAllocation; }
  add_allocation(begin, allocation{allocation::kind::device, bytes, device, c.name(), c.site()});
  *out = pointer_to(begin);
  return cudaSuccess;
}

cudaError_t allocate_pitched(call& c, void** out, std::size_t* pitch, std::size_t width, std::size_t rows)
{
  if (pitch == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the pitch is null"); }
  if (width > std::numeric_limits<std::size_t>::max() - pitch_bytes) {
    return c.misuse(cudaErrorInvalidValue, "a width of %zu bytes is too large", width);
  }
  auto const step   = rows == 0 ? 0 : round_up(width, pitch_bytes);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(step, rows, &bytes)) { return cudaErrorMemoryAllocation; }
  if (auto const error = allocate(c, out, bytes); error != cudaSuccess) { return error; }
  *pitch = step;
  return cudaSuccess;
}

cudaError_t allocate_on_host(call& c, void** out, std::size_t bytes, unsigned flags)
{
  if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer is null"); }
  if ((flags & ~host_alloc_flags) != 0) { return c.misuse(cudaErrorInvalidValue, "flags %#x are unknown", flags); }
  if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
  if (bytes == 0) {
    *out = nullptr;
    return cudaSuccess;
  }
  auto& pinned     = memory().pinned;
  auto const begin = pinned.allocate(bytes, host_bytes - pinned.footprint());
  if (begin == 0) { return cudaErrorMemoryAllocation; }
  allocation made{allocation::kind::pinned, bytes, this_thread().device, c.name(), c.site()};
  made.flags = flags | cudaHostAllocMapped;
  add_allocation(begin, std::move(made));
  *out = pointer_to(begin);
  return cudaSuccess;
}

/// The allocation that starts at the pointer, if it is of one of these kinds; else end(), after a report.
template <class... Kind>
[[nodiscard]] allocation_map::iterator find_to_free(call& c, void const* ptr, Kind... kinds)
{
  auto& all        = memory().allocations;
  auto const found = all.find(address_of(ptr));
  if (found != all.end() && !found->second.freeing && ((found->second.type == kinds) || ...)) { return found; }
  refuse_pointer(c, cudaErrorInvalidValue, ptr);
  return all.end();
}

/// Waits for work that may use the memory, then gives it back. Calls `find` again after the wait, because another
/// thread may have freed the memory meanwhile.
template <class Find, class Wait>
cudaError_t free_after_wait(call& c, Find&& find, Wait&& wait)
{
  if (find() == memory().allocations.end()) { return cudaErrorInvalidValue; }
  if (auto const error = wait(); error != cudaSuccess) { return error; }
  auto const which = find();
  if (which == memory().allocations.end()) { return cudaErrorInvalidValue; }
  check_host_access(c.name(), c.site(), which->first, which->second.bytes, true);
  release_allocation(which, c.name(), c.site());
  return cudaSuccess;
}

/// Whether any of the bytes belong to an allocation.
[[nodiscard]] bool overlaps_allocation(std::uintptr_t begin, std::size_t bytes)
{
  auto const& all = memory().allocations;
  auto const next = all.lower_bound(begin);
  return find_allocation(begin) != all.end() || (next != all.end() && next->first - begin < bytes);
}

/// Whether all the pages are mapped in this process.
[[nodiscard]] bool is_mapped(std::uintptr_t begin, std::size_t bytes)
{
  auto const first = begin & ~std::uintptr_t{4095};
  return ::msync(pointer_to(first), begin + bytes - first, MS_ASYNC) == 0;
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

cudaError_t cudaMalloc(void** out, std::size_t bytes)
{
  CUDASIM_CALL(cudaMalloc, { return allocate(c, out, bytes); });
}

cudaError_t cudaMallocPitch(void** out, std::size_t* pitch, std::size_t width, std::size_t height)
{
  CUDASIM_CALL(cudaMallocPitch, { return allocate_pitched(c, out, pitch, width, height); });
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* out, cudaExtent extent)
{
  CUDASIM_CALL(cudaMalloc3D, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer is null"); }
    std::size_t rows = 0;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) { return cudaErrorMemoryAllocation; }
    cudaPitchedPtr made{nullptr, 0, extent.width, extent.height};
    if (auto const error = allocate_pitched(c, &made.ptr, &made.pitch, extent.width, rows); error != cudaSuccess) {
      return error;
    }
    *out = made;
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* ptr)
{
  CUDASIM_CALL(cudaFree, {
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    if (ptr == nullptr) { return cudaSuccess; }
    using kind       = allocation::kind;
    auto const find  = [&] { return find_to_free(c, ptr, kind::device, kind::managed, kind::pooled, kind::imported); };
    auto const which = find();
    if (which == memory().allocations.end()) { return cudaErrorInvalidValue; }
    if (which->second.block != nullptr) {  // CUDA does not wait here: the program has waited itself
      if (which->second.block->of_graph && !which->second.block->live) {
        return refuse_pointer(c, cudaErrorInvalidValue, ptr);
      }
      check_host_access(c.name(), c.site(), which->first, which->second.bytes, true);
      free_to_pool_at_once(which, c.name(), c.site());
      return cudaSuccess;
    }
    bool const everywhere = which->second.type == kind::managed;
    return free_after_wait(c, find, [&, device = which->second.device] {
      return everywhere ? wait_for_all_devices(c) : wait_for_device(c, device);
    });
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total)
{
  CUDASIM_CALL(cudaMemGetInfo, {
    if (free != nullptr) { *free = free_bytes(this_thread().device); }
    if (total != nullptr) { *total = the_world().machine.memory_bytes; }
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** out, std::size_t bytes)
{
  CUDASIM_CALL(cudaMallocHost, { return allocate_on_host(c, out, bytes, cudaHostAllocDefault); });
}

cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned flags)
{
  CUDASIM_CALL(cudaHostAlloc, { return allocate_on_host(c, out, bytes, flags); });
}

cudaError_t cudaFreeHost(void* ptr)
{
  CUDASIM_CALL(cudaFreeHost, {
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    if (ptr == nullptr) { return cudaSuccess; }
    return free_after_wait(
      c, [&] { return find_to_free(c, ptr, allocation::kind::pinned); }, [&] { return wait_for_all_devices(c); });
  });
}

cudaError_t cudaHostRegister(void* ptr, std::size_t bytes, unsigned flags)
{
  CUDASIM_CALL(cudaHostRegister, {
    auto const begin = address_of(ptr);
    if (ptr == nullptr || bytes == 0 || bytes > std::numeric_limits<std::uintptr_t>::max() - begin) {
      return c.misuse(cudaErrorInvalidValue, "%zu bytes at %p are not a valid range", bytes, ptr);
    }
    if ((flags & cudaHostRegisterIoMemory) != 0) { return cudaErrorInvalidValue; }  // the simulator has no such memory
    if ((flags & ~register_flags) != 0) { return c.misuse(cudaErrorInvalidValue, "flags %#x are unknown", flags); }
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    if (memory().addresses.owns(begin)) { return refuse_pointer(c, cudaErrorInvalidValue, ptr); }
    if (overlaps_allocation(begin, bytes)) { return cudaErrorHostMemoryAlreadyRegistered; }
    if (!is_mapped(begin, bytes)) {
      return c.misuse(cudaErrorInvalidValue, "the process has no memory at %p, or not %zu bytes of it", ptr, bytes);
    }
    allocation made{allocation::kind::registered, bytes, this_thread().device, c.name(), c.site()};
    made.flags = (flags & (cudaHostRegisterPortable | cudaHostRegisterMapped)) | cudaHostRegisterMapped;
    add_allocation(begin, std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* ptr)
{
  CUDASIM_CALL(cudaHostUnregister, {
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    if (ptr == nullptr) { return c.misuse(cudaErrorInvalidValue, "the pointer is null"); }
    if (find_allocation(address_of(ptr)) == memory().allocations.end()) {
      return refuse_pointer(c, cudaErrorHostMemoryNotRegistered, ptr);
    }
    return free_after_wait(
      c, [&] { return find_to_free(c, ptr, allocation::kind::registered); }, [&] { return wait_for_all_devices(c); });
  });
}

cudaError_t cudaHostGetDevicePointer(void** out, void* ptr, unsigned flags)
{
  CUDASIM_CALL(cudaHostGetDevicePointer, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer is null"); }
    if (flags != 0) { return c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#x", flags); }
    auto const found = find_allocation(address_of(ptr));
    if (found == memory().allocations.end() ||
        (found->second.type != allocation::kind::pinned && found->second.type != allocation::kind::registered)) {
      return refuse_pointer(c, cudaErrorInvalidValue, ptr);
    }
    *out = ptr;
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* ptr)
{
  CUDASIM_CALL(cudaHostGetFlags, {
    if (flags == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the flags is null"); }
    auto const found = find_allocation(address_of(ptr));
    if (found == memory().allocations.end() || type_of(found->second) == cudaMemoryTypeDevice) {
      return refuse_pointer(c, cudaErrorInvalidValue, ptr);
    }
    *flags = found->second.flags;
    return cudaSuccess;
  });
}

cudaError_t cudaMallocManaged(void** out, std::size_t bytes, unsigned flags)
{
  CUDASIM_CALL(cudaMallocManaged, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer is null"); }
    if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost) {
      return c.misuse(
        cudaErrorInvalidValue, "flags have to be cudaMemAttachGlobal or cudaMemAttachHost, not %#x", flags);
    }
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    if (bytes == 0) {
      *out = nullptr;
      return cudaSuccess;
    }
    auto& managed = memory().managed;
    if (bytes > managed_bytes) { return cudaErrorMemoryAllocation; }
    auto const begin = managed.allocate(round_up(bytes, page_bytes), managed_bytes - managed.footprint());
    if (begin == 0) { return cudaErrorMemoryAllocation; }
    allocation made{allocation::kind::managed, bytes, this_thread().device, c.name(), c.site()};
    made.flags = flags;
    add_allocation(begin, std::move(made));
    *out = pointer_to(begin);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* ptr)
{
  CUDASIM_CALL(cudaPointerGetAttributes, {
    if (attributes == nullptr) {
      return c.misuse(cudaErrorInvalidValue, "the output pointer for the attributes is null");
    }
    auto* const mine = const_cast<void*>(ptr);
    *attributes      = {};
    auto const found = find_allocation(address_of(ptr));
    if (found == memory().allocations.end()) {
      attributes->type        = cudaMemoryTypeUnregistered;
      attributes->device      = cudaInvalidDeviceId;
      attributes->hostPointer = mine;
      return cudaSuccess;
    }
    auto const& what          = found->second;
    auto const type           = type_of(what);
    attributes->type          = type;
    attributes->device        = what.device;
    bool const by_reference   = what.block != nullptr || what.view != nullptr;  // memory with access rights of its own
    bool const seen           = !by_reference || accessible(what, this_thread().device);
    attributes->devicePointer = seen || type == cudaMemoryTypeManaged ? mine : nullptr;
    attributes->hostPointer   = type == cudaMemoryTypeDevice ? nullptr : mine;
    return cudaSuccess;
  });
}
