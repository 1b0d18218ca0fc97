// SPDX-License-Identifier: Apache-2.0

// The resources that RMM_RESOURCE configures, one per device, and PyTorch's functions, which use them.

#include "failure.hpp"
#include "process.hpp"
#include "resource.hpp"

#include <rmm/c/rmm.h>
#include <rmm/detail/cuda/device.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <mutex>

namespace {

using rmm_c::fail;
using rmm_c::guarded;
using rmm_c::most_devices;

// Order: a resource is made with default_resource_mutex() held, and released with its address, which readers acquire. A thread that reads
// null takes the mutex. Entries never change after that.
std::atomic<rmm_c_resource*> defaults[most_devices];

/// The default resource of a device; null, after a failure was kept, if it cannot be made.
rmm_c_resource* default_resource(int device) noexcept
{
  if (device < 0 || device >= most_devices) {
    fail(RMM_C_INVALID_ARGUMENT, "the device does not exist");
    return nullptr;
  }
  auto& place = defaults[device];
  if (auto* const known = place.load(std::memory_order_acquire)) { return known; }
  rmm_c_resource* made{nullptr};
  guarded([&] {
    std::lock_guard<std::mutex> const lock{rmm_c::default_resource_mutex()};
    made = place.load(std::memory_order_relaxed);
    if (made != nullptr) { return RMM_C_OK; }
    auto const status = rmm_c_resource_create(nullptr, device, &made);
    if (status != RMM_C_OK) { return status; }
    rmm_c::make_permanent(*made);
    place.store(made, std::memory_order_release);
    return RMM_C_OK;
  });
  return made;
}

}  // namespace

rmm_c_status rmm_c_default_resource(int device, rmm_c_resource** resource) noexcept
{
  if (resource == nullptr) { return fail(RMM_C_INVALID_ARGUMENT, "the pointer to the resource is a null pointer"); }
  *resource = nullptr;
  if (auto const status = rmm_c::check_may_begin_to_use_cuda()) { return status; }
  return guarded([&] {
    *resource = default_resource(device == RMM_C_CURRENT_DEVICE ? rmm::detail::known_current_device() : device);
    return *resource != nullptr ? RMM_C_OK : rmm_c_last_failure();
  });
}

void* rmm_c_torch_allocate(std::size_t bytes, int device, void* stream) noexcept
{
  void* block{nullptr};
  auto* const resource = default_resource(device);
  if (resource == nullptr || rmm_c_resource_allocate(resource, bytes, 0, stream, &block) != RMM_C_OK) {
    std::fprintf(stderr, "rmm_c_torch_allocate: %s\n", rmm_c_last_failure_text());
  }
  return block;
}

void rmm_c_torch_deallocate(void* block, std::size_t bytes, int device, void* stream) noexcept
{
  if (device < 0 || device >= most_devices) { return; }
  auto* const resource = defaults[device].load(std::memory_order_acquire);
  if (resource != nullptr) { rmm_c_resource_deallocate(resource, block, bytes, 0, stream); }
}
