// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/system_memory.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/system_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {

/// A system_memory_resource that keeps its memory on the device, except for a headroom. Use it where a program also needs device memory
/// from other allocators.
///
/// It advises the driver to keep new memory on the device. The part that would leave less than the headroom free is kept on the host.
/// Instances are equal if their headrooms are.
///
/// @code{.cpp}
/// int has_pageable_access{};
/// cudaDeviceGetAttribute(&has_pageable_access, cudaDevAttrPageableMemoryAccess, 0);
/// if (has_pageable_access != 0) {
///   rmm::mr::sam_headroom_memory_resource resource{std::size_t{1} << 30};  // leaves 1 GiB of the device free
///   rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, resource};
/// }
/// @endcode
class sam_headroom_memory_resource final : public device_memory_resource {
 public:
  /// Leaves `headroom` bytes of the device free. Throws logic_error if the current device cannot use pageable host memory.
  explicit sam_headroom_memory_resource(std::size_t headroom) : headroom_{headroom} {}

  sam_headroom_memory_resource()                                               = delete;
  sam_headroom_memory_resource(sam_headroom_memory_resource const&)            = delete;
  sam_headroom_memory_resource(sam_headroom_memory_resource&&)                 = delete;
  sam_headroom_memory_resource& operator=(sam_headroom_memory_resource const&) = delete;
  sam_headroom_memory_resource& operator=(sam_headroom_memory_resource&&)      = delete;
  ~sam_headroom_memory_resource() override                                     = default;

  friend void get_property(sam_headroom_memory_resource const&, ::cuda::mr::host_accessible) noexcept {}

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    auto* const ptr = static_cast<char*>(system_.allocate(bytes, stream));
    rmm::detail::scope_guard undo{[&]() noexcept { system_.deallocate(ptr, bytes, stream); }};

    auto const free      = available_device_memory().first;
    auto const usable    = free > headroom_ ? free - headroom_ : 0;
    auto const on_device = align_down(usable < bytes ? usable : bytes, CUDA_ALLOCATION_ALIGNMENT);
    rmm::detail::advise_preferred_location(ptr, on_device, rmm::detail::known_current_device());
    rmm::detail::advise_preferred_location(ptr + on_device, bytes - on_device, cudaCpuDeviceId);

    undo.dismiss();
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    system_.deallocate(ptr, bytes, stream);
  }

  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    auto const* const cast = dynamic_cast<sam_headroom_memory_resource const*>(&other);
    return cast != nullptr && cast->headroom_ == headroom_;
  }

  system_memory_resource system_;
  std::size_t headroom_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
