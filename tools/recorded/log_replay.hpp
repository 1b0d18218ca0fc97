// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/recorded/log_parser.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rmm::recorded {

/// An event, and its stream.
struct logged_call {
  rmm::detail::event event;
  std::size_t stream;  ///< number of the stream in the history; special_stream for the predefined ones
};

inline constexpr std::size_t special_stream = std::numeric_limits<std::size_t>::max();  // default, legacy, per-thread

/// The events of a log, by the threads that made them.
///
/// Threads and streams are numbered from 0 in the order of their first events. A stream is identified by its device and
/// its id. If the log has no ids, it is identified by its handle, which stands for the newest stream with that handle.
class allocation_history {
 public:
  explicit allocation_history(std::vector<rmm::detail::event> events);

  struct stream {
    int device{};
    std::uintptr_t handle{};
    std::uint64_t id{};  ///< 0: unknown
    std::size_t calls{};
    bool has_successor{};  ///< a later stream has the same handle, so this one has ended
  };

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t thread_count() const { return by_thread_.size(); }
  [[nodiscard]] std::vector<logged_call> const& of_thread(std::size_t thread) const { return by_thread_[thread]; }

  /// Returns the number of the thread of an event.
  [[nodiscard]] std::size_t thread_of(std::size_t event) const { return thread_of_[event]; }

  /// Returns all streams of the log except the default, legacy and per-thread ones.
  [[nodiscard]] std::vector<stream> const& own_streams() const { return own_streams_; }

  /// In ascending order.
  [[nodiscard]] std::vector<int> const& devices() const { return devices_; }

  /// Returns the number of allocations that failed when the log was made.
  [[nodiscard]] std::size_t logged_failures() const { return logged_failures_; }

 private:
  [[nodiscard]] std::size_t stream_of(rmm::detail::event const& event);

  std::size_t size_;
  std::vector<std::uint32_t> thread_of_;
  std::vector<std::vector<logged_call>> by_thread_;
  std::vector<stream> own_streams_;
  std::vector<int> devices_;
  std::size_t logged_failures_{0};
  std::map<std::pair<int, std::uint64_t>, std::size_t> by_id_;
  std::map<std::pair<int, std::uintptr_t>, std::size_t> by_handle_;  // the newest stream with the handle
};

/// Memory that was not freed at the end of a pass.
struct leftovers {
  std::size_t allocations{};
  std::size_t bytes{};
};

/// A target of a replay: a resource on one device.
struct replay_target {
  int device{};
  rmm::mr::device_memory_resource* resource{};
  std::function<std::size_t()> reserved{};  ///< the bytes that the resource holds on the device now; empty if unknown
};

/// Memory at one moment of a replay, on all devices together.
struct replay_moment {
  std::size_t event{};
  std::uint64_t time_ns{};  ///< time in the log
  std::size_t live{};       ///< requested bytes of live allocations
  std::size_t reserved{};
};

/// The first event that could not be replayed.
struct replay_failure {
  rmm::detail::event event;
  std::string what;
  replay_moment before;
  std::size_t pass{};  ///< number of the pass, from 0
};

/// Replays a history any number of times. A thread for each thread of the log makes the same calls, in the order of the
/// log, on the same devices, and on a stream for each stream of the log. A stream lives from its first call to the end
/// of the pass, or to its last call if the log shows that it ended.
///
/// The replay ends if an allocation fails that succeeded in the log. Frees of unknown memory are skipped: their
/// allocations came before the log. Memory is freed with the size of its allocation. Memory that is live at the end of
/// a pass is freed then.
///
/// The first pass shows the memory that the resource needs. Later passes only measure time, because they begin with the
/// previous pass's memory, which may be fragmented.
class log_replay {
 public:
  /// Replays all events on the current device, regardless of the log's devices. The arguments have to outlive the replay.
  log_replay(allocation_history const& history, rmm::mr::device_memory_resource& resource);

  /// Replays on a target for each device of the history. Throws std::invalid_argument if one is missing.
  log_replay(allocation_history const& history, std::vector<replay_target> targets);

  ~log_replay();
  log_replay(log_replay const&)            = delete;
  log_replay& operator=(log_replay const&) = delete;

  /// Sets a function that each event's thread calls after the event, one call at a time. Set it before the replay begins.
  void observe(std::function<void(replay_moment const&)> what) { observer_ = std::move(what); }

  /// Replays the events of one thread of the log in one pass. Waits for earlier events of other threads. Returns false
  /// if the replay has ended early.
  bool play(std::size_t thread);

  // --- results; call these while no thread replays ---
  [[nodiscard]] std::optional<replay_failure> const& failure() const { return failure_; }
  [[nodiscard]] leftovers const& left() const { return left_; }               ///< after the first pass
  [[nodiscard]] std::size_t unknown_frees() const { return unknown_frees_; }  ///< skipped in all passes
  [[nodiscard]] replay_moment const& peak_live() const
  {
    return peak_live_;
  }  ///< when most was live, in the first pass
  [[nodiscard]] replay_moment const& peak_reserved() const { return peak_reserved_; }
  [[nodiscard]] bool knows_reserved() const { return knows_reserved_; }

  /// Returns the memory of the first pass, at about `points_of_curve` equidistant moments.
  [[nodiscard]] std::vector<replay_moment> const& curve() const { return curve_; }

  static constexpr std::size_t points_of_curve = 1000;

 private:
  struct allocation {
    void* ptr;
    std::size_t bytes;
    std::size_t target;
    std::size_t stream;
    std::uintptr_t handle;
  };

  /// The replay's stream for a stream of the log, while calls on it remain.
  struct stand_in {
    std::optional<rmm::cuda_stream> stream;
    std::size_t calls_left{};
  };

  class current_device;

  [[nodiscard]] std::size_t target_of(int device) const;
  [[nodiscard]] rmm::cuda_stream_view view_of(std::size_t stream, std::uintptr_t handle);
  void play_call(logged_call const& call, current_device& device);
  void allocate(logged_call const& call, std::size_t target);
  void deallocate(logged_call const& call, std::size_t target);
  [[nodiscard]] replay_moment moment_of(rmm::detail::event const& event) const;
  void measure(rmm::detail::event const& event);
  void end_pass(current_device& device);

  allocation_history const& history_;
  std::vector<replay_target> targets_;
  bool on_one_target_;  // regardless of the log's devices
  bool knows_reserved_;

  // Invariants, with mutex_ held:
  //  I1  next_ counts the events of all passes that were played; event number e is played when next_ % size is e
  //   I2  live_ has the allocations that are not yet freed in this pass, by device and address of the log
  std::mutex mutex_;
  std::vector<std::condition_variable> turns_;  // of each thread
  std::size_t next_{0};
  std::vector<std::size_t> passes_;  // of each thread
  std::vector<stand_in> streams_;
  std::map<std::pair<int, std::uintptr_t>, allocation> live_;
  std::size_t live_bytes_{0};
  replay_moment peak_live_;
  replay_moment peak_reserved_;
  std::vector<replay_moment> curve_;
  std::function<void(replay_moment const&)> observer_;
  std::size_t unknown_frees_{0};
  leftovers left_;
  std::optional<replay_failure> failure_;
};

}  // namespace rmm::recorded
