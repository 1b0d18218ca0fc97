// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/audit_library.hpp>
#include <rmm/detail/export.hpp>

#include <atomic>
#include <chrono>
#include <thread>

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {

/// A source of memory in place of the driver's, as an element of a list. Never destroyed.
///
/// Invariant: once withdraw() and wait_for_calls() have returned, none of its functions is called.
///
/// Order: Dekker's argument. A call updates calls_ and then reads is_withdrawn_. A thread that withdraws writes is_withdrawn_ and then reads
/// calls_. All four are seq_cst, so one of the reads comes after both writes in their single order: the call does not begin, or it is
/// waited for. end_call() releases what the call did, and wait_for_calls() acquires it. has_served guards no data; a child of fork() finds
/// what the calling thread stored before the call.
class source {
 public:
  explicit source(rmm::detail::audit_source const& functions) : call{functions} {}

  rmm::detail::audit_source const call;
  source* older{nullptr};
  int number{0};
  std::atomic<bool> has_served{false};

  /// Begins a call of its functions. Returns false if the source was withdrawn.
  [[nodiscard]] bool try_begin_call() noexcept
  {
    calls_.fetch_add(1);
    if (!is_withdrawn_.load()) { return true; }
    end_call();
    return false;
  }
  void end_call() noexcept { calls_.fetch_sub(1); }

  [[nodiscard]] bool is_withdrawn() const noexcept { return is_withdrawn_.load(); }
  void withdraw() noexcept { is_withdrawn_.store(true); }

  void wait_for_calls() const noexcept
  {
    while (calls_.load() != 0) { std::this_thread::sleep_for(std::chrono::microseconds{50}); }
  }

  /// For a child of fork(), in which no calls are in progress, and neither CUDA nor the parent's allocations can be used.
  void continue_in_child() noexcept
  {
    calls_.store(0);
    if (has_served.load()) { withdraw(); }
  }

 private:
  std::atomic<int> calls_{0};  // in progress
  std::atomic<bool> is_withdrawn_{false};
};

/// A call of a source's functions.
class source_call {
 public:
  explicit source_call(source& called) noexcept : called_{called}, has_begun_{called.try_begin_call()} {}
  ~source_call()
  {
    if (has_begun_) { called_.end_call(); }
  }
  source_call(source_call const&)            = delete;
  source_call& operator=(source_call const&) = delete;

  [[nodiscard]] bool has_begun() const noexcept { return has_begun_; }

 private:
  source& called_;
  bool has_begun_;
};

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
