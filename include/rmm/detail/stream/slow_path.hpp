// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/bits.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

namespace RMM_NAMESPACE {
namespace detail {

/// Decides which calls of a heap take the slow path.
///
/// Each reason is a bit. While one is set, the calls that it concerns take the slow path, where the heap looks at them more closely: all
/// frees, and all allocations unless the only reason is has_graph_memory. Calls with the handle of a default stream always do so where the
/// process sees several devices: the handle names another stream on each.
///
/// The short path compares a handle with one number, the floor: handles below it take the slow path. Handles below
/// first_plain_handle name default streams.
///
/// Invariant:
///  P1  once set() has returned, each floor is that of the reasons set: all handles, those of default streams, or none
///
/// Order: the floors guard no other data, so calls read them relaxed. A call that happens after set() has returned reads the new floor
/// or a later one, because no thread reads an older value of a variable than one that happened before. A call that overlaps with set()
/// may read either.
///
/// Thread-safe.
class slow_path {
 public:
  static constexpr std::uintptr_t first_plain_handle = 3;

  enum reason : unsigned {
    captures_announced = 1,  ///< captures of CUDA graphs are announced
    checks_captures    = 2,  ///< the heap was told to ask always
    has_graph_memory   = 4,  ///< each free has to be looked at; allocations need not
    owner_asks         = 8   ///< the owner of the heap wants to see each call
  };
  static constexpr unsigned any_to_allocate = captures_announced | checks_captures | owner_asks;
  static constexpr unsigned any             = any_to_allocate | has_graph_memory;

  slow_path() noexcept { set_floors(); }

  void set(reason why, bool on) noexcept
  {
    // P1: without the lock, a thread that is delayed here could store floors without the reason of another.
    mutex_lock const lock{mutex_};
    auto const before = reasons_.load(std::memory_order_relaxed);
    reasons_.store(on ? before | why : before & ~static_cast<unsigned>(why), std::memory_order_seq_cst);
    set_floors();
    RMM_ASSERT(has(why) == on);
  }

  [[nodiscard]] bool has(unsigned reasons) const noexcept
  {
    return (reasons_.load(std::memory_order_relaxed) & reasons) != 0;
  }

  /// Whether calls with this handle take the slow path.
  [[nodiscard]] RMM_ALWAYS_INLINE bool takes_allocation(cudaStream_t stream) const noexcept
  {
    return number_of(stream) < allocate_floor_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] RMM_ALWAYS_INLINE bool takes_deallocation(cudaStream_t stream) const noexcept
  {
    return number_of(stream) < deallocate_floor_.load(std::memory_order_relaxed);
  }

  /// Returns those of `reasons` that apply to this handle. checks_captures does not apply to the legacy default stream, which never
  /// captures.
  [[nodiscard]] unsigned reasons_for(unsigned reasons, cudaStream_t stream) const noexcept
  {
    auto const found = reasons_.load(std::memory_order_relaxed) & reasons;
    return is_legacy_stream(stream) ? found & ~static_cast<unsigned>(checks_captures) : found;
  }

  /// Whether the slow path asks the runtime if a stream captures.
  [[nodiscard]] bool asks_for_captures() const noexcept { return has(captures_announced | checks_captures); }

  /// Whether the handle names a different stream on each device.
  [[nodiscard]] bool is_ambiguous(cudaStream_t stream) const noexcept { return number_of(stream) < default_floor_; }

  [[nodiscard]] RMM_ALWAYS_INLINE static std::uintptr_t number_of(cudaStream_t stream) noexcept
  {
    return reinterpret_cast<std::uintptr_t>(stream);
  }

 private:
  void set_floors() noexcept
  {
    constexpr auto all = max_value<std::uintptr_t>;
    auto const reasons = reasons_.load(std::memory_order_relaxed);
    allocate_floor_.store((reasons & any_to_allocate) != 0 ? all : default_floor_, std::memory_order_seq_cst);
    deallocate_floor_.store(reasons != 0 ? all : default_floor_, std::memory_order_seq_cst);
    RMM_ASSERT((reasons == 0) == (deallocate_floor_.load(std::memory_order_relaxed) == default_floor_));  // P1
    RMM_ASSERT(allocate_floor_.load(std::memory_order_relaxed) <= deallocate_floor_.load(std::memory_order_relaxed));
  }

  std::uintptr_t const default_floor_{sees_one_device() ? 0 : first_plain_handle};
  std::atomic<std::uintptr_t> allocate_floor_{0};
  std::atomic<std::uintptr_t> deallocate_floor_{0};
  std::atomic<unsigned> reasons_{0};
  mutex mutex_;  // held while the reasons and the floors change
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
