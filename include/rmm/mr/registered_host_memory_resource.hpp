// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/registered_memory.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>

namespace RMM_NAMESPACE {
namespace mr {

/// Options of page-locked host memory: its NUMA node, and the threads that create its pages.
struct pinned_memory_options {
  /// Prefers the NUMA node that is nearest to the current device. The system chooses another node if the nearest one is full or
  /// unknown, or if the process may not choose.
  bool near_device{false};
  /// Prefers the NUMA node with this number.
  std::optional<int> numa_node{};
  /// Maximum number of threads that create the pages of a block; 0: the library chooses.
  unsigned threads{0};
  /// Lets a pool take pageable memory if no more memory can be locked. Each such block is logged as a warning. Copies from and to it are
  /// slower and can wait on the host. Kernels cannot use it, unless the device can use the host's ordinary memory. Linux only.
  bool allow_pageable{false};
};

/// A resource that allocates large blocks of page-locked host memory. Use it as upstream of a pool: it is faster than cudaHostAlloc,
/// because several threads create the pages before cudaHostRegister locks them.
///
/// Blocks of 1 MiB or more are aligned to pages, and take one page in addition. Smaller blocks come from cudaHostAlloc, and also all
/// blocks if the system or the device does not support registration. deallocate() is not stream-ordered: it waits on the host for the
/// stream. All instances are equal, except those with `allow_pageable`. Returns a null pointer for 0 bytes. A forked child does not see the
/// memory.
///
/// @code{.cpp}
/// rmm::mr::pinned_memory_options options;
/// options.near_device = true;
/// rmm::mr::registered_host_memory_resource registered{options};
/// rmm::mr::pool_memory_resource pool{&registered, std::size_t{2} << 20};
/// @endcode
class registered_host_memory_resource final : public device_memory_resource {
 public:
  /// Throws logic_error if both `near_device` and `numa_node` are set, or if `numa_node` is negative.
  explicit registered_host_memory_resource(pinned_memory_options const& options = {})
    : plan_{plan_for(options)}, allows_pageable_{options.allow_pageable}
  {}

  /// Returns the preferred NUMA node; nothing if the system chooses.
  [[nodiscard]] std::optional<int> numa_node() const noexcept
  {
    return plan_.numa_node >= 0 ? std::optional<int>{plan_.numa_node} : std::nullopt;
  }

  /// Whether pools over the resource may use allocate_pageable().
  [[nodiscard]] bool allows_pageable() const noexcept { return allows_pageable_; }

  /// Returns the bytes of all live blocks of allocate_pageable().
  [[nodiscard]] std::size_t pageable_bytes() const noexcept { return pageable_bytes_.load(std::memory_order_relaxed); }

  /// Allocates memory that is not locked, and logs that. allocate() never does. deallocate() frees it. Throws out_of_memory if the host
  /// does not have it, or the options do not allow it.
  [[nodiscard]] RMM_COLD void* allocate_pageable(std::size_t bytes)
  {
    auto const size = rmm::detail::format_bytes(bytes);
    auto const text = "No more host memory can be locked: a block of " + size + " is pageable";
    void* const ptr = allows_pageable_ ? rmm::detail::try_allocate_pageable_memory(bytes, plan_) : nullptr;
    if (ptr == nullptr) {
      RMM_FAIL("No more host memory can be locked, and " + size + " of pageable memory " +
                 (allows_pageable_ ? "cannot be had" : "are not allowed (pinned_memory_options::allow_pageable)"),
               rmm::out_of_memory);
    }
    pageable_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    rmm::detail::log(rmm::detail::log_level::warn, text.c_str());
    return ptr;
  }

  friend void get_property(registered_host_memory_resource const&, ::cuda::mr::host_accessible) noexcept {}

 private:
  static constexpr std::size_t smallest_block = std::size_t{1} << 20U;

  [[nodiscard]] static rmm::detail::registered_memory_plan plan_for(pinned_memory_options const& options)
  {
    auto const node = options.numa_node.value_or(-1);
    RMM_EXPECTS(!options.near_device || !options.numa_node,
                "pinned_memory_options has both near_device and numa_node: set only one of them");
    RMM_EXPECTS(!options.numa_node || node >= 0,
                "pinned_memory_options::numa_node is " + std::to_string(node) + ", but must not be negative");
    return {options.near_device ? rmm::detail::nearest_numa_node() : node, options.threads};
  }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (is_small(bytes)) { return small_.allocate(bytes, stream); }
    return rmm::detail::allocate_registered_memory(bytes, plan_);
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (is_small(bytes)) { return small_.deallocate(ptr, bytes, stream); }
    if (ptr == nullptr) { return; }
    stream.synchronize_no_throw();
    bool const was_pageable = rmm::detail::free_registered_memory(ptr, bytes);
    if (was_pageable) { pageable_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  }

  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    if (this == &other) { return true; }
    auto const* const same_class = dynamic_cast<registered_host_memory_resource const*>(&other);
    return same_class != nullptr && !allows_pageable_ && !same_class->allows_pageable_;
  }

  /// Whether cudaHostAlloc() serves the size. Not if blocks of any size can be pageable, because only large ones say what they are.
  [[nodiscard]] bool is_small(std::size_t bytes) const noexcept
  {
    return bytes < (allows_pageable_ ? 1 : smallest_block);
  }

  rmm::detail::registered_memory_plan plan_;
  bool allows_pageable_;
  std::atomic<std::size_t> pageable_bytes_{0};  // Order: relaxed, because the sum guards no data
  pinned_host_memory_resource small_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
