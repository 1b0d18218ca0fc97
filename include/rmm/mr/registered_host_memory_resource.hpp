// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/registered_memory.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>

#include <cstddef>
#include <optional>
#include <typeinfo>

namespace RMM_NAMESPACE {
namespace mr {

/// Where page-locked host memory lies, and how it is made.
struct pinned_memory_options {
  /// Take memory of the node of the host's memory that is nearest to the current device. Where the system does not tell the
  /// node, or does not let a program choose, or the node is full, memory lies where the system puts it.
  bool near_device{false};
  /// The same for the node of this number.
  std::optional<int> numa_node{};
  /// Threads that make the pages of a block, at most; 0 is as many as is worth it.
  unsigned threads{0};
};

/// Page-locked host memory in large blocks, which host and devices can use, ready sooner than with cudaHostAlloc: several
/// threads make the pages, cudaHostRegister locks them.
///
/// Meant as upstream of a pool. Blocks of 1 MiB or more are aligned to the system's pages and take one page more than was
/// asked; smaller ones, and those that the system or the device does not allow to be made this way, come from cudaHostAlloc.
/// Memory is not stream-ordered: deallocate() waits on the host for the stream. All instances are equal. Zero bytes are a
/// null pointer. A process that is forked does not see the memory.
class registered_host_memory_resource final : public device_memory_resource {
 public:
  /// Throws logic_error if both `near_device` and `numa_node` are given, or the node's number is negative.
  explicit registered_host_memory_resource(pinned_memory_options const& options = {}) : plan_{plan_for(options)} {}

  /// The node that memory is taken from; nothing if that is left to the system.
  [[nodiscard]] std::optional<int> numa_node() const noexcept
  {
    return plan_.numa_node >= 0 ? std::optional<int>{plan_.numa_node} : std::nullopt;
  }

  friend void get_property(registered_host_memory_resource const&, ::cuda::mr::host_accessible) noexcept {}

 private:
  static constexpr std::size_t smallest_block = std::size_t{1} << 20U;

  [[nodiscard]] static rmm::detail::registered_memory_plan plan_for(pinned_memory_options const& options)
  {
    RMM_EXPECTS(!options.near_device || !options.numa_node,
                "Memory near the device and of a given node were asked for");
    RMM_EXPECTS(options.numa_node.value_or(0) >= 0, "The number of a node of memory is not negative");
    auto const node = options.near_device ? rmm::detail::nearest_numa_node() : options.numa_node.value_or(-1);
    return {node, options.threads};
  }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (bytes < smallest_block) { return small_.allocate(bytes, stream); }
    return rmm::detail::allocate_registered_memory(bytes, plan_);
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (bytes < smallest_block) { return small_.deallocate(ptr, bytes, stream); }
    if (ptr == nullptr) { return; }
    stream.synchronize_no_throw();
    rmm::detail::free_registered_memory(ptr, bytes);
  }

  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    return typeid(other) == typeid(registered_host_memory_resource);
  }

  rmm::detail::registered_memory_plan plan_;
  pinned_host_memory_resource small_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
