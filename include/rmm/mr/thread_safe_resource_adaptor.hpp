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

/// An adaptor with a lock, so that one thread at a time calls upstream. Use it over a resource of your own that is not thread-safe. The
/// pools of this library do not need it.
///
/// @code{.cpp}
/// rmm::mr::callback_memory_resource mine{[](std::size_t, rmm::cuda_stream_view, void*) -> void* { throw std::bad_alloc{}; },
///                                        [](void*, std::size_t, rmm::cuda_stream_view, void*) {}};
/// rmm::mr::thread_safe_resource_adaptor locked{&mine};
/// rmm::mr::set_current_device_resource(&locked);
/// rmm::mr::reset_current_device_resource();
/// @endcode
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
    if (!this->is_of_this_process()) { return; }
    lock_t const lock{mutex_};
    this->upstream().deallocate(ptr, bytes, stream);
  }

  std::mutex mutex_;  // held during calls of upstream
};

template <class Upstream>
thread_safe_resource_adaptor(Upstream*) -> thread_safe_resource_adaptor<Upstream>;
thread_safe_resource_adaptor(device_async_resource_ref)->thread_safe_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
