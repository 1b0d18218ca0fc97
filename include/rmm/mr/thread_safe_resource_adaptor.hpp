// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>  // IWYU pragma: export
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <mutex>

namespace RMM_NAMESPACE {
namespace mr {

/// Lets one thread at a time call upstream.
template <class Upstream>
class thread_safe_resource_adaptor final
  : public detail::resource_adaptor<thread_safe_resource_adaptor<Upstream>, Upstream> {
 public:
  using lock_t = std::lock_guard<std::mutex>;

  using thread_safe_resource_adaptor::resource_adaptor::resource_adaptor;

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    lock_t const lock{mutex_};
    return this->upstream().allocate(bytes, stream);
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    lock_t const lock{mutex_};
    this->upstream().deallocate(ptr, bytes, stream);
  }

  std::mutex mutex_;  // held while upstream is called: that is its purpose
};

template <class Upstream>
thread_safe_resource_adaptor(Upstream*) -> thread_safe_resource_adaptor<Upstream>;
thread_safe_resource_adaptor(device_async_resource_ref)->thread_safe_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
