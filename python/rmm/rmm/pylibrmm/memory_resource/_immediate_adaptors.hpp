// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>

#include <cstddef>

namespace rmm_python {

/// The interface of an adaptor for nonblocking calls, over that of its upstream. `upstream` may be null if it is never called.
template <class Adaptor>
class immediate_adaptor final : public rmm::mr::detail::immediate_resource {
 public:
  immediate_adaptor(Adaptor& adaptor, immediate_resource* upstream) noexcept : adaptor_{adaptor}, upstream_{upstream} {}

  [[nodiscard]] void* try_allocate_nonblocking(std::size_t bytes, rmm::cuda_stream_view stream) noexcept final
  {
    return adaptor_.try_allocate_nonblocking(bytes, stream, *upstream_);
  }

  [[nodiscard]] bool try_deallocate_nonblocking(void* ptr,
                                                std::size_t bytes,
                                                rmm::cuda_stream_view stream) noexcept final
  {
    return adaptor_.try_deallocate_nonblocking(ptr, bytes, stream, *upstream_);
  }

 private:
  Adaptor& adaptor_;
  immediate_resource* upstream_;
};

}  // namespace rmm_python
