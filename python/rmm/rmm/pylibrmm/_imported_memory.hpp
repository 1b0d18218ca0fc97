// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/detail/cuda/virtual_memory.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/mr/shared_memory.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace rmm_python {

/// Memory of another process, mapped into this one. The destructor waits for the work of the device, as cudaFree does.
class mapped_memory {
 public:
  mapped_memory(int device, rmm::mr::shared_block const& block, std::vector<int> const& descriptors)
    : device_{device}, memory_{rmm::cuda_device_id{device}, block, descriptors}
  {}

  mapped_memory(int device, rmm::mr::shared_block const& block, std::vector<rmm::detail::fabric_handle> const& handles)
    : device_{device}, memory_{rmm::cuda_device_id{device}, block, handles}
  {}

  ~mapped_memory()
  {
    int before{};  // an error stays the last error; at the end of the process there may be no device
    if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(device_.value()) != cudaSuccess) { return; }
    static_cast<void>(cudaDeviceSynchronize());
    static_cast<void>(cudaSetDevice(before));
  }

  mapped_memory(mapped_memory const&)            = delete;
  mapped_memory& operator=(mapped_memory const&) = delete;

  [[nodiscard]] void* data() const noexcept { return memory_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }
  [[nodiscard]] int device() const noexcept { return device_.value(); }

 private:
  rmm::cuda_device_id device_;
  rmm::mr::imported_memory memory_;
};

/// Maps memory that another process has exported: by fabric handles if there are any, else by descriptors.
[[nodiscard]] inline std::unique_ptr<mapped_memory> import_memory(int device,
                                                                  rmm::mr::shared_block const& block,
                                                                  std::vector<int> const& descriptors,
                                                                  std::vector<std::string> const& fabric_handles)
{
  if (fabric_handles.empty()) { return std::make_unique<mapped_memory>(device, block, descriptors); }
  std::vector<rmm::detail::fabric_handle> handles(fabric_handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i) {
    RMM_EXPECTS(fabric_handles[i].size() == handles[i].size(),
                "Fabric handle " + std::to_string(i) + " has " + std::to_string(fabric_handles[i].size()) +
                  " bytes instead of " + std::to_string(handles[i].size()));
    std::copy(fabric_handles[i].begin(), fabric_handles[i].end(), handles[i].begin());
  }
  return std::make_unique<mapped_memory>(device, block, handles);
}

}  // namespace rmm_python
