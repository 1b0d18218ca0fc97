// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/pointer_bag.hpp>
#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <new>

namespace RMM_NAMESPACE {
namespace detail {

/// That a stream captures, or will, and which memory the graph gets; see rmm::capture_scope.
struct capture_announcement {
  cudaStream_t stream{};
  std::uint64_t memory{};   // number of the graph memory
  std::uint64_t capture{};  // the last one that was seen on the stream; 0: none yet
  pthread_t thread{};       // the one that announced it
};

/// In whose order memory of graphs may be used again: after all work of the device, or after that of a stream.
struct graph_memory_end {
  std::uint64_t memory{};
  bool has_stream{};
  cudaStream_t stream{};
};

/// Someone who hands out memory, and wants to know when to ask for captures and what is over.
struct capture_listener {
  /// Called when the first capture is announced and when the last announcement ends.
  void (*captures_are_announced)(capture_listener& self, bool any) noexcept = nullptr;
  /// Called when no one has a handle of a graph memory any more.
  void (*graph_memory_ends)(capture_listener& self, graph_memory_end const& end) noexcept = nullptr;
};

/// What a capture that somebody asks for was announced with.
struct announced_memory {
  std::uint64_t memory{};   // 0: nobody announced it
  std::uint64_t capture{};  // 0: it was broken before anybody saw it
  bool is_shared{};         // whether another capture was announced with the same memory and is not over
};

/// The captures that the program announces, and the numbers of the memories of graphs.
///
/// Invariant: a listener that is called, or was when it was added, knows whether there is an announcement.
///
/// Thread-safe. Calls its listeners with its lock held, which is taken before theirs. One object a process; its layout is
/// shared by all releases that use the anchor's name and number.
class capture_announcements {
 public:
  /// Throws std::bad_alloc.
  void add(capture_announcement& announcement)
  {
    announcement.thread = pthread_self();
    locked const lock{mutex_};
    see_capture(announcement);
    if (!announcements_.try_add(&announcement)) { throw std::bad_alloc{}; }
    if (count_.fetch_add(1, std::memory_order_relaxed) == 0) { tell(true); }
  }

  void remove(capture_announcement& announcement) noexcept
  {
    locked const lock{mutex_};
    if (!announcements_.remove(&announcement)) { return; }
    if (count_.fetch_sub(1, std::memory_order_relaxed) == 1) { tell(false); }
  }

  /// Whether there is any announcement; without the lock.
  [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }

  /// The memory of the capture that `stream` is in, as `state` says. A stream that joined a capture is in it.
  [[nodiscard]] announced_memory find(cudaStream_t stream, capture_state const& state) noexcept
  {
    locked const lock{mutex_};
    auto const* found = find_seen(stream, state);
    if (found == nullptr) {
      for (void* const each : announcements_) { see_capture(*static_cast<capture_announcement*>(each)); }
      found = find_seen(stream, state);
    }
    if (found == nullptr) { return {}; }
    announced_memory result{found->memory, found->capture, false};
    for (void* const each : announcements_) {
      result.is_shared =
        result.is_shared || (each != found && static_cast<capture_announcement*>(each)->memory == found->memory);
    }
    return result;
  }

  /// A number that no other memory of graphs in the process gets; never 0.
  [[nodiscard]] std::uint64_t new_memory() noexcept { return 1 + memories_.fetch_add(1, std::memory_order_relaxed); }

  /// The last handle of a memory goes.
  void end_memory(graph_memory_end const& end) noexcept
  {
    locked const lock{mutex_};
    for (void* const each : listeners_) {
      auto& listener = *static_cast<capture_listener*>(each);
      listener.graph_memory_ends(listener, end);
    }
  }

  /// Throws std::bad_alloc.
  void add(capture_listener& listener)
  {
    locked const lock{mutex_};
    if (!listeners_.try_add(&listener)) { throw std::bad_alloc{}; }
    listener.captures_are_announced(listener, any());
  }

  void remove(capture_listener& listener) noexcept
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

  /// Notes which capture the stream is in. The handle of a thread's default stream names it in that thread only.
  static void see_capture(capture_announcement& announcement) noexcept
  {
    if (is_default_stream(announcement.stream) && pthread_equal(announcement.thread, pthread_self()) == 0) { return; }
    auto const state = query_capture(announcement.stream);
    if (state.status == capture_status::active) { announcement.capture = state.id; }
  }

  [[nodiscard]] capture_announcement const* find_seen(cudaStream_t stream, capture_state const& state) const noexcept
  {
    for (void* const each : announcements_) {
      auto const& announcement = *static_cast<capture_announcement*>(each);
      bool const is_it =
        state.status == capture_status::active ? announcement.capture == state.id : announcement.stream == stream;
      if (is_it) { return &announcement; }
    }
    return nullptr;
  }

  void tell(bool any) noexcept
  {
    for (void* const each : listeners_) {
      auto& listener = *static_cast<capture_listener*>(each);
      listener.captures_are_announced(listener, any);
    }
  }

  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> memories_{0};
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pointer_bag announcements_;
  pointer_bag listeners_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE

RMM_PROCESS_WIDE_ANCHOR(rmm_capture_announcements_v1, 3);

namespace RMM_NAMESPACE {
namespace detail {

/// Those of this process; never destroyed. Throws std::bad_alloc.
[[nodiscard]] RMM_HIDDEN inline capture_announcements& announced_captures()
{
  auto* found = static_cast<capture_announcements*>(rmm_capture_announcements_v1.load(std::memory_order_acquire));
  if (found == nullptr) {
    found = static_cast<capture_announcements*>(find_or_publish(
      rmm_capture_announcements_v1,
      3,
      [] { return static_cast<void*>(new capture_announcements); },
      [](void* spare) { delete static_cast<capture_announcements*>(spare); }));
  }
  return *found;
}

/// Whether one of the streams captures. The caller keeps them from ending.
template <class Streams>
[[nodiscard]] bool any_captures(Streams const& streams) noexcept
{
  for (void* const each : streams) {
    if (!query_capture(static_cast<cudaStream_t>(each)).is_none()) { return true; }
  }
  return false;
}

/// Whether waiting for the current device would break no capture that can be known: none is announced, no stream that the
/// library sees the life of is in one, and no blocking stream is.
///
/// Not seen: a capture of a non-blocking stream that the program made itself and did not announce. Requires what
/// stream_lifetimes::with_known() requires.
[[nodiscard]] RMM_COLD inline bool may_wait_for_device() noexcept
{
  if (announced_captures().any() || !query_capture(cudaStreamLegacy).is_none()) { return false; }
  bool captures = false;
  known_streams().with_known([&](auto const& streams) { captures = any_captures(streams); });
  return !captures;
}

/// As may_wait_for_device(), for callers that hold a lock of their own. Returns false also if another thread holds the lock of
/// the known streams at this moment, so that nothing is known.
[[nodiscard]] RMM_COLD inline bool is_known_to_allow_waiting() noexcept
{
  if (announced_captures().any() || !query_capture(cudaStreamLegacy).is_none()) { return false; }
  bool captures    = false;
  bool const known = known_streams().try_with_known([&](auto const& streams) { captures = any_captures(streams); });
  return known && !captures;
}

/// Waits on the host for all work of the current device, unless that would break a capture. Returns whether it is done.
[[nodiscard]] RMM_COLD inline bool try_wait_for_device() noexcept
{
  return may_wait_for_device() && try_synchronize_device();
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
