// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/prefetch.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>  // IWYU pragma: export
#include <rmm/prefetch.hpp>                // IWYU pragma: export
#include <rmm/resource_ref.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {

/// An adaptor that prefetches each allocation to the current device. Use it over managed memory, so that kernels do not wait for page
/// faults. For other memory, and while the stream captures or is blocked by a capture, it does nothing: CUDA cannot capture a prefetch.
///
/// @code{.cpp}
/// rmm::mr::managed_memory_resource managed;
/// rmm::mr::prefetch_resource_adaptor prefetched{&managed};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, prefetched};
/// @endcode
template <class Upstream>
class prefetch_resource_adaptor final : public detail::resource_adaptor<prefetch_resource_adaptor<Upstream>, Upstream> {
 public:
  using prefetch_resource_adaptor::resource_adaptor::resource_adaptor;

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    void* const ptr = this->upstream().allocate(bytes, stream);
    rmm::detail::scope_guard give_back{[&]() noexcept { this->upstream().deallocate(ptr, bytes, stream); }};
    if (rmm::detail::query_capture(stream.value()).is_none()) {
      rmm::detail::prefetch_memory(ptr, bytes, rmm::detail::current_device(), stream.value());
    }
    give_back.dismiss();
    return ptr;
  }
};

template <class Upstream>
prefetch_resource_adaptor(Upstream*) -> prefetch_resource_adaptor<Upstream>;
prefetch_resource_adaptor(device_async_resource_ref)->prefetch_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
