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

/// Zeroes what is freed before upstream has it back, so that nobody whom upstream gives the memory next reads what was in it.
///
/// The zeros are written on the stream of the deallocation, in its order, and the host does not wait; only where that stream
/// takes no work any more, it waits for the device. It is as many bytes as the deallocation names. Memory that cannot
/// be zeroed is not given back: it is lost until the process ends, and that is logged. Thread-safe where upstream is.
template <class Upstream>
class scrub_resource_adaptor final : public detail::resource_adaptor<scrub_resource_adaptor<Upstream>, Upstream> {
 public:
  using scrub_resource_adaptor::resource_adaptor::resource_adaptor;

 private:
  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (ptr != nullptr && bytes != 0 && !try_zero(ptr, bytes, stream)) {
      rmm::detail::log(rmm::detail::log_level::error,
                       "scrub_resource_adaptor: freed memory could not be zeroed, and is not used again");
      return;
    }
    this->upstream().deallocate(ptr, bytes, stream);
  }

  /// Where the stream takes no more work, because it was destroyed, after all work there is.
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
