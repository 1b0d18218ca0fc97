// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/base/pointer_bag.hpp>
#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <new>

namespace RMM_NAMESPACE {
namespace detail {

/// A callback of a pool, which needs to know that a stream ends while the stream can still be used.
struct stream_end_listener {
  /// Called by the thread that is about to destroy `stream`.
  void (*stream_ends)(stream_end_listener& self, cudaStream_t stream) noexcept = nullptr;
};

/// The known streams: those whose end is reported to the library, because rmm::cuda_stream or an announcement of the program made them.
///
/// The runtime reuses the handle of a destroyed stream at once. Code that stores data by handle calls is_known() once and stores the
/// value of ends(). As long as ends() returns that value, the handle of a known stream names the same stream.
///
/// Invariant: ends() changes before a known handle can name another stream.
///
/// Order: a thread that uses the handle of a new stream got it from the thread that made the stream, after the runtime had destroyed the
/// old one, which end() precedes. So the change of ends() happens before the use, and a load there reads it or a later one, also relaxed.
///
/// In a forked child of a process that had known streams, no stream is or becomes known: a thread of the parent may have held the lock.
///
/// Thread-safe. One object per process; releases of the library that use one name and number of the anchor share the layout.
class stream_lifetimes {
 public:
  /// Makes a new stream known. If host memory runs out, it stays unknown.
  void begin(cudaStream_t stream) noexcept
  {
    if (is_of_a_parent()) { return; }
    mutex_lock const lock{mutex_};
    static_cast<void>(known_.try_add(stream));
  }

  /// Tells the listeners that a stream is about to be destroyed. Holds the lock, so that no listener is removed meanwhile.
  void end(cudaStream_t stream) noexcept
  {
    if (is_of_a_parent()) { return; }
    mutex_lock const lock{mutex_};
    if (!known_.contains(stream)) { return; }
    for (void* const each : listeners_) {
      auto& listener = *static_cast<stream_end_listener*>(each);
      listener.stream_ends(listener, stream);
    }
    known_.remove(stream);
    ends_.fetch_add(1, std::memory_order_release);
  }

  [[nodiscard]] bool is_known(cudaStream_t stream) const noexcept
  {
    if (is_of_a_parent()) { return false; }
    mutex_lock const lock{mutex_};
    return known_.contains(stream);
  }

  /// Calls visit(streams), where streams.contains(handle) tells whether a stream is known. No known stream is destroyed meanwhile.
  ///
  /// Requires that the caller holds no lock that a listener takes, and is not inside a cache. The thread that destroys a stream holds
  /// this lock while it waits for such locks and caches.
  template <class Visit>
  void with_known(Visit&& visit) const
  {
    if (is_of_a_parent()) { return visit(pointer_bag{}); }
    mutex_lock const lock{mutex_};
    visit(known_);
  }

  /// As with_known(), for callers that may hold such a lock. Returns false without a call of `visit` if another thread holds the lock
  /// of the known streams.
  template <class Visit>
  [[nodiscard]] bool try_with_known(Visit&& visit) const
  {
    if (is_of_a_parent() || !mutex_.try_lock()) { return false; }
    visit(known_);
    mutex_.unlock();
    return true;
  }

  /// Returns the number of known streams that have ended.
  [[nodiscard]] std::atomic<std::uint64_t> const& ends() const noexcept { return ends_; }

  /// Returns a number that is unique in the process, across shared objects, and not 0.
  [[nodiscard]] std::uint64_t new_number() noexcept { return 1 + numbers_.fetch_add(1, std::memory_order_relaxed); }

  /// Throws std::bad_alloc.
  void add(stream_end_listener& listener)
  {
    if (is_of_a_parent()) { return; }
    mutex_lock const lock{mutex_};
    if (!listeners_.try_add(&listener)) { throw std::bad_alloc{}; }
  }

  void remove(stream_end_listener& listener) noexcept
  {
    if (is_of_a_parent()) { return; }
    mutex_lock const lock{mutex_};
    listeners_.remove(&listener);
  }

 private:
  [[nodiscard]] static bool is_of_a_parent() noexcept { return first_user<stream_lifetimes>::is_a_parent(); }

  std::atomic<std::uint64_t> ends_{0};
  std::atomic<std::uint64_t> numbers_{0};
  mutable mutex mutex_;
  pointer_bag known_;
  pointer_bag listeners_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE

RMM_PROCESS_WIDE_ANCHOR(rmm_stream_lifetimes_v1, 2);

namespace RMM_NAMESPACE {
namespace detail {

/// Returns the object of this process, which is never destroyed. Throws std::bad_alloc.
[[nodiscard]] RMM_HIDDEN inline stream_lifetimes& known_streams()
{
  first_user<stream_lifetimes>::note_use();
  return process_wide_object<stream_lifetimes>(rmm_stream_lifetimes_v1, 2, [] { return new stream_lifetimes; });
}

/// Makes a new stream known. If host memory runs out, it stays unknown.
RMM_COLD inline void stream_begins(cudaStream_t stream) noexcept
{
  try {
    known_streams().begin(stream);
  } catch (std::bad_alloc const&) {}
}

/// Reports that a stream is about to be destroyed.
RMM_COLD inline void stream_is_about_to_end(cudaStream_t stream) noexcept
{
  try {
    known_streams().end(stream);
  } catch (std::bad_alloc const&) {  // no stream was ever made known
  }
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
