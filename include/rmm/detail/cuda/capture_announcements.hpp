// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owning_process.hpp>
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

/// An announcement that a stream captures or will capture, and of the memory for the graph; see rmm::capture_scope.
struct capture_announcement {
  cudaStream_t stream{};
  std::uint64_t memory{};   // number of the graph memory
  std::uint64_t capture{};  // id of the last capture that was seen on the stream; 0 before the first
  pthread_t thread{};       // the thread that made the announcement
};

/// The end of a graph memory. It may be reused in the order of a stream, or, without a stream, after all work of the device.
struct graph_memory_end {
  std::uint64_t memory{};
  bool has_stream{};
  cudaStream_t stream{};
};

/// The callbacks of a pool, which needs to know whether captures are announced, and which graph memories have ended.
struct capture_listener {
  /// Called with true when the first capture is announced, and with false when the last announcement ends.
  void (*captures_are_announced)(capture_listener& self, bool any) noexcept = nullptr;
  /// Called when the last handle of a graph memory is gone.
  void (*graph_memory_ends)(capture_listener& self, graph_memory_end const& end) noexcept = nullptr;
};

/// The announcement that belongs to a capture.
struct announced_memory {
  std::uint64_t memory{};   // 0 if the capture was not announced
  std::uint64_t capture{};  // 0 if the capture was invalidated before its id was seen
  bool is_shared{};         // whether another announcement names the same memory
};

/// The announced captures of the process, and the numbers of graph memories.
///
/// Invariant: each listener has been told whether announcements exist: when it was added, and at each change.
///
/// Order: the mutex guards the announcements and the listeners. count_ changes with the mutex held, and any() reads it without. It guards
/// no data: a call that happens after add() reads the count of that moment or a later one, also relaxed. Numbers from memories_ only have
/// to differ, and updates of one variable do.
///
/// In a forked child of a process that used the object, nothing is announced: a thread of the parent may have held the lock.
///
/// Thread-safe. Calls the listeners with its lock held; their locks are taken after it. One object per process; releases of the library
/// that use one name and number of the anchor share the layout.
class capture_announcements {
 public:
  /// Throws std::bad_alloc.
  void add(capture_announcement& announcement)
  {
    if (is_of_a_parent()) { return; }
    announcement.thread = pthread_self();
    mutex_lock const lock{mutex_};
    see_capture(announcement);
    if (!announcements_.try_add(&announcement)) { throw std::bad_alloc{}; }
    if (count_.fetch_add(1, std::memory_order_relaxed) == 0) { tell(true); }
  }

  void remove(capture_announcement& announcement) noexcept
  {
    if (is_of_a_parent()) { return; }
    mutex_lock const lock{mutex_};
    if (!announcements_.remove(&announcement)) { return; }
    if (count_.fetch_sub(1, std::memory_order_relaxed) == 1) { tell(false); }
  }

  /// Whether any announcement exists. Does not lock.
  [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }

  /// Returns the announcement of the capture that `stream` is in; `state` is that of the stream. The stream may have joined it.
  [[nodiscard]] announced_memory find(cudaStream_t stream, capture_state const& state) noexcept
  {
    if (is_of_a_parent()) { return {}; }
    mutex_lock const lock{mutex_};
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

  /// Returns a number for a new graph memory; it is unique in the process, and not 0.
  [[nodiscard]] std::uint64_t new_memory() noexcept { return 1 + memories_.fetch_add(1, std::memory_order_relaxed); }

  /// Tells the listeners that the last handle of a graph memory is gone.
  void end_memory(graph_memory_end const& end) noexcept
  {
    if (is_of_a_parent()) { return; }
    mutex_lock const lock{mutex_};
    for (void* const each : listeners_) {
      auto& listener = *static_cast<capture_listener*>(each);
      listener.graph_memory_ends(listener, end);
    }
  }

  /// Throws std::bad_alloc.
  void add(capture_listener& listener)
  {
    if (is_of_a_parent()) { return; }
    mutex_lock const lock{mutex_};
    if (!listeners_.try_add(&listener)) { throw std::bad_alloc{}; }
    listener.captures_are_announced(listener, any());
  }

  void remove(capture_listener& listener) noexcept
  {
    if (is_of_a_parent()) { return; }
    mutex_lock const lock{mutex_};
    listeners_.remove(&listener);
  }

 private:
  [[nodiscard]] static bool is_of_a_parent() noexcept { return first_user<capture_announcements>::is_a_parent(); }

  /// Records which capture the announced stream is in. The handle of a thread's default stream is only valid in that thread.
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
      bool const matches =
        state.status == capture_status::active ? announcement.capture == state.id : announcement.stream == stream;
      if (matches) { return &announcement; }
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
  mutex mutex_;
  pointer_bag announcements_;
  pointer_bag listeners_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE

RMM_PROCESS_WIDE_ANCHOR(rmm_capture_announcements_v1, 3);

namespace RMM_NAMESPACE {
namespace detail {

/// Returns the object of this process, which is never destroyed. Throws std::bad_alloc.
[[nodiscard]] RMM_HIDDEN inline capture_announcements& announced_captures()
{
  first_user<capture_announcements>::note_use();
  return process_wide_object<capture_announcements>(
    rmm_capture_announcements_v1, 3, [] { return new capture_announcements; });
}

/// Whether one of the streams captures. The caller makes sure that the streams exist.
template <class Streams>
[[nodiscard]] bool any_captures(Streams const& streams) noexcept
{
  for (void* const each : streams) {
    if (!query_capture(static_cast<cudaStream_t>(each)).is_none()) { return true; }
  }
  return false;
}

/// Whether the host may wait for the current device without invalidating a capture that the library can see: no capture is announced,
/// no known stream (stream_lifetimes) captures, and no blocking stream does.
///
/// The library cannot see a capture that is not announced, on a non-blocking stream that the program created with CUDA. Requires what
/// stream_lifetimes::with_known() requires.
[[nodiscard]] RMM_COLD inline bool may_wait_for_device() noexcept
{
  if (announced_captures().any() || !query_capture(cudaStreamLegacy).is_none()) { return false; }
  bool captures = false;
  known_streams().with_known([&](auto const& streams) { captures = any_captures(streams); });
  return !captures;
}

/// As may_wait_for_device(), for callers that hold a lock. Also returns false if another thread holds the lock of the known streams,
/// because the answer is unknown then.
[[nodiscard]] RMM_COLD inline bool is_known_to_allow_waiting() noexcept
{
  if (announced_captures().any() || !query_capture(cudaStreamLegacy).is_none()) { return false; }
  bool captures    = false;
  bool const known = known_streams().try_with_known([&](auto const& streams) { captures = any_captures(streams); });
  return known && !captures;
}

/// Waits on the host for all work of the current device, unless that would invalidate a capture. Returns whether the work is done.
[[nodiscard]] RMM_COLD inline bool try_wait_for_device() noexcept
{
  return may_wait_for_device() && try_synchronize_device();
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
