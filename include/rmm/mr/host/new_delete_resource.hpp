// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/aligned.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/host_alignment.hpp>
#include <rmm/mr/host/host_memory_resource.hpp>

#include <cstddef>
#include <new>

namespace RMM_NAMESPACE {
namespace mr {

/// A host resource that allocates with the global operator new and frees with operator delete. Use it where code takes a
/// host_memory_resource and devices do not need the memory.
///
/// Uses the default alignment if the requested one is not a power of two. Returns a unique pointer for 0 bytes.
///
/// @code{.cpp}
/// rmm::mr::new_delete_resource host;
/// void* const staging = host.allocate(1000);
/// host.deallocate(staging, 1000);
/// @endcode
class new_delete_resource final : public host_memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment = RMM_DEFAULT_HOST_ALIGNMENT) override
  {
    return rmm::detail::aligned_host_allocate(
      bytes, detail::host_alignment(alignment), [](std::size_t size) { return ::operator new(size); });
  }

  void do_deallocate(void* ptr, std::size_t bytes, std::size_t alignment = RMM_DEFAULT_HOST_ALIGNMENT) override
  {
    rmm::detail::aligned_host_deallocate(
      ptr, bytes, detail::host_alignment(alignment), [](void* original) { ::operator delete(original); });
  }
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
