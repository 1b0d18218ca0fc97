// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/scope_guard.hpp>
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

/// Prefetches what it allocates to the current device. Makes a difference for managed memory.
template <class Upstream>
class prefetch_resource_adaptor final : public detail::resource_adaptor<prefetch_resource_adaptor<Upstream>, Upstream> {
 public:
  using prefetch_resource_adaptor::resource_adaptor::resource_adaptor;

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    void* const ptr = this->upstream().allocate(bytes, stream);
    rmm::detail::scope_guard give_back{[&]() noexcept { this->upstream().deallocate(ptr, bytes, stream); }};
    rmm::detail::prefetch_memory(ptr, bytes, rmm::detail::current_device(), stream.value());
    give_back.dismiss();
    return ptr;
  }
};

template <class Upstream>
prefetch_resource_adaptor(Upstream*) -> prefetch_resource_adaptor<Upstream>;
prefetch_resource_adaptor(device_async_resource_ref)->prefetch_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
