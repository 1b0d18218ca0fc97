// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>  // IWYU pragma: export
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <unordered_map>

namespace RMM_NAMESPACE {
namespace mr {

/// An adaptor that aligns allocations to more than 256 bytes. Use it if kernels or other libraries need a larger alignment.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::aligned_resource_adaptor aligned{&cuda, 4096};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, aligned};  // its address is a multiple of 4096
/// @endcode
/// Threads  thread-safe if upstream is.
template <class Upstream>
class aligned_resource_adaptor final : public detail::resource_adaptor<aligned_resource_adaptor<Upstream>, Upstream> {
 public:
  static constexpr std::size_t default_alignment_threshold = 0;

  /// Aligns allocations of `alignment_threshold` bytes or more to `alignment`, and smaller ones to CUDA_ALLOCATION_ALIGNMENT.
  ///
  /// Throws logic_error if `upstream` is null or `alignment` is not a power of two.
  explicit aligned_resource_adaptor(Upstream* upstream,
                                    std::size_t alignment           = CUDA_ALLOCATION_ALIGNMENT,
                                    std::size_t alignment_threshold = default_alignment_threshold)
    : aligned_resource_adaptor::resource_adaptor{upstream},
      alignment_{usable_alignment(alignment)},
      alignment_threshold_{alignment_threshold}
  {}

  explicit aligned_resource_adaptor(device_async_resource_ref upstream,
                                    std::size_t alignment           = CUDA_ALLOCATION_ALIGNMENT,
                                    std::size_t alignment_threshold = default_alignment_threshold)
    : aligned_resource_adaptor{upstream, alignment, alignment_threshold, false}
  {}

  /// As with a reference, but sizes below the threshold reach such a resource without rounding.
  template <class Resource,
            std::enable_if_t<std::is_convertible_v<Resource*, device_memory_resource*> &&
                               !std::is_same_v<Resource, aligned_resource_adaptor>,
                             int> = 0>
  explicit aligned_resource_adaptor(Resource& upstream,
                                    std::size_t alignment           = CUDA_ALLOCATION_ALIGNMENT,
                                    std::size_t alignment_threshold = default_alignment_threshold)
    : aligned_resource_adaptor{device_async_resource_ref{upstream}, alignment, alignment_threshold, true}
  {}

  aligned_resource_adaptor(aligned_resource_adaptor&&)            = delete;
  aligned_resource_adaptor& operator=(aligned_resource_adaptor&&) = delete;
  ~aligned_resource_adaptor() override
  {
    if (!this->is_of_this_process()) { static_cast<void>(upstream_pointers_.release()); }
  }

 private:
  friend typename aligned_resource_adaptor::resource_adaptor;  // calls same_policy()

  aligned_resource_adaptor(device_async_resource_ref upstream,
                           std::size_t alignment,
                           std::size_t alignment_threshold,
                           bool is_base)
    : aligned_resource_adaptor::resource_adaptor{upstream, is_base},
      alignment_{usable_alignment(alignment)},
      alignment_threshold_{alignment_threshold}
  {}

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (passes_through(bytes)) { return this->upstream().allocate(bytes, stream); }

    auto const upstream_bytes = with_slack(rmm::detail::checked_align_up(bytes, alignment_));
    void* const upstream_ptr  = this->upstream().allocate(upstream_bytes, stream);
    auto const address        = reinterpret_cast<std::uintptr_t>(upstream_ptr);
    void* const ptr           = reinterpret_cast<void*>(align_up(address, alignment_));
    if (ptr != upstream_ptr) {
      rmm::detail::scope_guard give_back{
        [&]() noexcept { this->upstream().deallocate(upstream_ptr, upstream_bytes, stream); }};
      rmm::detail::mutex_lock const lock{mutex_};
      upstream_pointers_->emplace(ptr, upstream_ptr);
      give_back.dismiss();
    }
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (!this->is_of_this_process()) { return; }
    if (passes_through(bytes)) { return this->upstream().deallocate(ptr, bytes, stream); }

    // Erased first: as soon as upstream has the memory, another thread can get the same address.
    void* const upstream_ptr = take_upstream_pointer(ptr);
    this->upstream().deallocate(upstream_ptr, with_slack(align_up(bytes, alignment_)), stream);
  }

  [[nodiscard]] bool same_policy(aligned_resource_adaptor const& other) const noexcept
  {
    return alignment_ == other.alignment_ && alignment_threshold_ == other.alignment_threshold_;
  }

  [[nodiscard]] bool passes_through(std::size_t bytes) const noexcept
  {
    return alignment_ == CUDA_ALLOCATION_ALIGNMENT || bytes < alignment_threshold_ || bytes == 0;
  }

  /// Returns the size of an upstream block that has an aligned part of `rounded_bytes` at any address. Cannot overflow, because
  /// `rounded_bytes` is a multiple of the alignment, and less than one alignment is added.
  [[nodiscard]] std::size_t with_slack(std::size_t rounded_bytes) const noexcept
  {
    return rounded_bytes + (alignment_ - CUDA_ALLOCATION_ALIGNMENT);
  }

  /// Returns the pointer that upstream returned for `ptr`, and erases its entry.
  [[nodiscard]] void* take_upstream_pointer(void* ptr)
  {
    rmm::detail::mutex_lock const lock{mutex_};
    auto const found = upstream_pointers_->find(ptr);
    if (found == upstream_pointers_->end()) { return ptr; }
    void* const upstream_ptr = found->second;
    upstream_pointers_->erase(found);
    return upstream_ptr;
  }

  [[nodiscard]] static std::size_t usable_alignment(std::size_t alignment)
  {
    RMM_EXPECTS(is_supported_alignment(alignment),
                "Allocation alignment is not a power of 2, but " + std::to_string(alignment) + ".");
    return rmm::detail::max(alignment, CUDA_ALLOCATION_ALIGNMENT);
  }

  std::size_t alignment_;
  std::size_t alignment_threshold_;
  rmm::detail::mutex mutex_;  // guards upstream_pointers_; not held while upstream is called
  // From our pointer to that of upstream, if they differ. Not destroyed in a forked child.
  rmm::detail::owned_ptr<std::unordered_map<void*, void*>> upstream_pointers_{new std::unordered_map<void*, void*>};
};

aligned_resource_adaptor(device_async_resource_ref, std::size_t = CUDA_ALLOCATION_ALIGNMENT, std::size_t = 0)
  ->aligned_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
