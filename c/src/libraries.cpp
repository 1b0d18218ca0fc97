// SPDX-License-Identifier: Apache-2.0

// Resources that serve allocations of other libraries from the driver, with the help of librmm_audit.so.

#include "libraries.hpp"

#include "failure.hpp"
#include "process.hpp"
#include "resource.hpp"

#include <rmm/c/rmm.h>
#include <rmm/detail/base/audit_library.hpp>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>

namespace {

using rmm::detail::audit_source;
using rmm_c::fail;
using rmm_c::guarded;
using rmm_c::most_devices;

/// The resource that serves on each device. Changes under list_mutex(). Resources in it are of that device, and have not ended: a resource
/// leaves it when it is given up.
///
/// Order: seq_cst, as the states and uses of resources. A call counts a use and then reads the entry again. close() clears the entry before
/// it sums the uses. So either the sum has the use, or the call finds the entry changed and does not touch the resource.
std::atomic<rmm_c_resource*> serving[most_devices];

/// Names the resource as the block's owner. It does not end before its blocks.
int allocate_for_library(
  void* /*context*/, int device, std::size_t bytes, void* stream, void** block, void** owner) noexcept
{
  auto* const resource = device >= 0 && device < most_devices ? serving[device].load() : nullptr;
  if (resource == nullptr) { return audit_source::not_served; }
  rmm_c::use_of_resource const use{*resource};
  if (serving[device].load() != resource) { return audit_source::not_served; }  // the object may have a later resource
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
  static std::atomic<bool> has{false};  // Order: a thread that acquires true knows that add_source() has returned
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

void rmm_c::end_serving_locked(rmm_c_resource const& resource, int device) noexcept
{
  if (device < most_devices && serving[device].load() == &resource) { serving[device].store(nullptr); }
}

rmm_c_status rmm_c_serve_libraries(int device, rmm_c_resource* resource) noexcept
{
  std::optional<rmm_c::use_of_resource> use;
  if (resource != nullptr) {
    use.emplace(*resource);
    if (auto const status = use->check_usable()) { return status; }
  }
  if (auto const status = rmm_c::check_may_begin_to_use_cuda()) { return status; }
  return guarded([&] {
    auto const known = rmm_c::known_device(device);
    rmm_c::note_that_cuda_is_used();
    if (known >= most_devices) { return fail(RMM_C_INVALID_ARGUMENT, "the device does not exist"); }
    if (resource != nullptr && rmm_c_resource_device(resource) != known) {
      return fail(RMM_C_INVALID_ARGUMENT, "the resource belongs to another device");
    }
    if (!has_source()) {
      return fail(RMM_C_NOT_SUPPORTED, "librmm_audit.so is not preloaded with RMM_AUDIT=route:current");
    }
    std::lock_guard<std::mutex> const lock{rmm_c::list_mutex()};
    auto const status = use ? use->check_usable() : RMM_C_OK;  // another thread may have given it up meanwhile
    if (status == RMM_C_OK) { serving[known].store(resource); }
    return status;
  });
}
