// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/usage_statistics.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/stream/identified_stream.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>  // IWYU pragma: export
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {

/// An adaptor that counts bytes and allocations: in use, at the peak, and in total. Use it to measure how much memory a program needs.
///
/// The figures are exact. Calls of several threads that overlap count as if they had run in some order. The counters form a stack:
/// push_counters() starts a section with counters at zero, and pop_counters() ends it and adds its counts to the outer section.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::statistics_resource_adaptor counted{&cuda};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, counted};
/// std::printf("peak: %lld bytes\n", static_cast<long long>(counted.get_bytes_counter().peak));
/// @endcode
/// Threads  thread-safe if upstream is. In a forked child of the process that made the adaptor, all counters are 0.
/// Cost     threads count without shared data. A thread that reads the counters stops the others for some microseconds.
template <class Upstream>
class statistics_resource_adaptor final
  : public detail::resource_adaptor<statistics_resource_adaptor<Upstream>, Upstream> {
 public:
  using read_lock_t  = std::shared_lock<std::shared_mutex>;
  using write_lock_t = std::unique_lock<std::shared_mutex>;

  /// Counts of bytes or allocations: `value` in use (in a section it may be negative), `peak` and `total`.
  using counter = rmm::detail::usage_counter;

  using statistics_resource_adaptor::resource_adaptor::resource_adaptor;

  /// Returns the counts of bytes in the innermost section.
  [[nodiscard]] counter get_bytes_counter() const noexcept { return read().first; }

  /// Returns the counts of allocations in the innermost section.
  [[nodiscard]] counter get_allocations_counter() const noexcept { return read().second; }

  /// Starts a section. Returns the counters (bytes, allocations) of the outer section.
  std::pair<counter, counter> push_counters() { return this->is_of_this_process() ? statistics_.push() : counters{}; }

  /// Ends the innermost section. Returns its counters (bytes, allocations). Throws std::out_of_range for the outermost one.
  std::pair<counter, counter> pop_counters() { return this->is_of_this_process() ? statistics_.pop() : counters{}; }

  /// Allocates as allocate() does, but from `from`, which is the upstream as an immediate_resource. Returns null, and counts nothing, if
  /// `from` does not serve the request.
  [[nodiscard]] void* try_allocate_nonblocking(std::size_t bytes,
                                               rmm::detail::identified_stream stream,
                                               detail::immediate_resource& from) noexcept
  {
    return statistics_.try_add(bytes, [&] { return from.try_allocate_nonblocking(bytes, stream); });
  }

  /// Frees as deallocate() does, but to `to`, which is the upstream as an immediate_resource. Returns false, and counts nothing, if `to`
  /// does not take the block.
  [[nodiscard]] bool try_deallocate_nonblocking(void* ptr,
                                                std::size_t bytes,
                                                rmm::detail::identified_stream stream,
                                                detail::immediate_resource& to) noexcept
  {
    return statistics_.try_subtract(bytes, [&] { return to.try_deallocate_nonblocking(ptr, bytes, stream); });
  }

 private:
  using counters = std::pair<counter, counter>;  // bytes, allocations

  [[nodiscard]] counters read() const noexcept { return this->is_of_this_process() ? statistics_.read() : counters{}; }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    void* const ptr = this->upstream().allocate(bytes, stream);
    return statistics_.try_add(bytes) ? ptr : count_slowly(ptr, bytes);
  }

  /// Counts first: if upstream gave the memory to another thread before, the peak would be higher than the use ever was.
  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (!statistics_.try_subtract(bytes)) { return deallocate_slowly(ptr, bytes, stream); }
    this->upstream().deallocate(ptr, bytes, stream);
  }

  RMM_COLD void* count_slowly(void* ptr, std::size_t bytes) noexcept
  {
    if (this->is_of_this_process()) { statistics_.add_slowly(bytes); }
    return ptr;
  }

  RMM_COLD void deallocate_slowly(void* ptr, std::size_t bytes, cuda_stream_view stream)
  {
    if (!this->is_of_this_process()) { return; }
    statistics_.subtract_slowly(bytes);
    this->upstream().deallocate(ptr, bytes, stream);
  }

  mutable rmm::detail::usage_statistics statistics_{rmm::detail::known_streams().new_number()};
};

template <class Upstream>
statistics_resource_adaptor(Upstream*) -> statistics_resource_adaptor<Upstream>;
statistics_resource_adaptor(device_async_resource_ref)->statistics_resource_adaptor<device_memory_resource>;

/// Returns statistics_resource_adaptor{upstream}. For code that does not deduce class template arguments.
template <class Upstream>
statistics_resource_adaptor<Upstream> make_statistics_adaptor(Upstream* upstream)
{
  return {upstream};
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
