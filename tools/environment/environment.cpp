// SPDX-License-Identifier: Apache-2.0
//
// librmm_environment.so: makes an unchanged program obey RMM_RESOURCE and RMM_TRACE_FILE. It is preloaded, or linked,
// and makes the initial resource of every device before the program can. With RMM_AUDIT=route:current and
// librmm_audit.so, that resource also serves allocations of other libraries from the driver.

#include "environment_trace.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/process_wide.hpp>
#include <rmm/mr/audit_route.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/detail/registry.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/resource_configuration.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>

namespace {

[[nodiscard]] bool is_set(char const* variable) noexcept
{
  auto const* const text = std::getenv(variable);
  return text != nullptr && *text != '\0';
}

/// The resource that the environment chooses for the current device. Makes a device's resource at its first allocation,
/// because that needs CUDA.
///
/// Never destroyed, and neither are its resources, because memory may be freed until the process ends.
///
/// Order: a resource is made with the mutex held, and released with its address in the table. Readers acquire it. A thread that reads null
/// takes the mutex.
class resource_of_environment final : public rmm::mr::device_memory_resource {
 private:
  static constexpr int table_size = 64;

  [[nodiscard]] static device_memory_resource* make(int device) noexcept
  {
    try {
      device_memory_resource* made = new rmm::mr::cuda_memory_resource;
      try {
        if (auto const configuration = rmm::mr::resource_configuration::from_environment()) {
          made = (new rmm::mr::configured_resource{*configuration})->get();
        }
      } catch (std::exception const& error) {
        std::fprintf(stderr, "%s; RMM_RESOURCE has no effect, and cudaMalloc is used\n", error.what());
      }
      return is_set("RMM_TRACE_FILE") ? new rmm::tools::environment_trace{made, device} : made;
    } catch (std::exception const&) {
      static rmm::mr::cuda_memory_resource fallback;
      return &fallback;
    }
  }

  [[nodiscard]] device_memory_resource& current()
  {
    auto const device = rmm::get_current_cuda_device().value();
    if (device >= 0 && device < table_size) {
      if (auto* const known = table_[device].load(std::memory_order_acquire)) { return *known; }
    }
    std::lock_guard<std::mutex> const lock{mutex_};
    auto const [at, is_new] = made_.try_emplace(device);
    if (is_new) { at->second = make(device); }
    if (device >= 0 && device < table_size) { table_[device].store(at->second, std::memory_order_release); }
    return *at->second;
  }

  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    return current().allocate(bytes, stream);
  }

  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    current().deallocate(ptr, bytes, stream);
  }

  std::atomic<device_memory_resource*> table_[table_size]{};
  std::mutex mutex_;
  std::map<int, device_memory_resource*> made_;
};

/// Publishes a registry with that initial resource. Does nothing if the program already has a registry.
[[gnu::constructor]] void publish()
{
  if (!is_set("RMM_TRACE_FILE") && !is_set("RMM_RESOURCE")) { return; }
  static_cast<void>(rmm::detail::find_or_publish<rmm::mr::detail::registry>(
    rmm_registry_v2, 6, [] { return new rmm::mr::detail::registry{new resource_of_environment}; }));
  static_cast<void>(new rmm::mr::audit_route);  // until the process ends
}

}  // namespace
