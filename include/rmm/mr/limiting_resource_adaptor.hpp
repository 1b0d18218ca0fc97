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
#include <rmm/detail/stream/identified_stream.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>  // IWYU pragma: export
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <string>

namespace RMM_NAMESPACE {
namespace mr {

/// An adaptor that refuses allocations beyond a limit. Use it to keep one part of a program from taking all memory.
///
/// It throws out_of_memory if an allocation would bring the bytes in use above the limit. Bytes are counted
/// before upstream is asked, so an allocation that fails there can make one of another thread fail.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::limiting_resource_adaptor limited{&cuda, 1 << 20};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, limited};  // counts as 1024 of 1 MiB
/// @endcode
/// Threads  thread-safe if upstream is.
template <class Upstream>
class limiting_resource_adaptor final : public detail::resource_adaptor<limiting_resource_adaptor<Upstream>, Upstream> {
 public:
  /// Allows `allocation_limit` bytes in use at a time. Each allocation counts with its size rounded up to `alignment`.
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

  /// Returns the bytes in use.
  [[nodiscard]] std::size_t get_allocated_bytes() const { return budget_.used(); }

  /// Returns the bytes that can be in use at a time.
  [[nodiscard]] std::size_t get_allocation_limit() const { return budget_.limit(); }

  /// Allocates as allocate() does, but from `from`, which is the upstream as an immediate_resource. Returns null, and changes nothing,
  /// if the limit or `from` does not allow it.
  [[nodiscard]] void* try_allocate_nonblocking(std::size_t bytes,
                                               rmm::detail::identified_stream stream,
                                               detail::immediate_resource& from) noexcept
  {
    auto const charge = align_up(bytes, alignment_);
    if (charge < bytes || !budget_.try_reserve(charge)) { return nullptr; }
    void* const ptr = from.try_allocate_nonblocking(bytes, stream);
    if (ptr == nullptr) { budget_.release(charge); }
    return ptr;
  }

  /// Frees as deallocate() does, but to `to`, which is the upstream as an immediate_resource. Returns false, and changes nothing, if
  /// `to` does not take the block.
  [[nodiscard]] bool try_deallocate_nonblocking(void* ptr,
                                                std::size_t bytes,
                                                rmm::detail::identified_stream stream,
                                                detail::immediate_resource& to) noexcept
  {
    if (!to.try_deallocate_nonblocking(ptr, bytes, stream)) { return false; }
    budget_.release(align_up(bytes, alignment_));
    return true;
  }

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    auto const charge = align_up(bytes, alignment_);  // less than `bytes` if it overflows
    if (charge < bytes || !budget_.try_reserve(charge)) { throw_limit_exceeded(bytes); }
    rmm::detail::scope_guard refund{[&]() noexcept { budget_.release(charge); }};
    void* const ptr = this->upstream().allocate(bytes, stream);
    refund.dismiss();
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    this->upstream().deallocate(ptr, bytes, stream);
    budget_.release(align_up(bytes, alignment_));  // last, because the bytes are in use until upstream has them
  }

  [[nodiscard]] static std::size_t checked_alignment(std::size_t alignment)
  {
    RMM_EXPECTS(is_supported_alignment(alignment),
                "The alignment is " + std::to_string(alignment) + ", but has to be a power of two.");
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

/// Returns limiting_resource_adaptor{upstream, allocation_limit}. For code that does not deduce class template arguments.
template <class Upstream>
limiting_resource_adaptor<Upstream> make_limiting_adaptor(Upstream* upstream, std::size_t allocation_limit)
{
  return {upstream, allocation_limit};
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
