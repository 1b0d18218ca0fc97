// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/byte_budget.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>  // IWYU pragma: export
#include <rmm/resource_ref.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {

/// Refuses allocations that would bring the bytes in use above a limit. Thread-safe; what fits is never refused.
template <class Upstream>
class limiting_resource_adaptor final : public detail::resource_adaptor<limiting_resource_adaptor<Upstream>, Upstream> {
 public:
  /// Lets through at most `allocation_limit` bytes at a time, each allocation counted as rounded up to `alignment`.
  ///
  /// Throws logic_error if `upstream` is null or `alignment` is not a power of two.
  limiting_resource_adaptor(Upstream* upstream,
                            std::size_t allocation_limit,
                            std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
    : limiting_resource_adaptor::resource_adaptor{upstream},
      alignment_{checked_alignment(alignment)},
      budget_{allocation_limit}
  {}

  limiting_resource_adaptor(device_async_resource_ref upstream,
                            std::size_t allocation_limit,
                            std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
    : limiting_resource_adaptor::resource_adaptor{upstream},
      alignment_{checked_alignment(alignment)},
      budget_{allocation_limit}
  {}

  /// Bytes in use.
  [[nodiscard]] std::size_t get_allocated_bytes() const { return budget_.used(); }

  /// Bytes that can be in use at once.
  [[nodiscard]] std::size_t get_allocation_limit() const { return budget_.limit(); }

  /// allocate() with what `from` has at hand, a face of the upstream resource (immediate_resource.hpp); null, and nothing has
  /// changed, if that does not serve.
  [[nodiscard]] void* try_allocate_nonblocking(std::size_t bytes,
                                               cuda_stream_view stream,
                                               detail::immediate_resource& from) noexcept
  {
    auto const charge = align_up(bytes, alignment_);
    if (charge < bytes || !budget_.try_reserve(charge)) { return nullptr; }
    void* const ptr = from.try_allocate_nonblocking(bytes, stream);
    if (ptr == nullptr) { budget_.release(charge); }
    return ptr;
  }

  /// deallocate() by `to`, a face of the upstream resource; or false, and nothing has changed.
  [[nodiscard]] bool try_deallocate_nonblocking(void* ptr,
                                                std::size_t bytes,
                                                cuda_stream_view stream,
                                                detail::immediate_resource& to) noexcept
  {
    if (!to.try_deallocate_nonblocking(ptr, bytes, stream)) { return false; }
    budget_.release(align_up(bytes, alignment_));
    return true;
  }

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    auto const charge = align_up(bytes, alignment_);  // less than `bytes` if it wraps: more than any limit
    if (charge < bytes || !budget_.try_reserve(charge)) { throw_limit_exceeded(bytes); }
    rmm::detail::scope_guard refund{[&]() noexcept { budget_.release(charge); }};
    void* const ptr = this->upstream().allocate(bytes, stream);
    refund.dismiss();
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    this->upstream().deallocate(ptr, bytes, stream);
    budget_.release(align_up(bytes, alignment_));  // after: until then the bytes are in use
  }

  [[nodiscard]] static std::size_t checked_alignment(std::size_t alignment)
  {
    RMM_EXPECTS(is_supported_alignment(alignment), "The alignment is not a power of two.");
    return alignment;
  }

  [[noreturn]] RMM_COLD void throw_limit_exceeded(std::size_t bytes) const
  {
    using rmm::detail::format_bytes;
    RMM_FAIL("Exceeded memory limit (failed to allocate " + format_bytes(bytes) + "): " + format_bytes(budget_.used()) +
               " of " + format_bytes(budget_.limit()) + " are in use",
             rmm::out_of_memory);
  }

  std::size_t alignment_;
  rmm::detail::byte_budget budget_;
};

limiting_resource_adaptor(device_async_resource_ref, std::size_t, std::size_t = CUDA_ALLOCATION_ALIGNMENT)
  ->limiting_resource_adaptor<device_memory_resource>;

/// limiting_resource_adaptor{upstream, allocation_limit}, for code from before class template argument deduction.
template <class Upstream>
limiting_resource_adaptor<Upstream> make_limiting_adaptor(Upstream* upstream, std::size_t allocation_limit)
{
  return {upstream, allocation_limit};
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
