// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/usage_statistics.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/export.hpp>
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

/// Counts bytes and allocations: those in use, the most there were at a time, and the sum over time. Thread-safe.
///
/// All figures are exact. A peak is what an order of the calls gives that keeps calls apart which did not overlap. Each
/// thread counts on its own where it can; whoever reads the counters stops all threads for some microseconds.
///
/// The counters form a stack: push_counters() starts a section with counters at zero, pop_counters() ends it and adds what
/// it counted to those of the section around it.
template <class Upstream>
class statistics_resource_adaptor final
  : public detail::resource_adaptor<statistics_resource_adaptor<Upstream>, Upstream> {
 public:
  using read_lock_t  = std::shared_lock<std::shared_mutex>;
  using write_lock_t = std::unique_lock<std::shared_mutex>;

  /// Bytes or allocations: in use, the most at a time, and the sum over time.
  using counter = rmm::detail::usage_counter;

  using statistics_resource_adaptor::resource_adaptor::resource_adaptor;

  /// Bytes, as counted in the innermost section.
  [[nodiscard]] counter get_bytes_counter() const noexcept { return statistics_.read().first; }

  /// Allocations, as counted in the innermost section.
  [[nodiscard]] counter get_allocations_counter() const noexcept { return statistics_.read().second; }

  /// Starts a section. Returns the counters (bytes, allocations) of the one around it.
  std::pair<counter, counter> push_counters() { return statistics_.push(); }

  /// Ends the innermost section. Returns its counters (bytes, allocations). Throws std::out_of_range for the outermost one.
  std::pair<counter, counter> pop_counters() { return statistics_.pop(); }

  /// allocate() with what `from` has at hand, a face of the upstream resource (immediate_resource.hpp); null, and nothing has
  /// changed, if that does not serve.
  [[nodiscard]] void* try_allocate_nonblocking(std::size_t bytes,
                                               cuda_stream_view stream,
                                               detail::immediate_resource& from) noexcept
  {
    return statistics_.try_add(bytes, [&] { return from.try_allocate_nonblocking(bytes, stream); });
  }

  /// deallocate() by `to`, a face of the upstream resource; or false, and nothing has changed.
  [[nodiscard]] bool try_deallocate_nonblocking(void* ptr,
                                                std::size_t bytes,
                                                cuda_stream_view stream,
                                                detail::immediate_resource& to) noexcept
  {
    return statistics_.try_subtract(bytes, [&] { return to.try_deallocate_nonblocking(ptr, bytes, stream); });
  }

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    void* const ptr = this->upstream().allocate(bytes, stream);
    return statistics_.try_add(bytes) ? ptr : count_slowly(ptr, bytes);
  }

  /// Counts before upstream can give the memory to another thread: the peak is no higher than the use.
  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (!statistics_.try_subtract(bytes)) { return deallocate_slowly(ptr, bytes, stream); }
    this->upstream().deallocate(ptr, bytes, stream);
  }

  RMM_COLD void* count_slowly(void* ptr, std::size_t bytes) noexcept
  {
    statistics_.add_slowly(bytes);
    return ptr;
  }

  RMM_COLD void deallocate_slowly(void* ptr, std::size_t bytes, cuda_stream_view stream)
  {
    statistics_.subtract_slowly(bytes);
    this->upstream().deallocate(ptr, bytes, stream);
  }

  mutable rmm::detail::usage_statistics statistics_{rmm::detail::known_streams().new_number()};
};

template <class Upstream>
statistics_resource_adaptor(Upstream*) -> statistics_resource_adaptor<Upstream>;
statistics_resource_adaptor(device_async_resource_ref)->statistics_resource_adaptor<device_memory_resource>;

/// statistics_resource_adaptor{upstream}, for code from before class template argument deduction.
template <class Upstream>
statistics_resource_adaptor<Upstream> make_statistics_adaptor(Upstream* upstream)
{
  return {upstream};
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
