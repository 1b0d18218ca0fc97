// SPDX-License-Identifier: Apache-2.0

#include <rmm/memory_report.hpp>

#include "../support/simulated_stream.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/base/tag_table.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/memory_reservation.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/recovery.hpp>
#include <rmm/tag_scope.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using rmm::recovery_rung;
using pool = rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

struct MemoryReport : SimulatedStream {
  rmm::mr::cuda_memory_resource cuda;

  /// Returns the exception of a request that is too large.
  static rmm::out_of_memory failure_of(rmm::mr::device_memory_resource& mr, std::size_t bytes, rmm::cuda_stream_view on)
  {
    try {
      static_cast<void>(mr.allocate(bytes, on));
    } catch (rmm::out_of_memory const& e) {
      return e;
    }
    ADD_FAILURE() << "expected out_of_memory";
    return {"none"};
  }

  static void expect_text(rmm::out_of_memory const& e, std::string const& part)
  {
    EXPECT_NE(std::string{e.what()}.find(part), std::string::npos) << "no \"" << part << "\" in\n" << e.what();
  }
};

TEST_F(MemoryReport, IsMissingWhereNoPoolFailed)
{
  EXPECT_EQ(rmm::out_of_memory{"text"}.report(), nullptr);
  EXPECT_EQ(failure_of(cuda, std::size_t{1} << 50U, stream).report(), nullptr);
}

TEST_F(MemoryReport, HasTheRequest)
{
  pool mr{&cuda, 0, MiB};
  auto const e = failure_of(mr, 3 * MiB + 1, stream);
  ASSERT_NE(e.report(), nullptr);
  EXPECT_EQ(e.report()->asked_bytes, 3 * MiB + 1);
  EXPECT_EQ(e.report()->alignment_bytes, 256U);
  EXPECT_EQ(e.report()->stream, stream);
  EXPECT_EQ(e.report()->device, 0);
  expect_text(e, "\n  asked: 3.000001 MiB (3145729 bytes), aligned to 256, on stream 0x");
  expect_text(e, ", device 0\n");
}

TEST_F(MemoryReport, HasTheMemoryOfThePool)
{
  pool mr{&cuda, 8 * KiB, 8 * KiB};
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) { blocks.push_back(mr.allocate(2 * KiB, stream)); }
  mr.deallocate(blocks[0], 2 * KiB, stream);
  mr.deallocate(blocks[2], 2 * KiB, stream);
  auto const e = failure_of(mr, 4 * KiB, stream);
  ASSERT_NE(e.report(), nullptr);
  auto const& has = e.report()->pool;
  EXPECT_EQ(has.live_bytes, 4 * KiB);
  EXPECT_EQ(has.free_bytes, 4 * KiB);
  EXPECT_EQ(has.largest_free_bytes, 2 * KiB);
  EXPECT_EQ(has.reserved_bytes, 8 * KiB);
  EXPECT_EQ(e.report()->maximum_bytes, 8 * KiB);
  EXPECT_DOUBLE_EQ(has.fragmentation(), 0.5);
  expect_text(e,
              "pool: 8.000000 KiB reserved in 1 blocks, at most 8.000000 KiB; 4.000000 KiB live, 4.000000 KiB free (");
  expect_text(e, "the largest range 2.000000 KiB, fragmentation 50 %\n");
  mr.deallocate(blocks[1], 2 * KiB, stream);
  mr.deallocate(blocks[3], 2 * KiB, stream);
}

TEST_F(MemoryReport, HasTheMemoryOfTheDeviceAndOfOthers)
{
  auto const total = cudasim::usage(0).total;
  pool mr{&cuda, 4 * MiB};
  ASSERT_TRUE(cudasim::occupy(0, total - 16 * MiB));
  auto const e = failure_of(mr, 64 * MiB, stream);
  ASSERT_NE(e.report(), nullptr);
  ASSERT_TRUE(e.report()->device_figures.has_value());
  EXPECT_EQ(e.report()->device_figures->total_bytes, total);
  EXPECT_EQ(e.report()->device_figures->free_bytes, 12 * MiB);
  EXPECT_EQ(e.report()->held_by_others(), total - 16 * MiB);
  EXPECT_FALSE(e.report()->maximum_bytes.has_value());
  expect_text(e, "no maximum");
  expect_text(e, "\n  device: 12.000000 MiB free of ");
  expect_text(e, " held by others\n");
}

TEST_F(MemoryReport, HasTheRungsThatWereTried)
{
  pool mr{&cuda, 0, MiB};
  static_cast<void>(failure_of(mr, 2 * MiB, stream));
  int calls = 0;
  mr.set_failure_callback([&](std::size_t, void*) { return ++calls < 2; });
  auto const e = failure_of(mr, 2 * MiB, stream);
  ASSERT_NE(e.report(), nullptr);
  EXPECT_EQ(e.report()->tries_of(recovery_rung::grow), 2U);
  EXPECT_EQ(e.report()->tries_of(recovery_rung::callback), 2U);
  EXPECT_EQ(e.report()->tries_of(recovery_rung::remap), 0U);
  EXPECT_EQ(e.report()->pool.recovery[recovery_rung::grow].tried, 3U);
  EXPECT_EQ(e.report()->pool.recovery.failures, 2U);
  expect_text(e,
              "tried: reclaim 2 times, grow 2 times, trim 2 times, synchronize 2 times, callback 2 times; 2 failures "
              "of this pool so far");
}

TEST_F(MemoryReport, StandsOnceInTheTextOfAPoolOverAPool)
{
  pool lower{&cuda, 0, MiB};
  rmm::mr::pool_memory_resource<pool> upper{&lower, 0};
  auto const e = failure_of(upper, 2 * MiB, stream);
  std::string const text{e.what()};
  EXPECT_EQ(text.find("asked: "), text.rfind("asked: ")) << text;
  expect_text(e, "the pool holds 0.000000 B of at most 1.000000 MiB");
  EXPECT_NE(e.report()->reason.find("asked: "), std::string::npos) << "what the lower pool said is kept";
}

TEST_F(MemoryReport, CountsTheFailuresOfAnArena)
{
  rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, MiB};
  static_cast<void>(failure_of(mr, 2 * MiB, stream));
  auto const e = failure_of(mr, 2 * MiB, stream);
  expect_text(e, "tried: synchronize; 2 failures of this pool so far\n");
  EXPECT_EQ(mr.figures().recovery.failures, 2U);
}

TEST_F(MemoryReport, KeepsTheTextOfTheContractInFront)
{
  pool mr{&cuda, 0, MiB};
  std::string const text{failure_of(mr, 2 * MiB, stream).what()};
  EXPECT_EQ(text.rfind("std::bad_alloc: out_of_memory: RMM failure at: ", 0), 0U) << text;
  EXPECT_LT(text.find("Maximum pool size exceeded (failed to allocate 2.000000 MiB): the pool holds"), text.find('\n'));
}

TEST_F(MemoryReport, HasTheRequestThatFailedInTheConstructorOfAPool)
{
  try {
    pool const mr{&cuda, std::size_t{1} << 50U};
    ADD_FAILURE() << "expected out_of_memory";
  } catch (rmm::out_of_memory const& e) {
    ASSERT_NE(e.report(), nullptr);
    EXPECT_EQ(e.report()->asked_bytes, std::size_t{1} << 50U);
    EXPECT_NE(e.report()->reason.find("cudaErrorMemoryAllocation"), std::string::npos) << e.report()->reason;
    expect_text(e, "tried: nothing; 1 failure of");
  }
}

TEST_F(MemoryReport, ComesFromAnArenaToo)
{
  rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 4 * MiB};
  void* const live         = mr.allocate(3 * MiB, stream);
  auto const failure       = failure_of(mr, 2 * MiB, stream);
  auto const* const report = failure.report();
  ASSERT_NE(report, nullptr);
  EXPECT_EQ(report->asked_bytes, 2 * MiB);
  EXPECT_EQ(report->stream.value(), stream.value());
  EXPECT_EQ(report->reason, "No room in arena.");
  EXPECT_EQ(report->maximum_bytes, 4 * MiB);
  EXPECT_EQ(report->pool.live_bytes, 3 * MiB);
  EXPECT_EQ(report->tries_of(recovery_rung::synchronize), 1U);
  EXPECT_TRUE(report->device_figures.has_value());
  mr.deallocate(live, 3 * MiB, stream);
}

TEST_F(MemoryReport, ComesFromAResourceOfFixedSizeThatIsAskedForMoreThanABlock)
{
  rmm::mr::fixed_size_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, MiB, 4};
  auto const failure       = failure_of(mr, 2 * MiB, stream);
  auto const* const report = failure.report();
  ASSERT_NE(report, nullptr);
  EXPECT_EQ(report->asked_bytes, 2 * MiB);
  EXPECT_EQ(report->pool.free_bytes, 4 * MiB);
  EXPECT_NE(report->reason.find("blocks have 1.000000 MiB"), std::string::npos) << report->reason;
}

TEST_F(MemoryReport, ComesFromAResourceOfFixedSizeWhoseUpstreamHasNoMore)
{
  auto const most = rmm::available_device_memory().first / MiB * MiB;
  rmm::mr::fixed_size_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, most / 4 * 3, 1};
  void* const live         = mr.allocate(10, stream);
  auto const failure       = failure_of(mr, 20, stream);
  auto const* const report = failure.report();
  ASSERT_NE(report, nullptr);
  EXPECT_EQ(report->asked_bytes, 20U);
  EXPECT_EQ(report->pool.live_bytes, most / 4 * 3);
  EXPECT_NE(report->reason.find("cudaErrorMemoryAllocation"), std::string::npos) << report->reason;
  expect_text(failure, "tried: reclaim, grow, synchronize; 1 failure of this pool so far\n");
  mr.deallocate(live, 10, stream);
}

TEST_F(MemoryReport, IsSharedByCopiesAndOutlivesTheFirst)
{
  pool mr{&cuda, 0, MiB};
  auto first = std::make_unique<rmm::out_of_memory>(failure_of(mr, 2 * MiB, stream));
  rmm::out_of_memory second{"another"};
  second = *first;
  EXPECT_EQ(second.report(), first->report());
  auto const* const report = second.report();
  first.reset();
  EXPECT_EQ(report->asked_bytes, 2 * MiB);
  auto const& itself = second;
  second             = itself;
  EXPECT_EQ(second.report()->asked_bytes, 2 * MiB);
  second = rmm::out_of_memory{"a third"};
  EXPECT_EQ(second.report(), nullptr);
}

TEST_F(MemoryReport, ReachesAnotherThread)
{
  pool mr{&cuda, 0, MiB};
  std::exception_ptr thrown;
  std::thread{[&] {
    try {
      static_cast<void>(mr.allocate(2 * MiB, stream));
    } catch (...) {
      thrown = std::current_exception();
    }
  }}.join();
  try {
    std::rethrow_exception(thrown);
  } catch (rmm::out_of_memory const& e) {
    ASSERT_NE(e.report(), nullptr);
    EXPECT_EQ(e.report()->asked_bytes, 2 * MiB);
  }
}

TEST_F(MemoryReport, IsMadeAlsoWhenTheRuntimeDoesNotAnswer)
{
  pool mr{&cuda, 0, MiB};
  cudasim::inject({"cudaMemGetInfo", 1, cudaErrorUnknown, 1});
  cudasim::inject({"cudaGetDevice", 1, cudaErrorUnknown, 1});
  auto const e = failure_of(mr, 2 * MiB, stream);
  cudasim::clear_faults();
  ASSERT_NE(e.report(), nullptr);
  EXPECT_EQ(e.report()->device, -1);
  EXPECT_FALSE(e.report()->device_figures.has_value());
  EXPECT_FALSE(e.report()->held_by_others().has_value());
  expect_text(e, "device unknown\n");
  expect_text(e, "\n  device: unknown\n");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(MemoryReport, OfPinnedMemoryHasNoDeviceMemoryHeldByOthers)
{
  rmm::mr::pinned_host_memory_resource pinned;
  auto const expect_no_number = [](rmm::out_of_memory const& e) {
    ASSERT_NE(e.report(), nullptr);
    EXPECT_FALSE(e.report()->held_by_others().has_value());
    EXPECT_TRUE(e.report()->device_figures.has_value());
    EXPECT_EQ(std::string{e.what()}.find("held by others"), std::string::npos);
  };
  void* const on_device = cuda.allocate(8 * MiB, stream);  // makes sure that there would be a number to report
  {
    rmm::mr::pool_memory_resource<rmm::mr::pinned_host_memory_resource> mr{&pinned, MiB, MiB};
    try {
      static_cast<void>(mr.allocate_async(2 * MiB, stream));
      FAIL() << "a pool of 1 MiB gave 2 MiB";
    } catch (rmm::out_of_memory const& e) {
      expect_no_number(e);
    }
  }
  cuda.deallocate(on_device, 8 * MiB, stream);
}

TEST_F(MemoryReport, IsNotMadeBeforeAnAllocationFails)
{
  pool mr{&cuda, 0};
  auto const before = cudasim::calls("cudaMemGetInfo");
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) { blocks.push_back(mr.allocate(MiB, stream)); }  // grows the pool several times
  for (void* const ptr : blocks) { mr.deallocate(ptr, MiB, stream); }
  EXPECT_EQ(cudasim::calls("cudaMemGetInfo"), before);
}

// --- holders ---------------------------------------------------------------------------------------------------------

TEST_F(MemoryReport, NamesTheTagOfAReservationThatWasTried)
{
  pool mr{&cuda, MiB, MiB};
  mr.track_tags();
  rmm::tag_scope const scope{"report reserved"};
  auto const held = mr.try_reserve(100 * KiB, stream);
  ASSERT_TRUE(held);
  auto const e = failure_of(mr, MiB, stream);
  ASSERT_NE(e.report(), nullptr);
  ASSERT_EQ(e.report()->holders.size(), 1U);
  EXPECT_EQ(e.report()->holders[0].tag, "report reserved");
  EXPECT_EQ(e.report()->holders[0].bytes, 100 * KiB);
}

TEST_F(MemoryReport, NamesTheTopHoldersByTag)
{
  pool mr{&cuda, MiB, MiB};
  mr.track_tags();
  void* const untagged = mr.allocate(1000, stream);
  void* loader{};
  void* model{};
  {
    rmm::tag_scope const outer{"report loader"};
    loader = mr.allocate(100 * KiB, stream);
    rmm::tag_scope const inner{"report model"};
    model = mr.allocate(300 * KiB, stream);
    mr.deallocate(mr.allocate(200 * KiB, stream), 200 * KiB, stream);
  }
  auto const e = failure_of(mr, MiB, stream);
  ASSERT_NE(e.report(), nullptr);
  EXPECT_TRUE(e.report()->tags_tracked);
  ASSERT_EQ(e.report()->holders.size(), 3U);
  EXPECT_EQ(e.report()->holders[0].tag, "report model");
  EXPECT_EQ(e.report()->holders[0].bytes, 300 * KiB);
  EXPECT_EQ(e.report()->holders[1].tag, "report loader");
  EXPECT_EQ(e.report()->holders[2].tag, "");
  EXPECT_EQ(e.report()->holders[2].allocations, 1U);
  expect_text(
    e, "holders: report model 300.000000 KiB in 1, report loader 100.000000 KiB in 1, (no tag) 1000.000000 B in 1");
  mr.deallocate(untagged, 1000, stream);
  mr.deallocate(loader, 100 * KiB, stream);  // under another tag than the one it was allocated with
  mr.deallocate(model, 300 * KiB, stream);
  EXPECT_TRUE(mr.live_by_tag_name().empty());
}

TEST_F(MemoryReport, SaysThatThePoolOfAReservationTracksTags)
{
  pool mr{&cuda, MiB, MiB};
  mr.track_tags();
  auto task    = mr.reserve(64 * KiB, stream);
  auto const e = failure_of(task.resource(), 128 * KiB, stream);
  ASSERT_NE(e.report(), nullptr);
  EXPECT_FALSE(e.report()->tags_tracked);
  expect_text(e, "holders: unknown, because no tags are tracked here");
}

TEST_F(MemoryReport, KnowsNoHoldersWhileTagsAreNotTracked)
{
  pool mr{&cuda, MiB, MiB};
  rmm::tag_scope const scope{"unseen"};
  void* const before = mr.allocate(256, stream);
  EXPECT_TRUE(mr.live_by_tag_name().empty());
  expect_text(failure_of(mr, 2 * MiB, stream),
              "holders: unknown, because no tags are tracked here: pools track them after track_tags()");
  mr.track_tags();
  mr.deallocate(before, 256, stream);
  EXPECT_TRUE(mr.live_by_tag_name().empty());
  void* const during = mr.allocate(256, stream);
  EXPECT_EQ(mr.live_by_tag_name().size(), 1U);
  mr.track_tags(false);
  mr.deallocate(during, 256, stream);
  mr.track_tags();
  EXPECT_TRUE(mr.live_by_tag_name().empty());
  expect_text(failure_of(mr, 2 * MiB, stream), "holders: none");
}

TEST_F(MemoryReport, ForgetsAnAllocationThatOverlapsWithTheEndOfTracking)
{
  static std::atomic<bool> allocates{false};
  static std::atomic<bool> may_go_on{false};
  auto& table         = const_cast<rmm::detail::tag_table&>(rmm::detail::tags());
  auto const original = table.current;
  // Holds the thread after it has seen that tags are tracked, and before it records the allocation.
  table.current = []() noexcept {
    allocates = true;
    while (!may_go_on) { std::this_thread::yield(); }
    return rmm::detail::tag_names::current_of_thread();
  };
  pool mr{&cuda, MiB, MiB};
  mr.track_tags();
  void* overlapping{};
  std::thread other{[&] { overlapping = mr.allocate(1000, stream); }};
  while (!allocates) { std::this_thread::yield(); }
  mr.track_tags(false);
  may_go_on = true;
  other.join();
  table.current = original;
  mr.deallocate(overlapping, 1000, stream);
  mr.track_tags();
  EXPECT_TRUE(mr.live_by_tag_name().empty());
  void* const later = mr.allocate(256, stream);
  mr.track_tags();  // changes nothing
  EXPECT_EQ(mr.live_by_tag_name().size(), 1U);
  mr.deallocate(later, 256, stream);
}

TEST_F(MemoryReport, NamesTheLargestHoldersAndCountsTheOthers)
{
  rmm::memory_report report;
  report.tags_tracked = true;
  for (std::size_t i = 0; i != 8; ++i) { report.holders.push_back({"tag " + std::to_string(i), 1000 - i, 1}); }
  EXPECT_EQ(report.text().find(" more"), std::string::npos) << report.text();
  report.holders.push_back({"the ninth", 10, 1});
  report.holders.push_back({"the tenth", 9, 1});
  EXPECT_NE(report.text().find("tag 7 993.000000 B in 1, and 2 more"), std::string::npos) << report.text();
  EXPECT_EQ(report.text().find("the ninth"), std::string::npos) << report.text();
}

TEST_F(MemoryReport, CountsHoldersOfManyThreads)
{
  pool mr{&cuda, 4 * MiB};
  mr.track_tags();
  std::vector<std::vector<void*>> kept(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kept.size(); ++t) {
    threads.emplace_back([&, t] {
      rmm::tag_scope const scope{t % 2 == 0 ? "even threads" : "odd threads"};
      for (std::size_t i = 0; i < 500; ++i) {
        void* const ptr = mr.allocate(256 * (1 + i % 3), stream);
        if (i % 5 == 0) {
          kept[t].push_back(ptr);
        } else {
          mr.deallocate(ptr, 256 * (1 + i % 3), stream);
        }
      }
    });
  }
  for (auto& each : threads) { each.join(); }
  auto const holders = mr.live_by_tag_name();
  ASSERT_EQ(holders.size(), 2U);
  EXPECT_EQ(holders[0].allocations, 200U);
  EXPECT_EQ(holders[0].bytes, holders[1].bytes);
  for (auto const& blocks : kept) {
    for (std::size_t i = 0; i < blocks.size(); ++i) { mr.deallocate(blocks[i], 256 * (1 + 5 * i % 3), stream); }
  }
  EXPECT_TRUE(mr.live_by_tag_name().empty());
}

template <class Exception, class Call>
std::string text_of(Call&& call)
{
  try {
    call();
  } catch (Exception const& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

TEST_F(MemoryReport, DistinguishesARefusedFirstBlockFromAFullPool)
{
  std::size_t const bytes = rmm::available_device_memory().second / 256 * 512;
  auto const text         = text_of<rmm::out_of_memory>([&] { pool{&cuda, bytes}; });
  EXPECT_TRUE(contains(text, "The device refused the first block of " + std::to_string(bytes) + " bytes, with "))
    << text;
  EXPECT_TRUE(contains(text, " free on the device (failed to allocate ")) << text;
  EXPECT_TRUE(contains(text, "cudaErrorMemoryAllocation")) << text;
  EXPECT_FALSE(contains(text, "Maximum pool size exceeded")) << text;
}

TEST_F(MemoryReport, DistinguishesAFirstBlockRefusedByUpstreamFromAFullPool)
{
  rmm::mr::limiting_resource_adaptor<rmm::mr::cuda_memory_resource> limited{&cuda, MiB};
  using pool_over_limit = rmm::mr::pool_memory_resource<decltype(limited)>;
  auto const text       = text_of<rmm::out_of_memory>([&] { pool_over_limit{&limited, 2 * MiB}; });
  EXPECT_TRUE(contains(text, "Upstream refused the first block of 2097152 bytes, with ")) << text;
  EXPECT_TRUE(contains(text, "Exceeded memory limit")) << text;
  EXPECT_FALSE(contains(text, "Maximum pool size exceeded")) << text;
}

TEST_F(MemoryReport, DistinguishesARefusedFirstBlockOfAnElasticPoolFromAFullPool)
{
  std::size_t const bytes = rmm::available_device_memory().second / 256 * 512;
  auto const text         = text_of<rmm::out_of_memory>([&] { rmm::mr::elastic_pool_memory_resource{bytes}; });
  EXPECT_TRUE(contains(text, "The device refused the first block of " + std::to_string(bytes) + " bytes")) << text;
  EXPECT_FALSE(contains(text, "Maximum pool size exceeded")) << text;
}

TEST_F(MemoryReport, DoesNotMentionTheDeviceForAPoolOfHostMemory)
{
  rmm::mr::pinned_host_memory_resource pinned;
  cudasim::inject({"cudaHostAlloc", 1, cudaErrorMemoryAllocation, 1});
  using pinned_pool = rmm::mr::pool_memory_resource<rmm::mr::pinned_host_memory_resource>;
  auto const text   = text_of<rmm::out_of_memory>([&] { pinned_pool{&pinned, MiB}; });
  EXPECT_TRUE(contains(text, "Upstream refused the first block of 1048576 bytes (failed to allocate ")) << text;
}

TEST_F(MemoryReport, KeepsTheExceptionOfUpstream)
{
  struct own_error : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  struct : rmm::mr::device_memory_resource {
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override { throw own_error{"out of cheese"}; }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
  } broken;
  rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource> mr{&broken, 0};
  auto const e = failure_of(mr, MiB, stream);
  expect_text(e, "Maximum pool size exceeded (failed to allocate 1.000000 MiB): out of cheese\n");
  ASSERT_NE(e.report(), nullptr);
  ASSERT_NE(e.report()->cause, nullptr);
  EXPECT_THROW(std::rethrow_exception(e.report()->cause), own_error);
  pool full{&cuda, MiB, MiB};
  auto const no_cause = failure_of(full, 2 * MiB, stream);
  ASSERT_NE(no_cause.report(), nullptr);
  EXPECT_EQ(no_cause.report()->cause, nullptr) << "nothing was thrown: the pool has its maximum";
}

struct NoDevice : Simulated {
  void SetUp() override
  {
    Simulated::SetUp();
    cudasim::options machine;
    machine.devices = 0;
    start(machine);
  }
  void TearDown() override
  {
    start(cudasim::environment_options());
    Simulated::TearDown();
  }

  static void expect_no_device(std::string const& text)
  {
    EXPECT_TRUE(contains(text, "No CUDA device can be used (failed to allocate 1048576 bytes): cudaErrorNoDevice "))
      << text;
    EXPECT_FALSE(contains(text, "Maximum pool size exceeded")) << text;
    EXPECT_FALSE(contains(text, "out_of_memory")) << text;
  }

  rmm::mr::cuda_memory_resource cuda;
};

TEST_F(NoDevice, IsReportedByAPoolThatTakesItsFirstBlock)
{
  expect_no_device(text_of<rmm::bad_alloc>([&] { pool{&cuda, MiB}; }));
}

TEST_F(NoDevice, IsReportedByAPoolThatHasToGrow)
{
  pool mr{&cuda, 0};
  int calls = 0;
  mr.set_failure_callback([&](std::size_t, void*) { return ++calls < 3; });
  expect_no_device(text_of<rmm::bad_alloc>([&] { static_cast<void>(mr.allocate(MiB)); }));
  EXPECT_EQ(calls, 0) << "freeing memory is of no use";
  EXPECT_EQ(mr.pool_size(), 0U);
}

}  // namespace
