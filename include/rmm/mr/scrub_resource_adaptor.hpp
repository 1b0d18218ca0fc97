// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/cuda/capture_announcements.hpp>
#include <rmm/detail/cuda/fill.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {

/// An adaptor that writes zeros to freed memory before upstream gets it back. Use it so that the next owner of the memory cannot read
/// secret data.
///
/// It zeroes as many bytes as the deallocation names. Memory that cannot be zeroed is not given back: it is lost until the process ends,
/// and the adaptor logs that.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::scrub_resource_adaptor scrubbed{&cuda};
/// rmm::device_buffer const secret{1000, rmm::cuda_stream_default, scrubbed};
/// @endcode
/// Threads  thread-safe if upstream is.
/// Stream   the zeros are written in the order of the deallocation's stream. The host waits for the device only if that stream was
///          destroyed.
template <class Upstream>
class scrub_resource_adaptor final : public detail::resource_adaptor<scrub_resource_adaptor<Upstream>, Upstream> {
 public:
  using scrub_resource_adaptor::resource_adaptor::resource_adaptor;

 private:
  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (ptr != nullptr && bytes != 0 && !try_zero(ptr, bytes, stream)) {
      rmm::detail::log(
        rmm::detail::log_level::error,
        "scrub_resource_adaptor: freed memory could not be zeroed, so it is lost until the process ends");
      return;
    }
    this->upstream().deallocate(ptr, bytes, stream);
  }

  /// Writes the zeros on the stream. If the stream was destroyed, waits for all work of the device, and writes them then.
  [[nodiscard]] static bool try_zero(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    using namespace rmm::detail;
    if (try_fill_async(ptr, 0, bytes, stream.value())) { return true; }
    return try_wait_for_device() && try_fill_async(ptr, 0, bytes, cudaStreamLegacy) && try_wait_for_device();
  }
};

template <class Upstream>
scrub_resource_adaptor(Upstream*) -> scrub_resource_adaptor<Upstream>;
scrub_resource_adaptor(device_async_resource_ref)->scrub_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
