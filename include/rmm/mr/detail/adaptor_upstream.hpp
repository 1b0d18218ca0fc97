// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/upstream_alignment.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <type_traits>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// A non-owning handle to the upstream of an adaptor. It passes sizes on without rounding, as far as upstream_alignment() can.
template <class Upstream>
class adaptor_upstream {
 public:
  /// Throws logic_error if `upstream` is null.
  explicit adaptor_upstream(Upstream* upstream) : ref_{to_ref_checked(upstream)}, pointer_{upstream} {}

  /// `is_base`: whether the resource is known to be a device_memory_resource.
  explicit adaptor_upstream(device_async_resource_ref upstream, bool is_base = false) noexcept
    : ref_{upstream}, is_base_{is_base}
  {}

  [[nodiscard]] device_async_resource_ref ref() const noexcept { return ref_; }

  /// Returns the upstream if it was passed as a pointer; else null.
  [[nodiscard]] Upstream* pointer() const noexcept { return pointer_; }

  void* allocate(std::size_t bytes, cuda_stream_view stream)
  {
    if constexpr (is_base_reached) {
      if (pointer_ != nullptr) { return base().allocate(bytes, stream); }
    }
    return ref_.allocate_async(bytes, alignment_for(bytes), stream);
  }

  void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream)
  {
    if constexpr (is_base_reached) {
      if (pointer_ != nullptr) { return base().deallocate(ptr, bytes, stream); }
    }
    ref_.deallocate_async(ptr, bytes, alignment_for(bytes), stream);
  }

  friend bool operator==(adaptor_upstream const& lhs, adaptor_upstream const& rhs) noexcept
  {
    return lhs.ref_ == rhs.ref_;
  }

 private:
  static constexpr bool is_base_reached = std::is_base_of_v<device_memory_resource, Upstream>;

  [[nodiscard]] static device_async_resource_ref to_ref_checked(Upstream* upstream)
  {
    RMM_EXPECTS(upstream != nullptr, "Unexpected null upstream resource pointer.");
    return device_async_resource_ref{upstream};
  }

  /// Returns the upstream as its base class, because Upstream may hide the functions of the base.
  [[nodiscard]] device_memory_resource& base() const noexcept { return *pointer_; }

  [[nodiscard]] std::size_t alignment_for(std::size_t bytes) const noexcept
  {
    return is_base_ ? alignment_without_rounding(bytes) : upstream_alignment(pointer_, bytes);
  }

  device_async_resource_ref ref_;
  Upstream* pointer_{};
  bool is_base_{false};
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
