// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ledger.hpp"
#include "mode.hpp"

#include <rmm/detail/export.hpp>

#include <array>
#include <atomic>
#include <cstdint>

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {

/// The choices and counts of this process. Made by the first call, and never destroyed, because programs allocate and free until they end.
///
/// Order: the ledger has its own lock. Answers guard no data: two threads may ask one question, and store the same answer. A thread that
/// asks whether a library has RMM got the library's number from a look-up, which has acquired that (known_code.hpp). is_child is written
/// while a child has one thread. Of several updates of has_complained_, one reads false.
class process {
 public:
  [[nodiscard]] static process& get();

  mode const chosen;
  ledger known;

  /// The library number that the memory of pools for routed allocations counts for.
  library_id const pool;

  /// Whether fork() made this process. Its parent reports the earlier allocations.
  std::atomic<bool> is_child{false};

  /// Whether a library is not allowed to allocate memory of a device.
  [[nodiscard]] bool refuses(library_id library);

  /// Whether allocations of a library are routed.
  [[nodiscard]] bool routes(library_id library);

  /// Whether a library belongs to RMM or contains RMM.
  [[nodiscard]] bool has_rmm(library_id library) const;

  /// Prints what is wrong with RMM_AUDIT, once.
  void complain() noexcept;

 private:
  process();

  /// Returns the answer to a question about a library's name. Asks each question once, because names do not change.
  template <class Question>
  [[nodiscard]] bool answer(std::array<std::atomic<std::int8_t>, ledger::most_libraries>& answers,
                            library_id library,
                            Question&& ask);

  std::array<std::atomic<std::int8_t>, ledger::most_libraries> refused_{};
  std::array<std::atomic<std::int8_t>, ledger::most_libraries> routed_{};
  std::atomic<bool> has_complained_{false};
};

/// The state of a thread.
struct thread_state {
  int calls;            // calls of functions of this library that have not returned
  int pool_calls;       // 1 in a call of a resource that memory is routed to
  int unrouted_scopes;  // scopes in which the program's resources take memory for themselves
};
[[nodiscard]] thread_state& this_thread() noexcept;

/// A scope of a call of this library, which counts its allocation. Calls of the driver in the scope are not counted.
class counted_call {
 public:
  counted_call() noexcept : thread_{this_thread()} { ++thread_.calls; }
  ~counted_call() { --thread_.calls; }
  counted_call(counted_call const&)            = delete;
  counted_call& operator=(counted_call const&) = delete;

 private:
  thread_state& thread_;
};

/// A scope of a call of a resource that memory is routed to. Memory that the resource takes from the driver in this
/// scope counts as its own and is not routed.
class pool_call {
 public:
  pool_call() noexcept : thread_{this_thread()}, before_{thread_} { thread_ = {0, 1, 0}; }
  ~pool_call() { thread_ = before_; }
  pool_call(pool_call const&)            = delete;
  pool_call& operator=(pool_call const&) = delete;

 private:
  thread_state& thread_;
  thread_state before_;
};

/// Prints a line `librmm_audit: ...` on standard error, cut if it is too long. Allocates no memory.
[[gnu::format(printf, 1, 2)]] void say(char const* format, ...) noexcept;

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
