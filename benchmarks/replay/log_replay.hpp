// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmarks/utilities/log_parser.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace rmm::benchmarks {

/// The events of a log, by the threads that made them.
///
/// Threads are numbered from 0 in the order of their first events, and so are the events of all together.
class allocation_history {
 public:
  explicit allocation_history(std::vector<rmm::detail::event> events);

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t thread_count() const { return by_thread_.size(); }
  [[nodiscard]] std::vector<rmm::detail::event> const& of_thread(std::size_t thread) const
  {
    return by_thread_[thread];
  }

  /// All streams of the log, but those that every program has: default, legacy and per-thread.
  [[nodiscard]] std::vector<std::uintptr_t> const& own_streams() const { return own_streams_; }

 private:
  std::size_t size_;
  std::vector<std::vector<rmm::detail::event>> by_thread_;
  std::vector<std::uintptr_t> own_streams_;
};

/// The first event that could not be replayed.
struct replay_failure {
  rmm::detail::event event;
  std::string what;
};

/// What a pass of a replay left at its end.
struct leftovers {
  std::size_t allocations{};
  std::size_t bytes{};
};

/// Replays a history on a resource, any number of times: each thread of the log is played by a thread, which makes the same
/// calls on streams that stand for those of the log; in the order of the log.
///
/// An allocation that fails although that of the log did not ends the replay. A free of what the log never allocated is left
/// out: the log began after that allocation. What is not freed at the end of a pass is freed then.
class log_replay {
 public:
  /// Makes the streams, on the current device. Both arguments have to outlive the replay. Throws cuda_error.
  log_replay(allocation_history const& history, rmm::mr::device_memory_resource& resource);
  ~log_replay();
  log_replay(log_replay const&)            = delete;
  log_replay& operator=(log_replay const&) = delete;

  /// Plays the part of one thread of the log in one pass. Waits for the other threads where their events come first. Returns
  /// false if the replay has ended early.
  bool play(std::size_t thread);

  /// The rest is for when no thread plays.
  [[nodiscard]] std::optional<replay_failure> const& failure() const { return failure_; }
  [[nodiscard]] leftovers const& left() const { return left_; }               ///< by the last pass
  [[nodiscard]] std::size_t unknown_frees() const { return unknown_frees_; }  ///< left out in all passes
  [[nodiscard]] std::size_t peak_bytes() const { return peak_bytes_; }        ///< most bytes live at a time

 private:
  struct allocation {
    void* ptr;
    std::size_t bytes;
    std::uintptr_t stream;
  };

  void play_event(rmm::detail::event const& event);
  void allocate(rmm::detail::event const& event);
  void deallocate(rmm::detail::event const& event);
  void end_pass();
  [[nodiscard]] rmm::cuda_stream_view stream_of(std::uintptr_t logged) const;

  allocation_history const& history_;
  rmm::mr::device_memory_resource& resource_;
  std::map<std::uintptr_t, std::unique_ptr<rmm::cuda_stream>> streams_;

  // Invariants, with mutex_ held:
  //  I1  next_ counts the events of all passes that were played; event number e is played when next_ % size is e
  //  I2  live_ has what was allocated and not yet freed in this pass, by the address in the log
  std::mutex mutex_;
  std::condition_variable turn_;
  std::size_t next_{0};
  std::vector<std::size_t> passes_;  // of each thread
  std::map<std::uintptr_t, allocation> live_;
  std::size_t live_bytes_{0};
  std::size_t peak_bytes_{0};
  std::size_t unknown_frees_{0};
  leftovers left_;
  std::optional<replay_failure> failure_;
};

}  // namespace rmm::benchmarks
