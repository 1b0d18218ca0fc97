// SPDX-License-Identifier: Apache-2.0

// Resources that serve allocations of other libraries from the driver, with the help of librmm_audit.so.

#include "failure.hpp"
#include "process.hpp"

#include <rmm/c/rmm.h>
#include <rmm/detail/base/audit_library.hpp>
#include <rmm/detail/cuda/device.hpp>

#include <atomic>
#include <cstddef>
#include <mutex>

namespace {

using rmm::detail::audit_source;
using rmm_c::fail;
using rmm_c::guarded;

constexpr int most_devices = 1024;

std::atomic<rmm_c_resource*> serving[most_devices];

/// Names the resource as the block's owner. It does not end before its blocks.
int allocate_for_library(
  void* /*context*/, int device, std::size_t bytes, void* stream, void** block, void** owner) noexcept
{
  auto* const resource = device >= 0 && device < most_devices ? serving[device].load() : nullptr;
  if (resource == nullptr || rmm_c_resource_device(resource) != device) { return audit_source::not_served; }
  *owner = resource;
  switch (rmm_c_resource_allocate(resource, bytes, 0, stream, block)) {
    case RMM_C_OK:
      return audit_source::served;
    case RMM_C_OUT_OF_MEMORY:
    case RMM_C_HOST_OUT_OF_MEMORY:
    case RMM_C_ALLOCATION_FAILED:
      return audit_source::out_of_memory;
    default:
      return audit_source::not_served;
  }
}

void deallocate_for_library(
  void* /*context*/, void* owner, int /*device*/, void* block, std::size_t bytes, void* stream) noexcept
{
  rmm_c_resource_deallocate(static_cast<rmm_c_resource*>(owner), block, bytes, 0, stream);
}

/// Registers this library's source once. Returns whether it is registered.
[[nodiscard]] bool has_source()
{
  static std::atomic<bool> has{false};
  if (has.load(std::memory_order_acquire)) { return true; }
  auto const* const audit = rmm::detail::find_audit_library();
  if (audit == nullptr) { return false; }
  std::lock_guard<std::mutex> const lock{rmm_c::default_resource_mutex()};
  if (has.load(std::memory_order_relaxed)) { return true; }
  audit_source const functions{allocate_for_library, deallocate_for_library, nullptr};
  bool const added = audit->add_source(&functions) != 0;
  has.store(added, std::memory_order_release);
  return added;
}

}  // namespace

rmm_c_status rmm_c_serve_libraries(int device, rmm_c_resource* resource) noexcept
{
  return guarded([&] {
    auto const known = device == RMM_C_CURRENT_DEVICE ? rmm::detail::known_current_device() : device;
    if (known < 0 || known >= most_devices) { return fail(RMM_C_INVALID_ARGUMENT, "the device does not exist"); }
    if (resource != nullptr && rmm_c_resource_device(resource) != known) {
      return fail(RMM_C_INVALID_ARGUMENT, "the resource belongs to another device");
    }
    if (!has_source()) {
      return fail(RMM_C_NOT_SUPPORTED, "librmm_audit.so is not preloaded with RMM_AUDIT=route:current");
    }
    serving[known].store(resource);
    return RMM_C_OK;
  });
}
