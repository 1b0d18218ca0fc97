// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_registered_owners.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/audit_library.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/process_is_exiting.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <new>
#include <utility>

namespace rmm_python {

/// Lets the resources that are registered for the devices serve what other libraries allocate from the driver, as rmm::mr::audit_route
/// does. Each block keeps its resource alive, so there is no order in which anything has to end. Thread-safe.
///
/// Order: is_on() guards no data. A call that overlaps with switch_to() is served by either side.
class library_route {
 public:
  /// Switches the route on or off. Returns whether it is on: librmm_audit.so may not be there, or have another mode.
  static bool switch_to(bool on)
  {
    if (on && number() == 0) { return false; }
    is_on().store(on);
    return on;
  }

  /// Returns the bytes that libraries have allocated from resources, and not freed.
  [[nodiscard]] static std::size_t live_bytes()
  {
    auto const* const library = rmm::detail::find_audit_library();
    return library != nullptr ? library->bytes_of_source(number()) : 0;
  }

 private:
  using source = rmm::detail::audit_source;

  [[nodiscard]] static std::atomic<bool>& is_on()
  {
    static std::atomic<bool> on{false};
    return on;
  }

  /// Returns the number of the source, which the first call adds; 0 if the process has no such route.
  [[nodiscard]] static int number()
  {
    static int const added = [] {
      auto const* const library = rmm::detail::find_audit_library();
      if (library == nullptr) { return 0; }
      rmm::detail::register_process_exit_hook();
      source const functions{&library_route::allocate, &library_route::deallocate, nullptr};
      return library->add_source(&functions);
    }();
    return added;
  }

  static int allocate(
    void* /*context*/, int device, std::size_t bytes, void* stream, void** block, void** owner) noexcept
  {
    if (!is_on().load() || rmm::process_is_exiting()) { return source::not_served; }
    try {
      rmm::detail::owned_ptr<resource_ptr> origin{new resource_ptr{owners().resource_of(device)}};
      if (dynamic_cast<rmm::mr::cuda_memory_resource*>(origin->get()) != nullptr) { return source::not_served; }
      rmm::detail::device_scope const at_home{device};
      *block = (*origin)->allocate(bytes, rmm::cuda_stream_view{static_cast<cudaStream_t>(stream)});
      *owner = origin.release();
      return source::served;
    } catch (std::bad_alloc const&) {
      return source::out_of_memory;
    } catch (std::exception const& error) {
      rmm::detail::log(rmm::detail::log_level::error, error.what());
      return source::out_of_memory;
    }
  }

  static void deallocate(
    void* /*context*/, void* owner, int device, void* block, std::size_t bytes, void* stream) noexcept
  {
    if (rmm::process_is_exiting()) { return; }  // its resource, and Python, may be gone
    rmm::detail::owned_ptr<resource_ptr> const origin{static_cast<resource_ptr*>(owner)};
    if (block == nullptr) { return; }
    rmm::detail::device_scope const at_home{device};
    (*origin)->deallocate(block, bytes, rmm::cuda_stream_view{static_cast<cudaStream_t>(stream)});
  }
};

}  // namespace rmm_python
