// SPDX-License-Identifier: Apache-2.0
//
// The recovery ladder over a scripted heap, without a device and without a pool.

#include <rmm/mr/detail/recovery_ladder.hpp>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/recovery.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace {

using rmm::recovery_order;
using rmm::recovery_rung;
using rmm::mr::detail::failure_reason;
using rmm::mr::detail::recovery_attempt;
using rmm::mr::detail::recovery_ladder;
using rmm::mr::detail::recovery_rungs;

int memory{};

/// Records each call in `calls`, and serves in the call named by `serving`.
struct scripted {
  std::string calls;
  std::string serving{"nothing"};

  [[nodiscard]] void* call(std::string const& name)
  {
    calls += (calls.empty() ? "" : " ") + name;
    return name == serving ? &memory : nullptr;
  }
};

struct scripted_heap {
  enum class reclaiming { before_growth, at_last };
  scripted& script;

  [[nodiscard]] void* try_allocate(std::size_t, rmm::cuda_stream_view) { return script.call("free"); }
  [[nodiscard]] void* allocate_reclaimed(std::size_t, rmm::cuda_stream_view, reclaiming how = reclaiming::at_last)
  {
    return script.call(how == reclaiming::at_last ? "reclaim-at-last" : "reclaim");
  }
  void fence_live_streams() { static_cast<void>(script.call("mark")); }
  [[nodiscard]] bool wait_for_all() { return script.call("wait") == nullptr; }
  [[nodiscard]] static int home_device() { return -1; }
  [[nodiscard]] static rmm::heap_figures figures() { return {}; }
};

struct scripted_rungs final : recovery_rungs {
  explicit scripted_rungs(scripted& script) : script_{script} {}
  void* try_grow(std::size_t, rmm::cuda_stream_view, failure_reason& reason) override
  {
    reason = "grow was not to serve";
    return script_.call("grow");
  }
  void* try_remap(std::size_t, rmm::cuda_stream_view, failure_reason&) override { return script_.call("remap"); }
  void* try_trim(std::size_t, rmm::cuda_stream_view, failure_reason&) override { return script_.call("trim"); }
  bool could_remap_idle(std::size_t, rmm::cuda_stream_view) override { return could_idle; }
  bool could_trim_idle(std::size_t, rmm::cuda_stream_view) override { return could_idle; }
  void expect_not_suspended() const override
  {
    if (suspended) { throw rmm::logic_error{"suspended"}; }
  }

  bool could_idle{false};
  bool suspended{false};

 private:
  scripted& script_;
};

struct RecoveryLadder : ::testing::Test {
  scripted script;
  scripted_heap heap{script};
  scripted_rungs rungs{script};

  [[nodiscard]] void* climb(recovery_ladder& ladder, bool may_call_back = true)
  {
    recovery_attempt attempt{1000};
    return ladder.climb(heap, rungs, attempt, 1024, may_call_back);
  }
};

TEST_F(RecoveryLadder, ServesFromFreeMemoryWithoutARung)
{
  recovery_ladder ladder{recovery_rung::grow};
  script.serving = "free";
  EXPECT_EQ(climb(ladder), &memory);
  EXPECT_EQ(script.calls, "free");
  EXPECT_EQ(ladder.figures()[recovery_rung::grow].tried, 0U);
}

/// The caller has searched before. What others did meanwhile counts only if they climbed.
TEST_F(RecoveryLadder, SearchesAgainOnlyIfAnotherHasClimbedMeanwhile)
{
  recovery_ladder ladder{recovery_rung::grow};
  recovery_attempt attempt{1000};
  attempt.seen_turns = ladder.turns();
  EXPECT_EQ(ladder.climb(heap, rungs, attempt, 1024), nullptr);
  EXPECT_EQ(script.calls, "grow");
  script.calls.clear();
  EXPECT_EQ(ladder.climb(heap, rungs, attempt, 1024), nullptr);
  EXPECT_EQ(script.calls, "free grow");
}

TEST_F(RecoveryLadder, CountsTheTurnOfAClimbThatThrowsOrCallsBack)
{
  recovery_ladder ladder{recovery_rung::callback};
  auto const before = ladder.turns();
  auto inside       = before;
  ladder.set_callback([&](std::size_t, void*) { return (inside = ladder.turns()) == before; }, nullptr);
  EXPECT_EQ(climb(ladder), nullptr);
  EXPECT_NE(inside, before);
  auto const after = ladder.turns();
  EXPECT_NE(after, inside);
  rungs.suspended = true;
  EXPECT_THROW(static_cast<void>(climb(ladder)), rmm::logic_error);
  EXPECT_NE(ladder.turns(), after);
}

TEST_F(RecoveryLadder, ClimbsInItsOrderToTheRungThatServes)
{
  recovery_ladder ladder{{recovery_rung::reclaim, recovery_rung::grow, recovery_rung::trim, recovery_rung::remap}};
  script.serving = "trim";
  EXPECT_EQ(climb(ladder), &memory);
  EXPECT_EQ(script.calls, "free reclaim grow trim");
  auto const now = ladder.figures();
  EXPECT_EQ(now[recovery_rung::grow].tried, 1U);
  EXPECT_EQ(now[recovery_rung::grow].served, 0U);
  EXPECT_EQ(now[recovery_rung::trim].served, 1U);
  EXPECT_EQ(now[recovery_rung::remap].tried, 0U);
}

TEST_F(RecoveryLadder, WaitsIfThatLetsOtherRungsServe)
{
  recovery_ladder ladder{{recovery_rung::synchronize, recovery_rung::trim, recovery_rung::remap}};
  rungs.could_idle = true;
  EXPECT_EQ(climb(ladder), nullptr);
  EXPECT_EQ(script.calls, "free reclaim-at-last wait trim mark remap wait remap trim remap");
  ladder.set_order(recovery_rung::synchronize, rungs);
  script.calls.clear();
  EXPECT_EQ(climb(ladder), nullptr);
  EXPECT_EQ(script.calls, "free reclaim-at-last");
}

TEST_F(RecoveryLadder, ReportsTheTriesOfAnAttempt)
{
  recovery_ladder ladder{{recovery_rung::grow, recovery_rung::callback}};
  int calls = 0;
  ladder.set_callback([&](std::size_t bytes, void*) { return bytes == 1000 && ++calls < 3; }, nullptr);
  recovery_attempt attempt{1000};
  EXPECT_EQ(ladder.climb(heap, rungs, attempt, 1024), nullptr);
  auto const report = rmm::mr::detail::report_of(attempt, heap);
  EXPECT_EQ(report.tries_of(recovery_rung::grow), 3U);
  EXPECT_EQ(report.tries_of(recovery_rung::callback), 3U);
  EXPECT_EQ(report.order.size(), 2U);
  EXPECT_EQ(report.asked_bytes, 1000U);
  EXPECT_EQ(report.reason, "grow was not to serve");
  EXPECT_EQ(ladder.figures().failures, 0U);
  EXPECT_THROW(ladder.throw_exhausted(attempt, "Maximum pool size exceeded", [&] { return report; }),
               rmm::out_of_memory);
  EXPECT_EQ(ladder.figures().failures, 1U);
}

TEST_F(RecoveryLadder, ReportsThatNothingFitsIfNoRungHasAReason)
{
  recovery_ladder ladder{recovery_rung::trim};
  recovery_attempt attempt{1000};
  EXPECT_EQ(ladder.climb(heap, rungs, attempt, 1024), nullptr);
  EXPECT_EQ(attempt.reason.text, "no free part of the pool is large enough");
}

TEST_F(RecoveryLadder, SkipsTheCallbackUnlessItMayCallBack)
{
  recovery_ladder ladder{recovery_rung::callback};
  int calls = 0;
  ladder.set_callback([&](std::size_t, void*) { return ++calls < 0; }, nullptr);
  EXPECT_EQ(climb(ladder, false), nullptr);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(climb(ladder), nullptr);
  EXPECT_EQ(calls, 1);
  ladder.set_callback(std::function<bool(std::size_t, void*)>{}, nullptr);
  EXPECT_EQ(climb(ladder), nullptr);
  EXPECT_EQ(ladder.figures()[recovery_rung::callback].tried, 1U);
}

TEST_F(RecoveryLadder, OfAPartSharesOrderAndCallbackButNotCounters)
{
  recovery_ladder whole{{recovery_rung::grow, recovery_rung::callback}};
  recovery_ladder part{recovery_rung::trim};
  part.join(whole);
  int calls = 0;
  whole.set_callback(
    [&](std::size_t, void*) {
      ++calls;
      EXPECT_EQ(climb(whole), nullptr);  // must not be called again
      return false;
    },
    nullptr);
  EXPECT_EQ(climb(part), nullptr);
  EXPECT_EQ(script.calls, "free grow free grow");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(part.figures()[recovery_rung::grow].tried, 1U);
  EXPECT_EQ(whole.figures()[recovery_rung::grow].tried, 1U);
  EXPECT_EQ(part.figures()[recovery_rung::callback].tried, 1U);
  EXPECT_EQ(whole.figures()[recovery_rung::callback].tried, 0U);
  EXPECT_EQ(part.order().size(), 2U);
}

TEST_F(RecoveryLadder, RefusesToClimbWhileThePoolIsSuspended)
{
  recovery_ladder ladder{{recovery_rung::callback, recovery_rung::grow}};
  ladder.set_callback(
    [&](std::size_t, void*) {
      rungs.suspended = true;
      return false;
    },
    nullptr);
  EXPECT_THROW(static_cast<void>(climb(ladder)), rmm::logic_error);
  EXPECT_EQ(script.calls, "free");
  EXPECT_THROW(static_cast<void>(climb(ladder)), rmm::logic_error);
  EXPECT_EQ(script.calls, "free");
}

TEST_F(RecoveryLadder, DestroysAReplacedCallbackOutsideOfItsMutex)
{
  recovery_ladder ladder{recovery_rung::callback};
  bool order_was_read = false;
  auto const keeps = [](std::shared_ptr<void> held) { return [held](std::size_t, void*) { return held == nullptr; }; };
  ladder.set_callback(
    keeps(std::shared_ptr<void>{&memory, [&](void*) { order_was_read = ladder.order().size() == 1; }}), nullptr);
  EXPECT_FALSE(order_was_read);
  ladder.set_callback(keeps(nullptr), nullptr);
  EXPECT_TRUE(order_was_read);
}

}  // namespace
