// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/detail/base/process_wide.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

RMM_PROCESS_WIDE_ANCHOR(rmm_python_owners_v1, 100);

namespace rmm_python {

using resource_ptr = std::shared_ptr<rmm::mr::device_memory_resource>;

/// Owners of the resources that Python registers, for those who allocate without Python and need a resource to stay until all
/// they have from it is given back. One object a process. Thread-safe.
class registered_owners {
 public:
  /// Registers `resource` for `device`; if it is null, the initial resource again.
  void set(int device, resource_ptr resource)
  {
    std::lock_guard<std::mutex> lock{mutex_};
    rmm::mr::set_per_device_resource(rmm::cuda_device_id{device}, resource.get());
    owners_[device].swap(resource);  // the one before ends after the lock is free
  }

  /// The resource registered for `device`. Without an owner if C++ registered it, which then sees to its life itself.
  [[nodiscard]] resource_ptr resource_of(int device) const
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto* const registered = rmm::mr::get_per_device_resource(rmm::cuda_device_id{device});
    auto const found       = owners_.find(device);
    return found != owners_.end() && found->second.get() == registered ? found->second
                                                                       : resource_ptr{resource_ptr{}, registered};
  }

 private:
  mutable std::mutex mutex_;  // held while the registry is changed or read, so that both agree
  std::map<int, resource_ptr> owners_;
};

/// Never destroyed: resources are in use until the process ends.
[[nodiscard]] inline registered_owners& owners()
{
  return rmm::detail::process_wide_object<registered_owners>(
    rmm_python_owners_v1, 100, [] { return new registered_owners; });
}

}  // namespace rmm_python
