// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/audit_library.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <functional>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {

/// A function that allocates. Its arguments are the bytes, the stream, and the argument that the resource was made with.
using allocate_callback_t = std::function<void*(std::size_t, cuda_stream_view, void*)>;

/// A function that frees. Its arguments are the pointer, the bytes, the stream, and the argument that the resource was made with.
using deallocate_callback_t = std::function<void(void*, std::size_t, cuda_stream_view, void*)>;

/// A resource that allocates by calling functions of the program. Use it to connect another allocator to RMM.
///
/// The functions receive every call unchanged, including 0 bytes and null pointers. Exceptions of the functions propagate.
///
/// @code{.cpp}
/// rmm::mr::callback_memory_resource mine{
///   [](std::size_t bytes, rmm::cuda_stream_view, void*) {
///     void* ptr{};
///     if (cudaMalloc(&ptr, bytes) != cudaSuccess) { throw std::bad_alloc{}; }
///     return ptr;
///   },
///   [](void* ptr, std::size_t, rmm::cuda_stream_view, void*) { cudaFree(ptr); }};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, mine};
/// @endcode
/// Threads  thread-safe if the functions are.
class callback_memory_resource final : public device_memory_resource {
 public:
  /// Calls the functions with the given last arguments. Neither function may be empty.
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
    rmm::detail::unrouted_scope const scope;
    return allocate_callback_(bytes, stream, allocate_callback_arg_);
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    rmm::detail::unrouted_scope const scope;
    deallocate_callback_(ptr, bytes, stream, deallocate_callback_arg_);
  }

  allocate_callback_t allocate_callback_;
  deallocate_callback_t deallocate_callback_;
  void* allocate_callback_arg_;
  void* deallocate_callback_arg_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
