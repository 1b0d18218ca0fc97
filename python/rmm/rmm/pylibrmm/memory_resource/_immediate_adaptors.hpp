// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/memory_resource/_owned_resources.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/stream/identified_stream.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <memory>

namespace rmm_python {

/// The interface of an adaptor for nonblocking calls, over that of its upstream. `upstream` may be null if it is never called.
template <class Adaptor>
class immediate_adaptor final : public rmm::mr::detail::immediate_resource {
 public:
  immediate_adaptor(Adaptor& adaptor, immediate_resource* upstream) noexcept : adaptor_{adaptor}, upstream_{upstream} {}

  [[nodiscard]] void* try_allocate_nonblocking(std::size_t bytes, rmm::detail::identified_stream stream) noexcept final
  {
    return adaptor_.try_allocate_nonblocking(bytes, stream, *upstream_);
  }

  [[nodiscard]] bool try_deallocate_nonblocking(void* ptr,
                                                std::size_t bytes,
                                                rmm::detail::identified_stream stream) noexcept final
  {
    return adaptor_.try_deallocate_nonblocking(ptr, bytes, stream, *upstream_);
  }

 private:
  Adaptor& adaptor_;
  immediate_resource* upstream_;
};

/// Makes an adaptor that keeps its upstream alive. Sets `at_once` to its interface for nonblocking calls; to null if the upstream has
/// none.
template <template <class...> class Resource, class... Args>
[[nodiscard]] resource_ptr make_immediate_over(resource_ptr const& upstream,
                                               rmm::mr::detail::immediate_resource* upstream_at_once,
                                               rmm::mr::detail::immediate_resource*& at_once,
                                               Args const&... args)
{
  using adaptor = Resource<rmm::mr::device_memory_resource>;
  struct layer {
    layer(resource_ptr const& below, rmm::mr::detail::immediate_resource* below_at_once, Args const&... rest)
      : upstream{below}, resource{upstream.get(), rest...}, face{resource, below_at_once}
    {}
    resource_ptr upstream;
    adaptor resource;
    immediate_adaptor<adaptor> face;
  };
  auto const made = std::make_shared<layer>(upstream, upstream_at_once, args...);
  at_once         = upstream_at_once != nullptr ? &made->face : nullptr;
  return {made, &made->resource};
}

}  // namespace rmm_python
