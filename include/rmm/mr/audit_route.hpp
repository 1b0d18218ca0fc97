// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/audit_library.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/process_is_exiting.hpp>
#include <rmm/resource_ref.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <exception>
#include <new>
#include <string>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// audit_source::allocate of the registered resources. The owner is a copy of the reference that has allocated, whose class depends on the
/// release of libcu++. So each shared object has its own functions.
[[nodiscard]] RMM_HIDDEN inline int allocate_for_library(
  void* /*context*/, int device, std::size_t bytes, void* stream, void** block, void** owner) noexcept
{
  using rmm::detail::audit_source;
  if (process_is_exiting()) { return audit_source::not_served; }
  auto const registered = get_per_device_resource_ref(cuda_device_id{device});
  try {
    static cuda_memory_resource* const driver = new cuda_memory_resource;
    if (registered == device_async_resource_ref{static_cast<device_memory_resource*>(driver)}) {
      return audit_source::not_served;
    }
    rmm::detail::device_scope const at_home{device};
    rmm::detail::owned_ptr<device_async_resource_ref> origin{new device_async_resource_ref{registered}};
    *block = origin->allocate_async(bytes, cuda_stream_view{static_cast<cudaStream_t>(stream)});
    *owner = origin.release();
    return audit_source::served;
  } catch (std::bad_alloc const&) {
    return audit_source::out_of_memory;
  } catch (std::exception const& error) {
    rmm::detail::log(rmm::detail::log_level::error, error.what());
    return audit_source::out_of_memory;
  } catch (...) {
    return audit_source::out_of_memory;
  }
}

/// audit_source::deallocate of the same.
RMM_HIDDEN inline void deallocate_for_library(
  void* /*context*/, void* owner, int device, void* block, std::size_t bytes, void* stream) noexcept
{
  rmm::detail::owned_ptr<device_async_resource_ref> const origin{static_cast<device_async_resource_ref*>(owner)};
  if (block == nullptr || process_is_exiting()) { return; }
  rmm::detail::device_scope const at_home{device};
  origin->deallocate_async(block, bytes, cuda_stream_view{static_cast<cudaStream_t>(stream)});
}

}  // namespace detail

/// A scope in which the registered resource of each device serves what other libraries allocate from the driver. Use it to have cuBLAS or
/// a framework share one pool and its limits with your program.
///
/// The program has to run with librmm_audit.so preloaded and `RMM_AUDIT=route:current`. Without them the scope does nothing. Each block
/// goes back to the resource that it came from. A resource that fails makes cudaMalloc() return cudaErrorMemoryAllocation. Libraries
/// with code of RMM inside get their memory from the driver, as do all where a cuda_memory_resource is registered, or none.
///
/// A resource has to outlive the blocks that libraries have of it. The destructor ends that: afterwards freeing such a block does nothing,
/// and the resource may be destroyed. So destroy this object before resources. If other resources are registered meanwhile, keep the
/// former ones, too.
///
/// @code{.cpp}
/// #include <cstdio>
///
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::pool_memory_resource pool{&cuda, std::size_t{1} << 20};
/// auto* const previous = rmm::mr::set_current_device_resource(&pool);
/// {
///   rmm::mr::audit_route const route;
///   if (!route.is_active()) { std::puts("start me with LD_PRELOAD=librmm_audit.so RMM_AUDIT=route:current"); }
///   // ... what libraries allocate here comes from the pool
///   std::printf("libraries have %zu bytes of it\n", route.live_bytes());
/// }
/// rmm::mr::set_current_device_resource(previous);
/// @endcode
///
/// Thread-safe. The destructor waits for calls in progress.
class audit_route {
 public:
  /// Begins to serve libraries. Check is_active() to see whether it could.
  audit_route()
  {
    auto const* const library = rmm::detail::find_audit_library();
    if (library == nullptr) { return; }
    rmm::detail::register_process_exit_hook();
    rmm::detail::audit_source const registered{&detail::allocate_for_library, &detail::deallocate_for_library, nullptr};
    number_ = library->add_source(&registered);
  }

  ~audit_route()
  {
    if (!is_active()) { return; }
    if (auto const bytes = live_bytes(); bytes != 0 && !process_is_exiting()) {
      auto const text = "audit_route: libraries have not freed " + std::to_string(bytes) + " bytes of the resources";
      rmm::detail::log(rmm::detail::log_level::warn, text.c_str());
    }
    rmm::detail::find_audit_library()->withdraw_source(number_);
  }

  audit_route(audit_route const&)            = delete;
  audit_route& operator=(audit_route const&) = delete;

  /// Whether librmm_audit.so is preloaded, with RMM_AUDIT=route:current.
  [[nodiscard]] bool is_active() const noexcept { return number_ != 0; }

  /// Returns the bytes that libraries have allocated from the resources, and not freed.
  [[nodiscard]] std::size_t live_bytes() const noexcept
  {
    return is_active() ? rmm::detail::find_audit_library()->bytes_of_source(number_) : 0;
  }

 private:
  int number_{0};
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
