// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/pointer_bag.hpp>
#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <new>

namespace RMM_NAMESPACE {
namespace detail {

/// Someone who wants to know that a stream ends, while it can still be used.
struct stream_end_listener {
  /// Called by the thread that ends `stream`, before it does.
  void (*stream_ends)(stream_end_listener& self, cudaStream_t stream) noexcept = nullptr;
};

/// The streams whose life the library sees: those that rmm::cuda_stream makes, and those that a program announces.
///
/// A handle comes back from the runtime as soon as its stream is destroyed. Who keeps something by handle asks is_known()
/// once, keeps the value of ends(), and may trust the handle to name the same stream as long as ends() stays what it was.
///
/// Invariant: ends() has changed before a handle that was known can name another stream.
///
/// Thread-safe. One object a process; its layout is shared by all releases that use the anchor's name and number.
class stream_lifetimes {
 public:
  /// A stream begins. If there is no memory to note that, it stays unknown.
  void begin(cudaStream_t stream) noexcept
  {
    locked const lock{mutex_};
    static_cast<void>(known_.try_add(stream));
  }

  /// A stream is about to end. Tells the listeners, with the lock held: none of them goes meanwhile.
  void end(cudaStream_t stream) noexcept
  {
    locked const lock{mutex_};
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
    locked const lock{mutex_};
    return known_.contains(stream);
  }

  /// Calls visit(streams), where streams.contains(handle) tells whether a stream is known. None of them ends meanwhile.
  ///
  /// Requires that the caller holds no lock that a listener takes, and is not inside a cache: the thread that ends a stream
  /// holds this lock while it waits for those.
  template <class Visit>
  void with_known(Visit&& visit) const
  {
    locked const lock{mutex_};
    visit(known_);
  }

  /// As with_known(), for callers that may hold such a lock. Returns false, and has not called `visit`, if another thread
  /// holds the lock of the known streams.
  template <class Visit>
  [[nodiscard]] bool try_with_known(Visit&& visit) const
  {
    if (pthread_mutex_trylock(&mutex_) != 0) { return false; }
    visit(known_);
    pthread_mutex_unlock(&mutex_);
    return true;
  }

  /// How many known streams have ended.
  [[nodiscard]] std::atomic<std::uint64_t> const& ends() const noexcept { return ends_; }

  /// A number that no one else in the process gets, from whatever shared object they ask; never 0.
  [[nodiscard]] std::uint64_t new_number() noexcept { return 1 + numbers_.fetch_add(1, std::memory_order_relaxed); }

  /// Throws std::bad_alloc.
  void add(stream_end_listener& listener)
  {
    locked const lock{mutex_};
    if (!listeners_.try_add(&listener)) { throw std::bad_alloc{}; }
  }

  void remove(stream_end_listener& listener) noexcept
  {
    locked const lock{mutex_};
    listeners_.remove(&listener);
  }

 private:
  // As std::lock_guard with std::mutex, which are too much for a header that everyone includes.
  class locked {
   public:
    explicit locked(pthread_mutex_t& mutex) noexcept : mutex_{mutex} { pthread_mutex_lock(&mutex_); }
    ~locked() { pthread_mutex_unlock(&mutex_); }
    locked(locked const&)            = delete;
    locked& operator=(locked const&) = delete;

   private:
    pthread_mutex_t& mutex_;
  };

  std::atomic<std::uint64_t> ends_{0};
  std::atomic<std::uint64_t> numbers_{0};
  mutable pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pointer_bag known_;
  pointer_bag listeners_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE

RMM_PROCESS_WIDE_ANCHOR(rmm_stream_lifetimes_v1, 2);

namespace RMM_NAMESPACE {
namespace detail {

/// The one of this process; never destroyed.
[[nodiscard]] RMM_HIDDEN inline stream_lifetimes& known_streams()
{
  auto* found = static_cast<stream_lifetimes*>(rmm_stream_lifetimes_v1.load(std::memory_order_acquire));
  if (found == nullptr) {
    found = static_cast<stream_lifetimes*>(find_or_publish(
      rmm_stream_lifetimes_v1,
      2,
      [] { return static_cast<void*>(new stream_lifetimes); },
      [](void* spare) { delete static_cast<stream_lifetimes*>(spare); }));
  }
  return *found;
}

/// A stream was made; from now on it is known, unless there is no memory to note that.
RMM_COLD inline void stream_begins(cudaStream_t stream) noexcept
{
  try {
    known_streams().begin(stream);
  } catch (std::bad_alloc const&) {}
}

/// A stream is about to be destroyed.
RMM_COLD inline void stream_is_about_to_end(cudaStream_t stream) noexcept
{
  try {
    known_streams().end(stream);
  } catch (std::bad_alloc const&) {  // it was never noted
  }
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
