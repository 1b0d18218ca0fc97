// SPDX-License-Identifier: Apache-2.0

#include <rmm/mr/memory_reservation.hpp>

#include "../../support/counting_upstream.hpp"
#include "../../support/seeds.hpp"
#include "../../support/stepped_heap.hpp"
#include "../../support/worker.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/memory_snapshot.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/tag_scope.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::mr::memory_reservation;
using pool = rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource>;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

/// Writes to a block on `stream`. The ordering checker reports an error if its former owner still uses it.
void write(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream)
{
  ASSERT_EQ(cudasim::launch(stream, {}, {{ptr, bytes}}), cudaSuccess);
}

struct MemoryReservation : Stepped {
  rmm::test::counting_upstream upstream;
  std::optional<rmm::cuda_stream> made{std::in_place, rmm::cuda_stream::flags::non_blocking};
  std::optional<rmm::cuda_stream> made_other{std::in_place, rmm::cuda_stream::flags::non_blocking};
  rmm::cuda_stream_view stream{made->view()};
  rmm::cuda_stream_view other{made_other->view()};

  void TearDown() override
  {
    made.reset();
    made_other.reset();
    Stepped::TearDown();
  }

  static std::size_t live(pool const& mr) { return mr.figures().live_bytes; }
};

TEST_F(MemoryReservation, KeepsItsBytesFromOthers)
{
  pool mr{&upstream, MiB, MiB};
  auto r = mr.reserve(768 * KiB, stream);
  EXPECT_EQ(r.bytes(), 768 * KiB);
  EXPECT_EQ(live(mr), 768 * KiB);
  EXPECT_THROW(static_cast<void>(mr.allocate(512 * KiB, stream)), rmm::out_of_memory);
}

TEST_F(MemoryReservation, ServesWhatWasReservedInOnePieceOrInMany)
{
  pool mr{&upstream, MiB, MiB};
  auto r            = mr.reserve(MiB, stream);
  void* const whole = r.resource().allocate(MiB, stream);
  EXPECT_EQ(r.used_bytes(), MiB);
  r.resource().deallocate(whole, MiB, stream);
  std::vector<void*> parts;
  for (std::size_t i = 0; i < MiB / 256; ++i) { parts.push_back(r.resource().allocate(1 + i % 256, other)); }
  EXPECT_EQ(r.used_bytes(), MiB);
  for (std::size_t i = 0; i < parts.size(); ++i) { r.resource().deallocate(parts[i], 1 + i % 256, stream); }
  EXPECT_EQ(r.used_bytes(), 0U);
}

TEST_F(MemoryReservation, ShowsItsMemoryInASnapshot)
{
  using state = rmm::memory_snapshot::state;
  pool mr{&upstream, MiB, MiB};
  void* const of_others = mr.allocate(1000, stream);
  auto r                = mr.reserve(64 * KiB, stream);
  void* const ptr       = r.resource().allocate(40 * KiB, stream);
  auto const now        = r.snapshot();
  ASSERT_EQ(now.blocks.size(), 1U);
  EXPECT_EQ(now.blocks[0].bytes, 64 * KiB);
  EXPECT_EQ(now.bytes_of(state::live), 40 * KiB);
  EXPECT_EQ(now.bytes_of(state::free) + now.bytes_of(state::cached), 24 * KiB);
  EXPECT_EQ(now.figures.live_bytes, r.figures().live_bytes);
  r.resource().deallocate(ptr, 40 * KiB, stream);
  r.release();
  EXPECT_THROW(static_cast<void>(r.snapshot()), rmm::logic_error);
  mr.deallocate(of_others, 1000, stream);
}

TEST_F(MemoryReservation, IsAlsoAnUpperBound)
{
  pool mr{&upstream, MiB, MiB};
  auto r          = mr.reserve(64 * KiB, stream);
  void* const ptr = r.resource().allocate(40 * KiB, stream);
  try {
    static_cast<void>(r.resource().allocate(24 * KiB + 1, stream));
    FAIL() << "expected out_of_memory";
  } catch (rmm::out_of_memory const& e) {
    std::string const text{e.what()};
    EXPECT_NE(text.find("Reservation exceeded (failed to allocate 24.000977 KiB): 40.000000 KiB of 64.000000 KiB"),
              std::string::npos)
      << text;
    ASSERT_NE(e.report(), nullptr);
    EXPECT_EQ(e.report()->maximum_bytes, 64 * KiB);
  }
  r.resource().deallocate(ptr, 40 * KiB, stream);
}

TEST_F(MemoryReservation, RefusesSizesThatOverflowRoundingAndTakesNothingForNone)
{
  pool mr{&upstream, MiB, MiB};
  auto r = mr.reserve(64 * KiB, stream);
  EXPECT_THROW(static_cast<void>(r.resource().allocate(SIZE_MAX, stream)), rmm::bad_alloc);
  EXPECT_EQ(r.resource().allocate(0, stream), nullptr);
  r.resource().deallocate(nullptr, 0, stream);
  EXPECT_EQ(r.used_bytes(), 0U);
}

TEST_F(MemoryReservation, GivesBackAtItsEnd)
{
  pool mr{&upstream, MiB, MiB};
  {
    auto const r = mr.reserve(MiB, stream);
  }
  EXPECT_EQ(live(mr), 0U);
  void* const whole = mr.allocate(MiB, other);
  write(whole, MiB, other);
  mr.deallocate(whole, MiB, other);
}

TEST_F(MemoryReservation, GivesBackInTheOrderOfItsStreamWithoutWaitingOnTheHost)
{
  pool mr{&upstream, MiB, MiB};
  {
    auto const r     = mr.reserve(MiB, stream);
    void* const mine = r.resource().allocate(300 * KiB, stream);
    void* const its  = r.resource().allocate(200 * KiB, other);
    write(mine, 300 * KiB, stream);
    write(its, 200 * KiB, other);
    r.resource().deallocate(mine, 300 * KiB, stream);
    r.resource().deallocate(its, 200 * KiB, other);
  }
  EXPECT_GT(cudasim::pending(stream), 0U);
  EXPECT_EQ(mr.figures().device_synchronizations, 0U);
  rmm::cuda_stream const third{rmm::cuda_stream::flags::non_blocking};
  void* const whole = mr.allocate(MiB, third);
  write(whole, MiB, third);  // the checker verifies that this waits for both
  mr.deallocate(whole, MiB, third);
}

TEST_F(MemoryReservation, BlocksMayOutliveItAndKeepOnlyThemselves)
{
  pool mr{&upstream, MiB, MiB};
  std::optional<rmm::device_buffer> result;
  {
    auto const r = mr.reserve(MiB, stream);
    rmm::device_buffer const scratch{500 * KiB, stream, r};
    result.emplace(10 * KiB, stream, r);
    write(result->data(), result->size(), stream);
  }
  EXPECT_EQ(live(mr), 10 * KiB);
  void* const rest = mr.allocate(500 * KiB, stream);
  result->set_stream(other);
  result.reset();
  EXPECT_EQ(live(mr), 500 * KiB);
  mr.deallocate(rest, 500 * KiB, stream);
  void* const whole = mr.allocate(MiB, stream);
  write(whole, MiB, stream);
  mr.deallocate(whole, MiB, stream);
}

TEST_F(MemoryReservation, RefusesToServeOnceItHasEnded)
{
  pool mr{&upstream, MiB, MiB};
  auto r            = mr.reserve(MiB, stream);
  auto& resource    = r.resource();
  void* const block = resource.allocate(256, stream);
  r.release();
  EXPECT_EQ(r.bytes(), 0U);
  EXPECT_EQ(r.used_bytes(), 0U);
  EXPECT_THROW(static_cast<void>(r.resource()), rmm::logic_error);
  EXPECT_THROW(static_cast<void>(r.reserve(256, stream)), rmm::logic_error);
  EXPECT_THROW(static_cast<void>(resource.allocate(256, stream)), rmm::out_of_memory);  // lives as long as the block
  resource.deallocate(block, 256, stream);
  EXPECT_EQ(live(mr), 0U);
}

TEST_F(MemoryReservation, MovesAndIsReleasedOnce)
{
  pool mr{&upstream, MiB, MiB};
  auto first = mr.reserve(256 * KiB, stream);
  auto moved = std::move(first);
  EXPECT_EQ(moved.bytes(), 256 * KiB);
  auto second = mr.reserve(128 * KiB, stream);
  second      = std::move(moved);
  EXPECT_EQ(second.bytes(), 256 * KiB);
  second.release();
  second.release();
  moved.release();
  EXPECT_EQ(live(mr), 0U);
}

TEST_F(MemoryReservation, ThrowsOrSaysNothingIfThePoolHasNotSoMuch)
{
  pool mr{&upstream, MiB, MiB};
  EXPECT_THROW(static_cast<void>(mr.reserve(2 * MiB, stream)), rmm::out_of_memory);
  EXPECT_FALSE(mr.try_reserve(2 * MiB, stream).has_value());
  EXPECT_FALSE(mr.try_reserve(SIZE_MAX - 512, stream).has_value());
  EXPECT_FALSE(mr.try_reserve(SIZE_MAX, stream).has_value());
  auto all = mr.try_reserve(MiB, stream);
  ASSERT_TRUE(all.has_value());
  EXPECT_FALSE(all->try_reserve(SIZE_MAX, stream).has_value());
  EXPECT_THROW(static_cast<void>(mr.reserve(0, stream)), rmm::logic_error);
  EXPECT_EQ(mr.figures().recovery.failures, 1U);
}

TEST_F(MemoryReservation, CallsTheCallbackOnlyIfNecessary)
{
  pool mr{&upstream, MiB, MiB};
  void* held = mr.allocate(MiB, stream);
  mr.set_failure_callback([&](std::size_t, void*) {
    mr.deallocate(std::exchange(held, nullptr), MiB, stream);
    return true;
  });
  EXPECT_FALSE(mr.try_reserve(MiB, stream).has_value());
  EXPECT_NE(held, nullptr);
  EXPECT_EQ(mr.reserve(MiB, stream).bytes(), MiB);
}

TEST_F(MemoryReservation, MayEndInTheCallbackOfItsOwnAllocation)
{
  pool mr{&upstream, MiB, MiB};
  auto r           = mr.reserve(512 * KiB, stream);
  auto& resource   = r.resource();
  void* const rest = mr.allocate(512 * KiB, stream);
  std::array<void*, 4> parts{};
  for (auto& each : parts) { each = resource.allocate(128 * KiB, stream); }
  resource.deallocate(parts[0], 128 * KiB, stream);
  resource.deallocate(parts[2], 128 * KiB, stream);
  int calls = 0;
  mr.set_failure_callback([&](std::size_t, void*) {  // afterwards the pool could serve the request
    resource.deallocate(parts[1], 128 * KiB, stream);
    r.release();
    return ++calls == 1;
  });
  EXPECT_THROW(static_cast<void>(resource.allocate(256 * KiB, stream)), rmm::out_of_memory);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(live(mr), 512 * KiB + 128 * KiB);
  resource.deallocate(parts[3], 128 * KiB, stream);
  mr.deallocate(rest, 512 * KiB, stream);
  void* const whole = mr.allocate(MiB, stream);
  mr.deallocate(whole, MiB, stream);
}

TEST_F(MemoryReservation, GrowsThePoolIfItMay)
{
  pool mr{&upstream, 0};
  auto const r = mr.try_reserve(MiB + 1, stream);
  ASSERT_TRUE(r.has_value());
  EXPECT_EQ(r->bytes(), MiB + 256);
  EXPECT_EQ(mr.pool_size(), MiB + 256);
}

TEST_F(MemoryReservation, Nests)
{
  pool mr{&upstream, MiB, MiB};
  auto outer = mr.reserve(512 * KiB, stream);
  auto inner = outer.reserve(384 * KiB, stream);
  EXPECT_EQ(outer.used_bytes(), 384 * KiB);
  EXPECT_FALSE(outer.try_reserve(256 * KiB, stream).has_value());
  EXPECT_THROW(static_cast<void>(outer.reserve(256 * KiB, stream)), rmm::out_of_memory);
  void* const ptr = inner.resource().allocate(384 * KiB, other);
  write(ptr, 384 * KiB, other);
  EXPECT_THROW(static_cast<void>(inner.resource().allocate(256, stream)), rmm::out_of_memory);
  inner.resource().deallocate(ptr, 384 * KiB, other);
  inner.release();
  EXPECT_EQ(outer.used_bytes(), 0U);
}

TEST_F(MemoryReservation, NestedOnesMayOutliveTheOuter)
{
  pool mr{&upstream, MiB, MiB};
  std::optional<memory_reservation> inner;
  {
    auto outer = mr.reserve(512 * KiB, stream);
    inner      = outer.reserve(128 * KiB, stream);
  }
  EXPECT_EQ(live(mr), 128 * KiB);
  auto& its       = inner->resource();
  void* const ptr = its.allocate(64 * KiB, stream);
  write(ptr, 64 * KiB, stream);
  inner.reset();
  EXPECT_EQ(live(mr), 64 * KiB);
  its.deallocate(ptr, 64 * KiB, stream);
  EXPECT_EQ(live(mr), 0U);
  void* const whole = mr.allocate(MiB, other);
  write(whole, MiB, other);
  mr.deallocate(whole, MiB, other);
}

TEST_F(MemoryReservation, ShrinksToItsUsedBytes)
{
  pool mr{&upstream, MiB, MiB};
  auto r          = mr.reserve(MiB, stream);
  void* const ptr = r.resource().allocate(300 * KiB, other);
  write(ptr, 300 * KiB, other);
  EXPECT_EQ(r.shrink_to(2 * MiB), 0U);
  EXPECT_EQ(r.shrink_to(400 * KiB), 624 * KiB);
  EXPECT_EQ(r.bytes(), 400 * KiB);
  EXPECT_EQ(r.figures().live_bytes, 300 * KiB);
  EXPECT_EQ(r.figures().free_bytes, 100 * KiB);
  EXPECT_EQ(r.figures().reserved_bytes, 400 * KiB);
  EXPECT_EQ(live(mr), 400 * KiB);
  EXPECT_EQ(r.shrink_to(0), 100 * KiB);
  EXPECT_EQ(r.bytes(), 300 * KiB);
  EXPECT_EQ(r.used_bytes(), 300 * KiB);
  EXPECT_THROW(static_cast<void>(r.resource().allocate(256, stream)), rmm::out_of_memory);
  EXPECT_EQ(live(mr), 300 * KiB);
  r.resource().deallocate(ptr, 300 * KiB, other);
  void* const again = r.resource().allocate(300 * KiB, stream);
  write(again, 300 * KiB, stream);
  r.resource().deallocate(again, 300 * KiB, stream);
  r.release();
  EXPECT_EQ(live(mr), 0U);
  void* const whole = mr.allocate(MiB, other);
  write(whole, MiB, other);
  mr.deallocate(whole, MiB, other);
}

TEST_F(MemoryReservation, AsksThePoolWhereItsOwnFreeMemoryIsInPieces)
{
  pool mr{&upstream, MiB, MiB};
  auto r = mr.reserve(4 * KiB, stream);
  std::array<void*, 4> parts{};
  for (auto& part : parts) { part = r.resource().allocate(KiB, stream); }
  r.resource().deallocate(parts[0], KiB, stream);
  r.resource().deallocate(parts[2], KiB, stream);
  void* const two = r.resource().allocate(2 * KiB, stream);
  EXPECT_EQ(live(mr), 6 * KiB);
  EXPECT_EQ(r.used_bytes(), 4 * KiB);
  EXPECT_THROW(static_cast<void>(r.resource().allocate(256, stream)), rmm::out_of_memory);
  r.resource().deallocate(parts[1], KiB, stream);
  r.resource().deallocate(parts[3], KiB, stream);
  auto& its = r.resource();
  r.release();
  EXPECT_EQ(live(mr), 2 * KiB);
  its.deallocate(two, 2 * KiB, stream);
  EXPECT_EQ(live(mr), 0U);
}

TEST_F(MemoryReservation, LeavesThePoolWhole)
{
  // Frees the parts one by one, in all orders, by several threads. Afterwards the pool's memory is in one piece.
  rmm::test::worker thread;
  for (int round = 0; round < 20; ++round) {
    pool mr{&upstream, MiB, MiB};
    std::vector<void*> blocks;
    rmm::mr::device_memory_resource* its{};
    {
      auto const r = mr.reserve(MiB, stream);
      its          = &r.resource();
      for (int i = 0; i < 64; ++i) { blocks.push_back(its->allocate(8 * KiB, i % 2 == 0 ? stream : other)); }
    }
    std::mt19937 random{static_cast<unsigned>(round)};
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      auto const on = i % 3 == 0 ? stream : other;
      write(blocks[i], 8 * KiB, on);
      auto const free = [&] { its->deallocate(blocks[i], 8 * KiB, on); };
      if (i % 2 == 0) {
        free();
      } else {
        thread.run(free);
      }
    }
    EXPECT_EQ(live(mr), 0U);
    EXPECT_EQ(mr.figures().largest_free_bytes, MiB);
  }
}

TEST_F(MemoryReservation, KeepsItsTagForWhatIsNotGivenBackYet)
{
  pool mr{&upstream, MiB, MiB};
  mr.track_tags();
  auto const of = [&](char const* name) {
    std::size_t bytes{};
    for (auto const& holder : mr.live_by_tag_name()) { bytes += holder.tag == name ? holder.bytes : 0; }
    return bytes;
  };
  auto r = [&] {
    rmm::tag_scope const scope{rmm::tag{"reserving"}};
    return mr.reserve(MiB, stream);
  }();
  auto& part = r.resource();
  std::vector<void*> blocks;
  for (int i = 0; i != 4; ++i) { blocks.push_back(part.allocate(256 * KiB, stream)); }
  EXPECT_EQ(of("reserving"), MiB);
  std::sort(blocks.begin(), blocks.end());
  r.release();
  for (std::size_t const which : {2U, 0U, 1U, 3U}) {  // from the middle, at the edges, and between freed parts
    part.deallocate(blocks[which], 256 * KiB, stream);
    rmm::tag_scope const scope{rmm::tag{"next"}};
    void* const again = mr.allocate(256 * KiB, stream);
    EXPECT_EQ(again, blocks[which]);
    EXPECT_EQ(of("reserving") + of("next"), MiB);
    auto const shown = mr.snapshot();
    for (auto const& block : shown.blocks) {
      for (auto const& each : block.ranges) {
        bool const is_next = each.address <= reinterpret_cast<std::uintptr_t>(again) &&
                             reinterpret_cast<std::uintptr_t>(again) < each.address + each.bytes;
        if (is_next) { EXPECT_EQ(std::string{each.label.name()}, "next"); }
      }
    }
  }
  EXPECT_EQ(of("reserving"), 0U);
  for (void* const each : blocks) { mr.deallocate(each, 256 * KiB, stream); }
  EXPECT_EQ(of("next"), 0U);
}

TEST_F(MemoryReservation, ServesContainers)
{
  pool mr{&upstream, MiB, MiB};
  auto const r = mr.reserve(512 * KiB, stream);
  rmm::device_uvector<int> values{1000, stream, r};
  EXPECT_EQ(r.used_bytes(), 4096U);
  values.resize(2000, stream);
  EXPECT_EQ(r.used_bytes(), 8192U);
}

TEST_F(MemoryReservation, RandomProgramsAreOrdered)
{
  rmm::test::for_each_seed(60, [&](std::uint64_t seed) {
    made.reset();
    made_other.reset();
    begin(seed);
    {
      rmm::mr::cuda_memory_resource cuda;
      rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 4 * MiB, 4 * MiB};
      std::vector<rmm::cuda_stream> streams;
      for (int i = 0; i < 3; ++i) { streams.emplace_back(rmm::cuda_stream::flags::non_blocking); }
      std::mt19937_64 random{seed};
      auto const any_stream = [&]() -> rmm::cuda_stream_view { return streams[random() % streams.size()]; };
      struct block {
        rmm::mr::device_memory_resource* from;
        void* ptr;
        std::size_t bytes;
        rmm::cuda_stream_view stream;
      };
      std::vector<memory_reservation> reservations;
      std::vector<block> blocks;
      for (int step = 0; step < 400; ++step) {
        switch (random() % 8) {
          case 0:
            if (auto made_now = mr.try_reserve(1 + random() % MiB, any_stream())) {
              reservations.push_back(std::move(*made_now));
            }
            break;
          case 1:
            if (!reservations.empty()) {
              auto& outer = reservations[random() % reservations.size()];
              if (auto made_now = outer.try_reserve(1 + random() % (256 * KiB), any_stream())) {
                reservations.push_back(std::move(*made_now));
              }
            }
            break;
          case 2:
            if (!reservations.empty()) {
              std::swap(reservations[random() % reservations.size()], reservations.back());
              reservations.pop_back();
            }
            break;
          case 3:
            if (!reservations.empty()) {
              auto& one = reservations[random() % reservations.size()];
              one.shrink_to(random() % (one.bytes() + 1));
            }
            break;
          case 4:
          case 5:
            if (!blocks.empty()) {
              std::swap(blocks[random() % blocks.size()], blocks.back());
              auto const [from, ptr, bytes, own] = blocks.back();
              blocks.pop_back();
              auto on = own;
              if (random() % 4 == 0) {  // on another stream, with the program's own ordering
                on = any_stream();
                own.synchronize();
              }
              write(ptr, bytes, on);
              from->deallocate(ptr, bytes, on);
            }
            break;
          default: {
            rmm::mr::device_memory_resource* from = &mr;
            if (!reservations.empty() && random() % 4 != 0) {
              from = &reservations[random() % reservations.size()].resource();
            }
            auto const bytes = 1 + random() % (random() % 2 == 0 ? 2 * KiB : 200 * KiB);
            auto const on    = any_stream();
            try {
              void* const ptr = from->allocate(bytes, on);
              write(ptr, bytes, on);
              blocks.push_back({from, ptr, bytes, on});
            } catch (rmm::out_of_memory const&) {}
          }
        }
        for (auto i = random() % 3; i != 0; --i) { static_cast<void>(cudasim::step()); }
      }
      reservations.clear();
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      for (auto const& [from, ptr, bytes, on] : blocks) { from->deallocate(ptr, bytes, on); }
      ASSERT_EQ(mr.figures().live_bytes, 0U);
      ASSERT_EQ(mr.figures().largest_free_bytes, 4 * MiB);
    }
    ASSERT_TRUE(cudasim::violations().empty()) << cudasim::violations().front().text;
  });
}

TEST_F(MemoryReservation, LosesNothingWhateverCallFails)
{
  rmm::mr::cuda_memory_resource cuda;
  pool mr{&cuda, MiB, MiB};
  std::uint64_t runs  = 0;
  auto const scenario = [&] {
    rmm::mr::device_memory_resource* its{};
    void* kept{};
    try {
      auto r           = mr.reserve(512 * KiB, stream);
      its              = &r.resource();
      kept             = its->allocate(64 * KiB, other);
      void* const mine = its->allocate(100 * KiB, stream);
      its->deallocate(mine, 100 * KiB, stream);
      r.shrink_to(300 * KiB);
    } catch (std::bad_alloc const&) {}
    if (kept != nullptr) { its->deallocate(kept, 64 * KiB, other); }
  };
  for (auto const* const function : {"cudaEventCreateWithFlags",
                                     "cudaEventRecord",
                                     "cudaEventQuery",
                                     "cudaStreamWaitEvent",
                                     "cudaStreamGetId",
                                     "cudaDeviceSynchronize"}) {
    auto const verify = [&](std::uint64_t n) {
      EXPECT_EQ(live(mr), 0U) << function << " " << n;
      EXPECT_EQ(mr.figures().free_bytes, MiB) << function << " " << n;
    };
    runs += cudasim::for_each_fault(scenario, verify, cudaErrorUnknown, function);
  }
  EXPECT_GT(runs, 10U);
}

/// Uses real threads, which sanitizers can check.
struct MemoryReservationThreads : Simulated {};

TEST_F(MemoryReservationThreads, ShareOneAndFreeAfterItsEnd)
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 8 * MiB, 8 * MiB};
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> threads;
    {
      auto r            = mr.reserve(4 * MiB);
      auto& its         = r.resource();
      auto const worker = [&its](unsigned seed, void* first) {
        std::mt19937 random{seed};
        rmm::cuda_stream const mine{rmm::cuda_stream::flags::non_blocking};
        std::vector<std::pair<void*, std::size_t>> blocks{{first, 256}};
        for (int i = 0; i < 300; ++i) {
          std::size_t const bytes = 1 + random() % (16 * KiB);
          try {
            blocks.emplace_back(its.allocate(bytes, mine), bytes);
          } catch (rmm::out_of_memory const&) {}  // the reservation is full, or has ended
          if (random() % 2 == 0 && blocks.size() > 1) {
            its.deallocate(blocks.back().first, blocks.back().second, mine);
            blocks.pop_back();
          }
        }
        while (!blocks.empty()) {  // the first block last, because it keeps the resource alive
          its.deallocate(blocks.back().first, blocks.back().second, mine);
          blocks.pop_back();
        }
      };
      for (unsigned t = 0; t < 3; ++t) { threads.emplace_back(worker, t + 1, its.allocate(256)); }
    }
    for (auto& each : threads) { each.join(); }
    EXPECT_EQ(mr.figures().live_bytes, 0U);
    EXPECT_EQ(mr.figures().largest_free_bytes, 8 * MiB);
  }
}

}  // namespace
