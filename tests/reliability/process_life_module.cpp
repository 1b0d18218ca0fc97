// SPDX-License-Identifier: Apache-2.0
//
// A library that uses rmm, for programs that load and unload it. It has its own pool as a static object.

#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cstddef>
#include <optional>

namespace {

rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>& pool()
{
  static rmm::mr::cuda_memory_resource cuda;
  static rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> made{
    &cuda, std::size_t{1} << 20U, std::optional<std::size_t>{std::size_t{1} << 20U}};
  return made;
}

}  // namespace

/// Allocates and frees in the calling thread, from its own pool and from the current resource.
extern "C" __attribute__((visibility("default"))) void use_memory(std::size_t bytes)
{
  auto* const current = rmm::mr::get_current_device_resource();
  for (int i = 0; i < 20; ++i) {
    void* const block = pool().allocate(bytes, rmm::cuda_stream_per_thread);
    void* const other = current->allocate(bytes, rmm::cuda_stream_per_thread);
    current->deallocate(other, bytes, rmm::cuda_stream_per_thread);
    pool().deallocate(block, bytes, rmm::cuda_stream_per_thread);
  }
}

/// Throws rmm::out_of_memory into the calling program, which catches it.
extern "C" __attribute__((visibility("default"))) void ask_for_too_much()
{
  static_cast<void>(pool().allocate(std::size_t{1} << 30U));
}
