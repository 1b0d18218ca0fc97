// SPDX-License-Identifier: Apache-2.0
//
// The recovery ladder of pools. For each rung there is a machine on which only that rung serves the allocation.

#include "../support/counting_upstream.hpp"
#include "../support/simulated_stream.hpp"
#include "../support/worker.hpp"

#include <rmm/capture_scope.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/mr/detail/block_source.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/failure_callback_t.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/recovery.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::recovery_order;
using rmm::recovery_rung;
using pool = rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource>;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

/// Frees `bytes` bytes on foreign streams and destroys the streams. Other streams can get this memory only after a device
/// synchronisation. Uses small parts, because larger ones are fenced immediately.
void leave_behind(rmm::mr::device_memory_resource& mr, std::size_t bytes)
{
  constexpr std::size_t part = 2 * KiB;
  struct use {
    cudaStream_t passing{};
    void* first{};
    void* second{};
  };
  std::vector<use> uses(bytes / (2 * part));
  for (auto& [passing, first, second] : uses) {
    ASSERT_EQ(cudaStreamCreate(&passing), cudaSuccess);
    first  = mr.allocate(part, rmm::cuda_stream_view{passing});
    second = mr.allocate(part, rmm::cuda_stream_view{passing});
  }
  for (auto const& [passing, first, second] : uses) {
    mr.deallocate(first, part, rmm::cuda_stream_view{passing});   // gets an event immediately
    mr.deallocate(second, part, rmm::cuda_stream_view{passing});  // gets no event
    ASSERT_EQ(cudaStreamDestroy(passing), cudaSuccess);
  }
}

/// Returns the rungs that were tried and how often, in the order of the enumeration: "reclaim 1 (served 1)".
std::string rungs_of(rmm::heap_figures const& figures)
{
  std::string text;
  for (std::size_t i = 0; i < rmm::recovery_rung_count; ++i) {
    auto const rung               = static_cast<recovery_rung>(i);
    rmm::rung_figures const& each = figures.recovery[rung];
    if (each.tried == 0) { continue; }
    text += (text.empty() ? "" : ", ") + std::string{rmm::name_of(rung)} + " " + std::to_string(each.tried);
    if (each.served != 0) { text += " (served " + std::to_string(each.served) + ")"; }
  }
  return text;
}

struct Recovery : SimulatedStream {
  rmm::test::counting_upstream upstream;
};

TEST_F(Recovery, TriesNothingWhileThereIsFreeMemory)
{
  pool mr{&upstream, MiB};
  for (int i = 0; i < 100; ++i) { mr.deallocate(mr.allocate(MiB, stream), MiB, stream); }
  EXPECT_EQ(rungs_of(mr.figures()), "");
}

TEST_F(Recovery, ReclaimsMuchMemoryOfEndedStreamsBeforeItGrows)
{
  pool mr{&upstream, MiB};
  leave_behind(mr, MiB);
  void* const ptr = mr.allocate(MiB, stream);
  EXPECT_EQ(rungs_of(mr.figures()), "reclaim 1 (served 1)");
  EXPECT_EQ(upstream.asked().size(), 1U);
  mr.deallocate(ptr, MiB, stream);
}

TEST_F(Recovery, WaitsForLittleMemoryInsteadOfGrowing)
{
  pool mr{&upstream, MiB};
  void* const rest = mr.allocate(MiB - 64 * KiB, stream);
  leave_behind(mr, 64 * KiB);
  void* const ptr = mr.allocate(64 * KiB, stream);
  EXPECT_EQ(rungs_of(mr.figures()), "reclaim 1 (served 1)");
  mr.deallocate(ptr, 64 * KiB, stream);
  mr.deallocate(rest, MiB - 64 * KiB, stream);
}

TEST_F(Recovery, WaitsForLittleWhereItCannotGrow)
{
  pool mr{&upstream, MiB, MiB};
  void* const rest = mr.allocate(MiB - 64 * KiB, stream);
  leave_behind(mr, 64 * KiB);
  void* const ptr = mr.allocate(64 * KiB, stream);
  EXPECT_EQ(rungs_of(mr.figures()), "reclaim 1 (served 1)");
  EXPECT_EQ(mr.figures().device_synchronizations, 1U);
  mr.deallocate(ptr, 64 * KiB, stream);
  mr.deallocate(rest, MiB - 64 * KiB, stream);
}

TEST_F(Recovery, AsksTheCallbackLast)
{
  pool mr{&upstream, MiB, MiB};
  void* held = mr.allocate(MiB, stream);
  mr.set_failure_callback([&](std::size_t, void*) {
    if (held == nullptr) { return false; }
    mr.deallocate(std::exchange(held, nullptr), MiB, stream);
    return true;
  });
  void* const ptr = mr.allocate(64 * KiB, stream);
  EXPECT_EQ(rungs_of(mr.figures()), "reclaim 1, grow 1, trim 1, synchronize 1, callback 1 (served 1)");
  EXPECT_EQ(mr.figures().recovery.failures, 0U);
  mr.deallocate(ptr, 64 * KiB, stream);
}

TEST_F(Recovery, CapturesOfACallbackMayUseThePoolWhenTheCallbackReplacesItself)
{
  pool mr{&upstream, MiB, MiB};
  struct user {
    pool* used{};
    int* uses{};
    ~user()
    {
      static_cast<void>(used->get_recovery_order());
      ++*uses;
    }
  };
  int uses    = 0;
  auto holder = std::shared_ptr<user>{new user{&mr, &uses}};
  mr.set_failure_callback([&mr, holder](std::size_t, void*) {
    mr.set_failure_callback(nullptr);
    return false;
  });
  holder.reset();
  EXPECT_EQ(uses, 0);
  EXPECT_THROW(static_cast<void>(mr.allocate(2 * MiB, stream)), rmm::out_of_memory);  // must not wait for itself
  EXPECT_EQ(uses, 1);
}

TEST_F(Recovery, ClimbsAllRungsAgainAfterACallback)
{
  pool mr{&upstream, MiB};
  void* const held = mr.allocate(MiB, stream);
  upstream.refuse_above(0);
  mr.set_failure_callback([&](std::size_t, void*) {
    upstream.refuse_above(MiB);  // upstream has no memory
    return true;
  });
  void* const ptr = mr.allocate(64 * KiB, stream);
  EXPECT_EQ(rungs_of(mr.figures()), "reclaim 2, grow 2 (served 1), synchronize 1, callback 1");
  mr.deallocate(ptr, 64 * KiB, stream);
  mr.deallocate(held, MiB, stream);
}

TEST_F(Recovery, FailsWhenTheCallbackSaysNo)
{
  pool mr{&upstream, 0, 0};
  std::vector<std::pair<std::size_t, void*>> calls;
  int argument{};
  auto const callback = [&](std::size_t bytes, void* given) {
    calls.emplace_back(bytes, given);
    return calls.size() < 3;
  };
  mr.set_failure_callback(callback, &argument);
  EXPECT_THROW(static_cast<void>(mr.allocate(1000, stream)), rmm::out_of_memory);
  EXPECT_EQ(calls, (std::vector<std::pair<std::size_t, void*>>(3, {1000, &argument})));  // not rounded up
  EXPECT_EQ(rungs_of(mr.figures()), "reclaim 3, grow 3, trim 3, synchronize 3, callback 3");
  EXPECT_EQ(mr.figures().recovery.failures, 1U);
}

TEST_F(Recovery, LetsACallbackAllocateFromThePoolWithoutCallingItAgain)
{
  pool mr{&upstream, 0, 0};
  int calls = 0;
  mr.set_failure_callback([&](std::size_t, void*) {
    ++calls;
    EXPECT_THROW(static_cast<void>(mr.allocate(256, stream)), rmm::out_of_memory);
    return false;
  });
  EXPECT_THROW(static_cast<void>(mr.allocate(256, stream)), rmm::out_of_memory);
  EXPECT_EQ(calls, 1);
}

TEST_F(Recovery, CallsTheCallbackOfAnotherPoolInsideACallback)
{
  pool outer{&upstream, 0, 0};
  pool inner{&upstream, 0, 0};
  int calls = 0;
  inner.set_failure_callback([&](std::size_t, void*) {
    ++calls;
    return false;
  });
  outer.set_failure_callback([&](std::size_t, void*) {
    EXPECT_THROW(static_cast<void>(inner.allocate(256, stream)), rmm::out_of_memory);
    return false;
  });
  EXPECT_THROW(static_cast<void>(outer.allocate(256, stream)), rmm::out_of_memory);
  EXPECT_EQ(calls, 1);
}

TEST_F(Recovery, HoldsNoLockDuringACallback)
{
  pool mr{&upstream, 256, 512};
  void* held = mr.allocate(256, stream);
  rmm::test::worker other;
  mr.set_failure_callback([&](std::size_t, void*) {
    other.run([&] { mr.deallocate(mr.allocate(256, stream), 256, stream); });  // the pool must grow
    mr.deallocate(std::exchange(held, nullptr), 256, stream);
    return false;
  });
  EXPECT_THROW(static_cast<void>(mr.allocate(MiB, stream)), rmm::out_of_memory);
  EXPECT_EQ(mr.pool_size(), 512U);
}

TEST_F(Recovery, PassesExceptionsOfACallbackOn)
{
  pool mr{&upstream, 0, 256};
  mr.set_failure_callback([](std::size_t, void*) -> bool { throw std::runtime_error{"the program's own"}; });
  EXPECT_THROW(static_cast<void>(mr.allocate(512, stream)), std::runtime_error);
  mr.deallocate(mr.allocate(256, stream), 256, stream);  // the pool still works
  mr.set_failure_callback(nullptr);
  EXPECT_THROW(static_cast<void>(mr.allocate(512, stream)), rmm::out_of_memory);
}

bool say_no(std::size_t /*bytes*/, void* calls)
{
  ++*static_cast<int*>(calls);
  return false;
}

TEST_F(Recovery, AcceptsEachKindOfCallback)
{
  pool mr{&upstream, 0, 256};
  int calls         = 0;
  auto const expect = [&](int count) {
    calls = 0;
    EXPECT_THROW(static_cast<void>(mr.allocate(512, stream)), rmm::out_of_memory);
    EXPECT_EQ(calls, count);
  };
  mr.set_failure_callback(say_no, &calls);
  expect(1);
  mr.set_failure_callback(rmm::mr::failure_callback_t{say_no}, &calls);
  expect(1);
  mr.set_failure_callback([&](std::size_t, void*) { return ++calls < 2; });
  expect(2);
  mr.set_failure_callback(rmm::mr::failure_callback_t{});
  expect(0);
  mr.set_failure_callback(static_cast<bool (*)(std::size_t, void*)>(nullptr));
  expect(0);
  mr.set_failure_callback(say_no, &calls);
  mr.set_failure_callback(nullptr);
  expect(0);
}

TEST_F(Recovery, FollowsTheOrderThatWasSet)
{
  pool mr{&upstream, MiB};
  mr.set_recovery_order({recovery_rung::grow, recovery_rung::reclaim});
  leave_behind(mr, MiB);
  void* const ptr = mr.allocate(MiB, stream);
  EXPECT_EQ(rungs_of(mr.figures()), "grow 1 (served 1)");
  mr.deallocate(ptr, MiB, stream);
}

TEST_F(Recovery, LeavesOutRungsThatAreNotInTheOrder)
{
  pool mr{&upstream, MiB};
  mr.set_recovery_order({recovery_rung::synchronize});
  EXPECT_THROW(static_cast<void>(mr.allocate(2 * MiB, stream)), rmm::out_of_memory);
  EXPECT_EQ(rungs_of(mr.figures()), "synchronize 1");
  mr.set_recovery_order({});
  EXPECT_THROW(static_cast<void>(mr.allocate(2 * MiB, stream)), rmm::out_of_memory);
  EXPECT_EQ(rungs_of(mr.figures()), "synchronize 1");
  EXPECT_EQ(mr.figures().recovery.failures, 2U);
}

TEST_F(Recovery, RefusesRepeatedAndUnsupportedRungs)
{
  pool mr{&upstream, 0};
  auto const before = mr.get_recovery_order();
  EXPECT_THROW(mr.set_recovery_order({recovery_rung::grow, recovery_rung::grow}), rmm::logic_error);
  try {
    mr.set_recovery_order({recovery_rung::grow, recovery_rung::remap});
    ADD_FAILURE() << "expected logic_error";
  } catch (rmm::logic_error const& e) {
    EXPECT_NE(std::string{e.what()}.find("no rung remap"), std::string::npos) << e.what();
  }
  auto const after = mr.get_recovery_order();
  EXPECT_EQ(std::vector<recovery_rung>(before.begin(), before.end()),
            std::vector<recovery_rung>(after.begin(), after.end()));
}

TEST_F(Recovery, HasTheContractsOrderInitially)
{
  pool const mr{&upstream, 0};
  auto const order = mr.get_recovery_order();
  EXPECT_EQ(std::vector<recovery_rung>(order.begin(), order.end()),
            (std::vector<recovery_rung>{
              recovery_rung::reclaim, recovery_rung::grow, recovery_rung::synchronize, recovery_rung::callback}));
}

TEST_F(Recovery, TrimsInitiallyOnlyWithAMaximum)
{
  pool const mr{&upstream, 0, MiB};
  auto const order = mr.get_recovery_order();
  EXPECT_EQ(std::vector<recovery_rung>(order.begin(), order.end()),
            (std::vector<recovery_rung>{recovery_rung::reclaim,
                                        recovery_rung::grow,
                                        recovery_rung::trim,
                                        recovery_rung::synchronize,
                                        recovery_rung::callback}));
}

/// A pool with a maximum whose unused blocks are all too small for a request.
struct RecoveryByTrimming : Recovery {
  void expect_blocks(pool const& mr, std::size_t count, std::size_t bytes) const
  {
    EXPECT_EQ(upstream.live_count(), count);
    EXPECT_EQ(mr.pool_size(), bytes);
  }
};

TEST_F(RecoveryByTrimming, MakesRoomForARequestAsLargeAsTheMaximum)
{
  pool mr{&upstream, 256, 1024};
  void* const ptr = mr.allocate(1024, stream);
  EXPECT_EQ(rungs_of(mr.figures()), "reclaim 1, grow 1, trim 1 (served 1)");
  expect_blocks(mr, 1, 1024);
  mr.deallocate(ptr, 1024, stream);
}

TEST_F(RecoveryByTrimming, GivesBackNoMoreThanTheRequestNeeds)
{
  pool mr{&upstream, MiB, 8 * MiB};
  void* const second = mr.allocate(2 * MiB, stream);  // grows by 3.5 MiB
  void* const third  = mr.allocate(3 * MiB, stream);
  expect_blocks(mr, 3, 7 * MiB + 512 * KiB);
  mr.deallocate(second, 2 * MiB, stream);
  cudasim::run_until_idle();
  void* const ptr = mr.allocate(4 * MiB, stream);
  EXPECT_EQ(rungs_of(mr.figures()), "reclaim 3, grow 3 (served 2), trim 1 (served 1)");
  expect_blocks(mr, 3, 8 * MiB);  // only the block of 3.5 MiB went back
  mr.deallocate(ptr, 4 * MiB, stream);
  mr.deallocate(third, 3 * MiB, stream);
}

TEST_F(RecoveryByTrimming, KeepsBlocksThatDoNotMakeEnoughRoom)
{
  pool mr{&upstream, MiB, 4 * MiB};
  void* const held = mr.allocate(2 * MiB, stream);  // the first block stays unused
  expect_blocks(mr, 2, 3 * MiB);
  EXPECT_THROW(static_cast<void>(mr.allocate(3 * MiB, stream)), rmm::out_of_memory);
  EXPECT_THROW(static_cast<void>(mr.allocate(5 * MiB, stream)), rmm::out_of_memory);
  expect_blocks(mr, 2, 3 * MiB);
  mr.deallocate(held, 2 * MiB, stream);
}

TEST_F(RecoveryByTrimming, TakesBackWhatDidNotHelp)
{
  pool mr{&upstream, 2 * MiB, 4 * MiB};
  upstream.refuse_above(2 * MiB);
  for (int i = 0; i != 3; ++i) {
    EXPECT_THROW(static_cast<void>(mr.allocate(3 * MiB, stream)), rmm::out_of_memory);
    expect_blocks(mr, 1, 2 * MiB);
  }
  upstream.refuse_above(0);
  void* const ptr = mr.allocate(2 * MiB, stream);
  mr.deallocate(ptr, 2 * MiB, stream);
}

TEST_F(RecoveryByTrimming, GivesNothingBackWithoutAMaximum)
{
  pool mr{&upstream, MiB};
  upstream.refuse_above(2 * MiB);
  EXPECT_THROW(static_cast<void>(mr.allocate(4 * MiB, stream)), rmm::out_of_memory);
  mr.set_recovery_order({recovery_rung::trim});
  EXPECT_THROW(static_cast<void>(mr.allocate(4 * MiB, stream)), rmm::out_of_memory);
  expect_blocks(mr, 1, MiB);
}

TEST_F(RecoveryByTrimming, WaitsForTheWorkOfABlockOnlyIfThatMakesRoom)
{
  rmm::cuda_stream const other;
  pool mr{&upstream, 0, 4 * MiB};
  void* const used = mr.allocate(MiB, other);  // grows by 2 MiB
  void* const held = mr.allocate(2 * MiB, stream);
  expect_blocks(mr, 2, 4 * MiB);
  cudasim::hold(other.value());
  ASSERT_EQ(cudaMemsetAsync(used, 1, MiB, other.value()), cudaSuccess);
  mr.deallocate(used, MiB, other);
  EXPECT_THROW(static_cast<void>(mr.allocate(3 * MiB, stream)),
               rmm::out_of_memory);  // else the host would wait for ever
  expect_blocks(mr, 2, 4 * MiB);
  mr.deallocate(held, 2 * MiB, stream);
  cudasim::let_go(other.value());
  void* const ptr = mr.allocate(4 * MiB, stream);
  expect_blocks(mr, 1, 4 * MiB);
  mr.deallocate(ptr, 4 * MiB, stream);
}

TEST_F(RecoveryByTrimming, LosesNothingWhicheverCallFails)
{
  rmm::cuda_stream const other;
  auto const before    = cudasim::leak_report();
  std::size_t served   = 0;
  auto const make_room = [&] {
    pool mr{&upstream, MiB, 4 * MiB};
    mr.deallocate(mr.allocate(MiB, other), MiB, other);
    try {
      mr.deallocate(mr.allocate(4 * MiB, stream), 4 * MiB, stream);
      ++served;
    } catch (rmm::out_of_memory const&) {}
    auto const now = mr.figures();
    EXPECT_EQ(now.live_bytes, 0U);
    EXPECT_EQ(now.free_bytes, now.reserved_bytes);
  };
  for (auto const* const call : {"cudaStreamCreateWithFlags",
                                 "cudaStreamIsCapturing",
                                 "cudaStreamWaitEvent",
                                 "cudaEventRecord",
                                 "cudaEventQuery"}) {
    cudasim::for_each_fault(
      make_room,
      [&](auto n) { EXPECT_EQ(cudasim::leak_report(), before) << call << " " << n; },
      cudaErrorUnknown,
      call);
  }
  EXPECT_GT(served, 0U);
}

TEST_F(RecoveryByTrimming, LeavesTheBlocksOfACaptureAlone)
{
  pool mr{&upstream, MiB, 4 * MiB};
  rmm::capture_scope const announced{stream};
  ASSERT_EQ(cudaStreamBeginCapture(stream.value(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_THROW(static_cast<void>(mr.allocate(4 * MiB, stream)), rmm::out_of_memory);
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamEndCapture(stream.value(), &graph), cudaSuccess);  // the call did not invalidate it
  expect_blocks(mr, 1, MiB);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(Recovery, CountsMemoryFromAnotherCache)
{
  rmm::cuda_stream const other;
  pool mr{&upstream, MiB, MiB};
  void* const first = mr.allocate(256, stream);  // now the rest is in this thread's cache
  void* const taken = mr.allocate(256, other);
  auto const now    = mr.figures();
  EXPECT_EQ(now.from_other_caches, 1U);
  EXPECT_EQ(now.from_other_streams, 0U);
  EXPECT_EQ(now.put_together, 0U);
  EXPECT_EQ(rungs_of(now), "");
  mr.deallocate(taken, 256, other);
  mr.deallocate(first, 256, stream);
}

TEST_F(Recovery, CountsMemoryFromABusyStream)
{
  rmm::cuda_stream const other;
  pool mr{&upstream, 4 * MiB, 4 * MiB};
  void* const small = mr.allocate(256, other);
  void* const first = mr.allocate(4 * MiB - 256, stream);
  auto const before = mr.figures();
  cudasim::hold(stream);
  mr.deallocate(first, 4 * MiB - 256, stream);  // large, so fenced immediately, and in a store
  void* const taken = mr.allocate(4 * MiB - 256, other);
  auto const now    = mr.figures();
  cudasim::let_go(stream);
  EXPECT_EQ(now.from_other_streams, before.from_other_streams + 1);
  EXPECT_EQ(now.from_other_caches, before.from_other_caches);
  EXPECT_EQ(now.put_together, before.put_together);
  EXPECT_EQ(rungs_of(now), "");
  mr.deallocate(taken, 4 * MiB - 256, other);
  mr.deallocate(small, 256, other);
}

TEST_F(Recovery, CountsCoalescedMemory)
{
  rmm::cuda_stream const other;
  pool mr{&upstream, 512, 512};
  void* const first  = mr.allocate(256, stream);
  void* const second = mr.allocate(256, other);
  auto const before  = mr.figures();
  mr.deallocate(first, 256, stream);
  mr.deallocate(second, 256, other);
  void* const whole = mr.allocate(512, other);
  auto const now    = mr.figures();
  EXPECT_EQ(now.put_together, before.put_together + 1);
  EXPECT_EQ(now.from_other_caches, before.from_other_caches);
  EXPECT_EQ(now.from_other_streams, before.from_other_streams);
  mr.deallocate(whole, 512, other);
}

/// A pool with all rungs, which serves in the rung that it is told.
class obedient_pool final : public rmm::mr::detail::growing_pool {
 public:
  obedient_pool(rmm::mr::device_memory_resource* upstream, recovery_rung serving)
    : growing_pool{{recovery_rung::trim, recovery_rung::remap, recovery_rung::grow}},
      upstream_{upstream},
      serving_{serving}
  {}
  using growing_pool::lock_growth;
  using growing_pool::suspend;

 private:
  void* serve(recovery_rung rung,
              std::size_t bytes,
              rmm::cuda_stream_view stream,
              rmm::mr::detail::failure_reason& reason)
  {
    if (rung == serving_) { return blocks_.try_add(bytes, bytes, stream, reason).value_or(nullptr); }
    reason = std::string{rmm::name_of(rung)} + " is not to serve";
    return nullptr;
  }
  void* try_grow(std::size_t bytes, rmm::cuda_stream_view stream, rmm::mr::detail::failure_reason& reason) override
  {
    return serve(recovery_rung::grow, bytes, stream, reason);
  }
  void* try_remap(std::size_t bytes, rmm::cuda_stream_view stream, rmm::mr::detail::failure_reason& reason) override
  {
    return serve(recovery_rung::remap, bytes, stream, reason);
  }
  void* try_trim(std::size_t bytes, rmm::cuda_stream_view stream, rmm::mr::detail::failure_reason& reason) override
  {
    return serve(recovery_rung::trim, bytes, stream, reason);
  }
  bool has_rung(recovery_rung) const noexcept override { return true; }

  rmm::mr::detail::suballocator_upstream<rmm::mr::device_memory_resource> upstream_;
  rmm::mr::detail::block_source<rmm::mr::device_memory_resource> blocks_{heap_, upstream_};
  recovery_rung serving_;
};

TEST_F(Recovery, ComesToTheRungsThatAPoolAdds)
{
  for (auto const& [rung, text] : {std::pair{recovery_rung::trim, "trim 1 (served 1)"},
                                   std::pair{recovery_rung::remap, "remap 1 (served 1), trim 1"},
                                   std::pair{recovery_rung::grow, "grow 1 (served 1), remap 1, trim 1"}}) {
    obedient_pool mr{&upstream, rung};
    void* const ptr = mr.allocate(1000, stream);
    EXPECT_EQ(rungs_of(mr.figures()), text);
    mr.deallocate(ptr, 1000, stream);
  }
}

TEST_F(Recovery, RemapsWhatASynchronizationFreed)
{
  obedient_pool mr{&upstream, recovery_rung::remap};
  mr.set_recovery_order({recovery_rung::synchronize, recovery_rung::remap});
  void* const ptr = mr.allocate(1000, stream);
  EXPECT_EQ(rungs_of(mr.figures()), "synchronize 1 (served 1)");
  mr.set_recovery_order({recovery_rung::synchronize});
  EXPECT_THROW(static_cast<void>(mr.allocate(1000, stream)), rmm::out_of_memory);
  mr.deallocate(ptr, 1000, stream);
}

/// Returns whether a thread of this process sleeps in the kernel.
bool is_asleep(long thread)
{
  std::ifstream file{"/proc/self/task/" + std::to_string(thread) + "/stat"};
  std::string const fields{std::istreambuf_iterator<char>{file}, {}};
  auto const end_of_name = fields.rfind(") ");
  return end_of_name != std::string::npos && fields.compare(end_of_name + 2, 1, "S") == 0;
}

// The pool's state counts when the allocation has the lock again: a thread can pause the pool before that.
TEST_F(Recovery, RefusesAnAllocationWhoseCallbackReturnsWhileThePoolIsPaused)
{
  obedient_pool mr{&upstream, recovery_rung::grow};
  mr.set_recovery_order({recovery_rung::callback, recovery_rung::grow});
  std::atomic<long> called_in{0};
  std::atomic<bool> returns{false};
  mr.set_failure_callback([&](std::size_t, void*) {
    called_in = syscall(SYS_gettid);
    while (!returns) {}  // spins, so that only the lock makes it sleep
    return false;
  });
  std::thread allocating{[&] { EXPECT_THROW(static_cast<void>(mr.allocate(1000, stream)), rmm::logic_error); }};
  while (called_in == 0) { std::this_thread::yield(); }
  {
    auto const growing = mr.lock_growth();
    returns            = true;
    while (!is_asleep(called_in)) { std::this_thread::yield(); }
    mr.suspend(true);
  }
  allocating.join();
  mr.suspend(false);
}

TEST_F(Recovery, ReportsTheReasonOfTheLastRungThatHasOne)
{
  obedient_pool mr{&upstream, recovery_rung::callback};
  try {
    static_cast<void>(mr.allocate(1000, stream));
    ADD_FAILURE() << "expected out_of_memory";
  } catch (rmm::out_of_memory const& e) {
    EXPECT_NE(std::string{e.what()}.find("grow is not to serve"), std::string::npos) << e.what();
  }
}

TEST(RecoveryOrder, HasEachRungOnce)
{
  recovery_order order{recovery_rung::grow};
  EXPECT_TRUE(order.try_add(recovery_rung::callback));
  EXPECT_FALSE(order.try_add(recovery_rung::grow));
  EXPECT_TRUE(order.contains(recovery_rung::callback));
  EXPECT_FALSE(order.contains(recovery_rung::remap));
  EXPECT_EQ(order.size(), 2U);
  EXPECT_TRUE(order.is_valid());
  EXPECT_FALSE((recovery_order{recovery_rung::trim, recovery_rung::trim}.is_valid()));
  EXPECT_FALSE((recovery_order{static_cast<recovery_rung>(17)}.is_valid()));
}

TEST(RecoveryFigures, AddUp)
{
  rmm::heap_figures a;
  a.recovery[recovery_rung::remap] = {3, 1};
  a.recovery.failures              = 2;
  auto const sum                   = a + a;
  EXPECT_EQ(sum.recovery[recovery_rung::remap].tried, 6U);
  EXPECT_EQ(sum.recovery[recovery_rung::remap].served, 2U);
  EXPECT_EQ(sum.recovery.failures, 4U);
}

}  // namespace
