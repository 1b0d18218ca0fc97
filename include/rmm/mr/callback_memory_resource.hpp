// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <functional>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {

/// Allocates `bytes` bytes for use on the stream; the last argument is what the resource was made
/// with.
using allocate_callback_t = std::function<void*(std::size_t, cuda_stream_view, void*)>;

/// Gives memory back; the arguments are pointer, bytes, stream and what the resource was made with.
using deallocate_callback_t = std::function<void(void*, std::size_t, cuda_stream_view, void*)>;

/// Allocates by calling functions of the user's.
///
/// They get every call as it comes, zero bytes and null pointers included, and what they throw
/// leaves the resource as it is. As safe under concurrent use as they are.
class callback_memory_resource final : public device_memory_resource {
 public:
  /// Calls the functions with these last arguments. Both functions have to be there.
  callback_memory_resource(allocate_callback_t allocate_callback,
                           deallocate_callback_t deallocate_callback,
                           void* allocate_callback_arg   = nullptr,
                           void* deallocate_callback_arg = nullptr) noexcept
    : allocate_callback_{std::move(allocate_callback)},
      deallocate_callback_{std::move(deallocate_callback)},
      allocate_callback_arg_{allocate_callback_arg},
      deallocate_callback_arg_{deallocate_callback_arg}
  {}

  callback_memory_resource(callback_memory_resource const&)                = delete;
  callback_memory_resource& operator=(callback_memory_resource const&)     = delete;
  callback_memory_resource(callback_memory_resource&&) noexcept            = default;
  callback_memory_resource& operator=(callback_memory_resource&&) noexcept = default;
  ~callback_memory_resource() override                                     = default;

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    return allocate_callback_(bytes, stream, allocate_callback_arg_);
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    deallocate_callback_(ptr, bytes, stream, deallocate_callback_arg_);
  }

  allocate_callback_t allocate_callback_;
  deallocate_callback_t deallocate_callback_;
  void* allocate_callback_arg_;
  void* deallocate_callback_arg_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
