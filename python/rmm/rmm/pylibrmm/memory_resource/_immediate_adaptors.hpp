// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// What the adaptors below count with.
struct immediate_adaptor_parts {
  template <class Upstream>
  [[nodiscard]] static auto& statistics(statistics_resource_adaptor<Upstream>& adaptor) noexcept
  {
    return adaptor.statistics_;
  }

  template <class Upstream>
  [[nodiscard]] static auto& budget(limiting_resource_adaptor<Upstream>& adaptor) noexcept
  {
    return adaptor.budget_;
  }

  template <class Upstream>
  [[nodiscard]] static std::size_t charge(limiting_resource_adaptor<Upstream> const& adaptor,
                                          std::size_t bytes) noexcept
  {
    return align_up(bytes, adaptor.alignment_);
  }
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE

namespace rmm_python {

/// The face of an adaptor for calls that wait for nothing, over that of its upstream, which may be null if nobody calls it. The
/// adaptor counts the same whichever way a call takes.
template <class Adaptor>
class immediate_adaptor;

template <class Upstream>
class immediate_adaptor<rmm::mr::statistics_resource_adaptor<Upstream>> final
  : public rmm::mr::detail::immediate_resource {
 public:
  immediate_adaptor(rmm::mr::statistics_resource_adaptor<Upstream>& adaptor, immediate_resource* upstream) noexcept
    : statistics_{rmm::mr::detail::immediate_adaptor_parts::statistics(adaptor)}, upstream_{upstream}
  {}

  [[nodiscard]] void* try_allocate_nonblocking(std::size_t bytes, rmm::cuda_stream_view stream) noexcept final
  {
    return statistics_.try_add(bytes, [&] { return upstream_->try_allocate_nonblocking(bytes, stream); });
  }

  [[nodiscard]] bool try_deallocate_nonblocking(void* ptr,
                                                    std::size_t bytes,
                                                    rmm::cuda_stream_view stream) noexcept final
  {
    return statistics_.try_subtract(bytes,
                                    [&] { return upstream_->try_deallocate_nonblocking(ptr, bytes, stream); });
  }

 private:
  rmm::detail::usage_statistics& statistics_;
  immediate_resource* upstream_;
};

template <class Upstream>
class immediate_adaptor<rmm::mr::limiting_resource_adaptor<Upstream>> final
  : public rmm::mr::detail::immediate_resource {
  using parts = rmm::mr::detail::immediate_adaptor_parts;

 public:
  immediate_adaptor(rmm::mr::limiting_resource_adaptor<Upstream>& adaptor, immediate_resource* upstream) noexcept
    : adaptor_{adaptor}, upstream_{upstream}
  {}

  [[nodiscard]] void* try_allocate_nonblocking(std::size_t bytes, rmm::cuda_stream_view stream) noexcept final
  {
    auto const charge = parts::charge(adaptor_, bytes);
    if (charge < bytes || !parts::budget(adaptor_).try_reserve(charge)) { return nullptr; }
    void* const ptr = upstream_->try_allocate_nonblocking(bytes, stream);
    if (ptr == nullptr) { parts::budget(adaptor_).release(charge); }
    return ptr;
  }

  [[nodiscard]] bool try_deallocate_nonblocking(void* ptr,
                                                    std::size_t bytes,
                                                    rmm::cuda_stream_view stream) noexcept final
  {
    if (!upstream_->try_deallocate_nonblocking(ptr, bytes, stream)) { return false; }
    parts::budget(adaptor_).release(parts::charge(adaptor_, bytes));
    return true;
  }

 private:
  rmm::mr::limiting_resource_adaptor<Upstream>& adaptor_;
  immediate_resource* upstream_;
};

}  // namespace rmm_python
