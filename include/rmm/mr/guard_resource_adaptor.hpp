// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/detail/allocation_guard.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {

/// An adaptor that finds misuse of memory. Use it in tests to find writes outside of allocations or after their free, and wrong frees.
///
/// Each allocation has a red zone on both sides, which is checked when the allocation is freed. New and freed memory is overwritten with
/// patterns. Memory that was freed lately is not allocated again for a while. Not checked: allocations of 0 bytes, and allocations and
/// frees on a stream that captures.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::guard_options options;
/// options.handler = [](rmm::mr::guard_violation const& found) { std::puts(found.report.c_str()); };  // the default aborts
/// rmm::mr::guard_resource_adaptor guarded{&cuda, options};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, guarded};
/// @endcode
/// Threads  thread-safe if upstream is.
/// Stream   each free waits for its stream on the host.
template <class Upstream>
class guard_resource_adaptor final : public detail::resource_adaptor<guard_resource_adaptor<Upstream>, Upstream> {
 public:
  /// Throws logic_error if `upstream` is null.
  guard_resource_adaptor(Upstream* upstream, guard_options options = {})
    : guard_resource_adaptor::resource_adaptor{upstream}, guard_{new detail::allocation_guard{std::move(options)}}
  {}

  guard_resource_adaptor(device_async_resource_ref upstream, guard_options options = {})
    : guard_resource_adaptor::resource_adaptor{upstream}, guard_{new detail::allocation_guard{std::move(options)}}
  {}

  guard_resource_adaptor(guard_resource_adaptor const&)            = delete;
  guard_resource_adaptor(guard_resource_adaptor&&)                 = delete;
  guard_resource_adaptor& operator=(guard_resource_adaptor const&) = delete;
  guard_resource_adaptor& operator=(guard_resource_adaptor&&)      = delete;

  /// Checks the memory in quarantine, and gives it back to upstream.
  ~guard_resource_adaptor() override
  {
    if (this->is_of_this_process()) { empty_quarantine(cuda_stream_view{}); }
  }

 private:
  friend detail::resource_adaptor<guard_resource_adaptor<Upstream>, Upstream>;

  /// A guard can only free its own allocations, so no two guards are equal.
  [[nodiscard]] bool same_policy(guard_resource_adaptor const&) const noexcept { return false; }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (bytes == 0) { return this->upstream().allocate(0, stream); }
    auto const with_zones = guard_->size_with_zones(bytes);
    void* const base      = allocate_upstream(with_zones, stream);
    rmm::detail::scope_guard give_back{[&]() noexcept { this->upstream().deallocate(base, with_zones, stream); }};
    void* const ptr = guard_->begin(base, bytes, stream.value());
    give_back.dismiss();
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (!this->is_of_this_process()) { return; }
    if (bytes == 0 && !guard_->has(ptr)) { return this->upstream().deallocate(ptr, 0, stream); }
    guard_->end(ptr, bytes, stream.value(), give_back_on(stream));
  }

  /// Allocates from upstream. If upstream has no more memory, ends the quarantine and tries again.
  void* allocate_upstream(std::size_t bytes, cuda_stream_view stream)
  {
    try {
      return this->upstream().allocate(bytes, stream);
    } catch (out_of_memory const&) {
      if (!empty_quarantine(stream)) { throw; }
    }
    return this->upstream().allocate(bytes, stream);
  }

  bool empty_quarantine(cuda_stream_view stream) noexcept
  {
    return guard_->give_up_quarantine(stream.value(), give_back_on(stream));
  }

  [[nodiscard]] auto give_back_on(cuda_stream_view stream) noexcept
  {
    return [this, stream](void* base, std::size_t bytes) { this->upstream().deallocate(base, bytes, stream); };
  }

  std::unique_ptr<detail::allocation_guard, rmm::detail::delete_in_own_process> guard_;
};

template <class Upstream>
guard_resource_adaptor(Upstream*) -> guard_resource_adaptor<Upstream>;
guard_resource_adaptor(device_async_resource_ref)->guard_resource_adaptor<device_memory_resource>;
guard_resource_adaptor(device_async_resource_ref, guard_options)->guard_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
