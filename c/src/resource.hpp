// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/c/rmm.h>

namespace rmm_c {

constexpr int most_devices = 1024;

/// A scope in which a resource does not end, unless it ended before.
class use_of_resource {
 public:
  explicit use_of_resource(rmm_c_resource& resource) noexcept;
  ~use_of_resource();
  use_of_resource(use_of_resource const&)            = delete;
  use_of_resource& operator=(use_of_resource const&) = delete;

  /// Returns RMM_C_OK if the resource may be used, else keeps a failure.
  [[nodiscard]] rmm_c_status check_usable() const noexcept;

 private:
  rmm_c_resource& resource_;
};

/// Returns the number of a device. Throws rmm::cuda_error, and rmm::out_of_range if the device does not exist.
[[nodiscard]] int known_device(int device);

/// Makes rmm_c_resource_destroy() refuse the resource from now on.
void make_permanent(rmm_c_resource& resource) noexcept;

}  // namespace rmm_c
