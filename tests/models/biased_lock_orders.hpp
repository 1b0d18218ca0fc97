// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

/// The memory orders of biased_lock that are stronger than systems with membarrier need, in the form of
/// weak_memory::unnoticed_weakenings(). Programs that need all of its promises notice all others.
[[nodiscard]] inline std::set<std::string> orders_not_needed_beside_barrier()
{
  // The other systems need these orders. The exception are the loads of state_.
  std::string const first_check  = "if (state_.load(std::memory_order_seq_cst) == 0) { return true; }: ";
  std::string const second_check = "if ((state_.load(std::memory_order_seq_cst) & kept_out) == 0) { return true; }: ";
  std::string const fence =
    "if constexpr (RMM_DETAIL_THREAD_SANITIZER == 0) { std::atomic_thread_fence(std::memory_order_seq_cst); }: ";
  std::string const keep_out =
    "void begin_keeping_out() noexcept { state_.fetch_or(kept_out, std::memory_order_seq_cst); }: ";
  std::string const wait = "for (int yields = 0; inside_.load(std::memory_order_seq_cst); ++yields) {: ";
  std::set<std::string> all{
    first_check + "seq_cst -> acquire", second_check + "seq_cst -> acquire", wait + "seq_cst -> acquire"};
  for (std::string const to : {"acq_rel", "acquire", "release", "relaxed"}) {
    all.insert(fence + "seq_cst -> " + to);
    all.insert(keep_out + "seq_cst -> " + to);
  }
  return all;
}
