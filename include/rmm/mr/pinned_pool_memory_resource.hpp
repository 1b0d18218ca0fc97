// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/registered_host_memory_resource.hpp>
#include <rmm/mr/trimmable_resource.hpp>

#include <cstddef>
#include <optional>

namespace RMM_NAMESPACE {
namespace mr {

/// A pool of page-locked host memory. Use it for buffers of copies between host and device.
///
/// A pool_memory_resource over a registered_host_memory_resource, which makes the first block faster than cudaHostAlloc does. With
/// pinned_memory_options::allow_pageable it takes pageable memory if no more can be locked, instead of failing.
///
/// @code{.cpp}
/// rmm::mr::pinned_pool_memory_resource pinned{std::size_t{1} << 20};
/// void* const staging = pinned.allocate(1000);
/// pinned.deallocate(staging, 1000);
/// @endcode
class pinned_pool_memory_resource final : public device_memory_resource, public trimmable_resource {
 public:
  /// Takes sizes as pool_memory_resource does. Throws as that class and registered_host_memory_resource do.
  explicit pinned_pool_memory_resource(std::size_t initial_pool_size,
                                       std::optional<std::size_t> maximum_pool_size = std::nullopt,
                                       pinned_memory_options const& options         = {})
    : upstream_{options}, pool_{&upstream_, initial_pool_size, maximum_pool_size}
  {}

  pinned_pool_memory_resource(pinned_pool_memory_resource const&)            = delete;
  pinned_pool_memory_resource& operator=(pinned_pool_memory_resource const&) = delete;
  ~pinned_pool_memory_resource() override                                    = default;

  /// Returns the pool that serves the calls, which has more functions.
  [[nodiscard]] pool_memory_resource<registered_host_memory_resource>& pool() noexcept { return pool_; }
  [[nodiscard]] pool_memory_resource<registered_host_memory_resource> const& pool() const noexcept { return pool_; }

  /// Returns the bytes of all blocks that the pool holds.
  [[nodiscard]] std::size_t pool_size() const noexcept { return pool_.pool_size(); }

  /// Returns the bytes of the blocks that are pageable, because no more memory could be locked.
  [[nodiscard]] std::size_t pageable_bytes() const noexcept { return upstream_.pageable_bytes(); }

  /// Gives blocks without an allocation back to the host; see pool_memory_resource::trim_to().
  std::size_t trim_to(std::size_t bytes) noexcept override { return pool_.trim_to(bytes); }

  /// Returns the figures of the pool.
  [[nodiscard]] heap_figures figures() const { return pool_.figures(); }

  /// Returns all memory at one moment, range by range. Needs rmm/memory_snapshot.hpp.
  template <class Snapshot = memory_snapshot>
  [[nodiscard]] Snapshot snapshot() const
  {
    return pool_.template snapshot<Snapshot>();
  }

  /// Returns the NUMA node of the memory; nothing if the system chooses.
  [[nodiscard]] std::optional<int> numa_node() const noexcept { return upstream_.numa_node(); }

  friend void get_property(pinned_pool_memory_resource const&, ::cuda::mr::host_accessible) noexcept {}

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return pool_.allocate(bytes, stream); }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    pool_.deallocate(ptr, bytes, stream);
  }

  registered_host_memory_resource upstream_;
  pool_memory_resource<registered_host_memory_resource> pool_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
