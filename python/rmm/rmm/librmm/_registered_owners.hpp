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

/// The owners of the resources that Python registers. Code that allocates without Python uses them to keep a resource alive until all of
/// its memory is freed. One object per process. Thread-safe.
class registered_owners {
 public:
  /// Registers `resource` for `device`; if it is null, registers the initial resource.
  void set(int device, resource_ptr resource)
  {
    std::lock_guard<std::mutex> lock{mutex_};
    rmm::mr::set_per_device_resource(rmm::cuda_device_id{device}, resource.get());
    owners_[device].swap(resource);  // destroys the previous owner after the lock is released
  }

  /// Returns the resource registered for `device`. If C++ code registered it, the pointer owns nothing: that code keeps it alive.
  [[nodiscard]] resource_ptr resource_of(int device) const
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto* const registered = rmm::mr::get_per_device_resource(rmm::cuda_device_id{device});
    auto const found       = owners_.find(device);
    return found != owners_.end() && found->second.get() == registered ? found->second
                                                                       : resource_ptr{resource_ptr{}, registered};
  }

 private:
  mutable std::mutex mutex_;  // held while the registry is changed or read, so that it agrees with owners_
  std::map<int, resource_ptr> owners_;
};

/// Returns the object of this process. It is never destroyed, because resources are used until the process ends.
[[nodiscard]] inline registered_owners& owners()
{
  return rmm::detail::process_wide_object<registered_owners>(
    rmm_python_owners_v1, 100, [] { return new registered_owners; });
}

}  // namespace rmm_python
