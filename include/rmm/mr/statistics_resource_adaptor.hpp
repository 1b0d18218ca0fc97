// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {

/// Counts bytes and allocations: those in use, the most there were at a time, and the sum over time. Thread-safe.
///
/// The counters form a stack: push_counters() starts a section with counters at zero, pop_counters() ends it and adds what
/// it counted to those of the section around it.
template <class Upstream>
class statistics_resource_adaptor final
  : public detail::resource_adaptor<statistics_resource_adaptor<Upstream>, Upstream> {
 public:
  using read_lock_t  = std::shared_lock<std::shared_mutex>;
  using write_lock_t = std::unique_lock<std::shared_mutex>;

  struct counter {
    std::int64_t value{0};  ///< in use; negative if more was freed than allocated
    std::int64_t peak{0};   ///< largest value so far
    std::int64_t total{0};  ///< all that was ever added

    counter& operator+=(std::int64_t amount)
    {
      value += amount;
      total += amount;
      peak = std::max(peak, value);
      return *this;
    }

    counter& operator-=(std::int64_t amount)
    {
      value -= amount;
      return *this;
    }

    /// Adds what `section` counted from zero on, after what this one counted before.
    void add_counters_from_tracked_sub_block(counter const& section)
    {
      peak = std::max(peak, value + section.peak);
      value += section.value;
      total += section.total;
    }
  };

  using statistics_resource_adaptor::resource_adaptor::resource_adaptor;

  /// Bytes, as counted in the innermost section.
  [[nodiscard]] counter get_bytes_counter() const noexcept
  {
    read_lock_t const lock{mutex_};
    return sections_.back().first;
  }

  /// Allocations, as counted in the innermost section.
  [[nodiscard]] counter get_allocations_counter() const noexcept
  {
    read_lock_t const lock{mutex_};
    return sections_.back().second;
  }

  /// Starts a section. Returns the counters (bytes, allocations) of the one around it.
  std::pair<counter, counter> push_counters()
  {
    write_lock_t const lock{mutex_};
    auto const around = sections_.back();
    sections_.emplace_back();
    return around;
  }

  /// Ends the innermost section. Returns its counters (bytes, allocations). Throws std::out_of_range for the outermost one.
  std::pair<counter, counter> pop_counters()
  {
    write_lock_t const lock{mutex_};
    if (sections_.size() < 2) { throw std::out_of_range("cannot pop the last counter pair"); }
    auto const ended = sections_.back();
    sections_.pop_back();
    sections_.back().first.add_counters_from_tracked_sub_block(ended.first);
    sections_.back().second.add_counters_from_tracked_sub_block(ended.second);
    return ended;
  }

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    void* const ptr = this->upstream().allocate(bytes, stream);
    write_lock_t const lock{mutex_};
    sections_.back().first += static_cast<std::int64_t>(bytes);
    sections_.back().second += 1;
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    {
      write_lock_t const lock{mutex_};
      sections_.back().first -= static_cast<std::int64_t>(bytes);
      sections_.back().second -= 1;
    }  // before upstream can give the memory to another thread, so that the peak is no higher than what was in use
    this->upstream().deallocate(ptr, bytes, stream);
  }

  // Invariant: never empty. Outermost section first.
  std::vector<std::pair<counter, counter>> sections_{1};
  mutable std::shared_mutex mutex_;  // guards sections_; not held while upstream is called
};

template <class Upstream>
statistics_resource_adaptor(Upstream*) -> statistics_resource_adaptor<Upstream>;
statistics_resource_adaptor(device_async_resource_ref)->statistics_resource_adaptor<device_memory_resource>;

template <class Upstream>
[[nodiscard]] statistics_resource_adaptor<Upstream> make_statistics_adaptor(Upstream* upstream)
{
  return {upstream};
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
