// SPDX-License-Identifier: Apache-2.0
//
// What the Python package gives PyTorch to allocate with, without PyTorch.

#include "librmm/_torch_memory.hpp"

#include "../support/graph.hpp"
#include "../support/stepped_heap.hpp"
#include "../support/watched_upstream.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace {

using rmm_python::owners;
using rmm_python::torch_memory;
using pool = rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource>;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

/// Work of `stream` that writes a block. The ordering checker reports it if somebody else may still use that.
void write(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream)
{
  ASSERT_EQ(cudasim::launch(stream.value(), {}, {{ptr, bytes}}), cudaSuccess);
}

struct TwoDevices : Stepped {
  TwoDevices() { begin(0, 2); }  // before members of tests
};

struct TorchMemory : TwoDevices {
  void TearDown() override
  {
    cudasim::run_until_idle();
    for (int device = 0; device < 2; ++device) { owners().set(device, nullptr); }
    torch.reset();
    stream.reset();
    other.reset();
    TwoDevices::TearDown();
  }

  /// Sets a pool of one block for device 0.
  std::shared_ptr<pool> set_pool(std::size_t bytes = MiB)
  {
    auto made = std::make_shared<pool>(&cuda, bytes, bytes);
    owners().set(0, made);
    return made;
  }

  rmm::mr::cuda_memory_resource cuda;
  std::optional<torch_memory> torch{std::in_place};
  std::optional<rmm::cuda_stream> stream{rmm::cuda_stream{rmm::cuda_stream::flags::non_blocking}};
  std::optional<rmm::cuda_stream> other{rmm::cuda_stream{rmm::cuda_stream::flags::non_blocking}};
};

// --- where blocks go back to

TEST_F(TorchMemory, ABlockGoesBackToTheResourceThatItCameFrom)
{
  auto const first  = std::make_shared<rmm::test::watched_upstream>();
  auto const second = std::make_shared<rmm::test::watched_upstream>();
  owners().set(0, first);
  void* const ptr = torch->allocate(1000, 0, stream->value());
  owners().set(0, second);
  torch->deallocate(ptr, 1000, 0, stream->value());
  EXPECT_EQ(first->deallocated().size(), 1U);
  EXPECT_TRUE(second->calls.empty());
}

TEST_F(TorchMemory, ABlockKeepsItsResource)
{
  auto resource                                    = std::make_shared<rmm::test::watched_upstream>();
  std::weak_ptr<rmm::test::watched_upstream> alive = resource;
  owners().set(0, std::move(resource));
  void* const ptr = torch->allocate(1000, 0, stream->value());
  owners().set(0, nullptr);
  EXPECT_FALSE(alive.expired());
  torch->deallocate(ptr, 1000, 0, stream->value());
  EXPECT_TRUE(alive.expired());
}

TEST_F(TorchMemory, TheResourceOfTheDeviceServesWithThatDeviceCurrentAndOnTheStream)
{
  auto const resource = std::make_shared<rmm::test::watched_upstream>();
  owners().set(1, resource);
  void* const ptr = torch->allocate(1000, 1, nullptr);
  torch->deallocate(ptr, 1000, 1, nullptr);
  using call = rmm::test::device_call;
  EXPECT_EQ(resource->allocated(), (std::vector<call>{{call::kind::allocate, 1000, nullptr, 1}}));
  EXPECT_EQ(resource->deallocated(), (std::vector<call>{{call::kind::deallocate, 1000, nullptr, 1}}));
  EXPECT_EQ(rmm::get_current_cuda_device().value(), 0);
}

TEST_F(TorchMemory, NothingIsNothing)
{
  auto const resource = std::make_shared<rmm::test::watched_upstream>();
  owners().set(0, resource);
  void* const nothing = torch->allocate(0, 0, stream->value());
  EXPECT_EQ(nothing, nullptr);
  torch->deallocate(nothing, 0, 0, stream->value());
  EXPECT_TRUE(resource->calls.empty());
}

TEST_F(TorchMemory, RefusesDevicesBelowZero)
{
  EXPECT_THROW(static_cast<void>(torch->of(-1)), rmm::logic_error);
  EXPECT_THROW(static_cast<void>(torch->of(1 << 20)), rmm::logic_error);
}

// --- too little memory

TEST_F(TorchMemory, OutOfMemoryHasTheTextOfPyTorchAndTheReportOfTheResource)
{
  auto const mr = set_pool();
  try {
    static_cast<void>(torch->allocate(2 * MiB, 0, stream->value()));
    FAIL() << "there is no such memory";
  } catch (rmm::out_of_memory const& error) {
    std::string const text{error.what()};
    EXPECT_NE(text.find("CUDA out of memory. Tried to allocate 2.0"), std::string::npos) << text;
    EXPECT_NE(text.find("Maximum pool size exceeded"), std::string::npos) << text;
  }
}

TEST_F(TorchMemory, AFailureIsCountedAndDoesNotRaiseThePeak)
{
  auto const mr = set_pool();
  EXPECT_THROW(static_cast<void>(torch->allocate(2 * MiB, 0, stream->value())), rmm::out_of_memory);
  auto const now = torch->figures(0);
  EXPECT_EQ(now.out_of_memory, 1);
  EXPECT_EQ(now.bytes[0].peak, 0);
  EXPECT_EQ(now.blocks[0].allocated, 0);
}

TEST_F(TorchMemory, AFractionLimitsWhatIsInUse)
{
  auto const resource = std::make_shared<rmm::test::watched_upstream>();
  owners().set(0, resource);
  auto const total = rmm::available_device_memory().second;
  torch->set_fraction(0.25, 0);
  void* const most = torch->allocate(total / 4 - MiB, 0, stream->value());
  EXPECT_THROW(static_cast<void>(torch->allocate(2 * MiB, 0, stream->value())), rmm::out_of_memory);
  EXPECT_EQ(resource->allocated().size(), 1U) << "asked for what may not be had";
  torch->deallocate(most, total / 4 - MiB, 0, stream->value());
  void* const again = torch->allocate(2 * MiB, 0, stream->value());
  torch->deallocate(again, 2 * MiB, 0, stream->value());
}

/// Hands out any number of bytes.
class endless_resource final : public rmm::mr::device_memory_resource {
  void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return this; }
  void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
};

TEST_F(TorchMemory, AFractionLimitsToTheByte)
{
  owners().set(0, std::make_shared<endless_resource>());
  auto const half = rmm::available_device_memory().second / 2;
  torch->set_fraction(0.5, 0);
  void* const ptr = torch->allocate(half, 0, stream->value());
  EXPECT_THROW(static_cast<void>(torch->allocate(1, 0, stream->value())), rmm::out_of_memory);
  torch->deallocate(ptr, half, 0, stream->value());
  EXPECT_THROW(static_cast<void>(torch->allocate(half + 1, 0, stream->value())), rmm::out_of_memory);
}

TEST_F(TorchMemory, AFractionOfOneIsNotTheMemoryOfTheDevice)
{
  owners().set(0, std::make_shared<endless_resource>());
  auto const more = rmm::available_device_memory().second + MiB;
  torch->set_fraction(1.0, 0);
  torch->deallocate(torch->allocate(more, 0, stream->value()), more, 0, stream->value());
}

TEST_F(TorchMemory, AFractionOfOneSetsNoLimit)
{
  auto const mr = set_pool();
  torch->set_fraction(0.0, 0);
  EXPECT_THROW(static_cast<void>(torch->allocate(1, 0, stream->value())), rmm::out_of_memory);
  torch->set_fraction(1.0, 0);
  void* const ptr = torch->allocate(1, 0, stream->value());
  torch->deallocate(ptr, 1, 0, stream->value());
}

// --- figures

TEST_F(TorchMemory, FiguresTellEveryByteAndWhatThePoolHolds)
{
  auto const mr        = set_pool(8 * MiB);
  void* const small    = torch->allocate(1000, 0, stream->value());
  void* const large    = torch->allocate(2 * MiB, 0, stream->value());
  auto const allocated = torch->figures(0);
  torch->deallocate(small, 1000, 0, stream->value());
  torch->deallocate(large, 2 * MiB, 0, stream->value());
  auto const freed = torch->figures(0);
  EXPECT_EQ(allocated.bytes[0].current, static_cast<std::int64_t>(1000 + 2 * MiB));
  EXPECT_EQ(allocated.bytes[1].current, 1000);
  EXPECT_EQ(allocated.bytes[2].current, static_cast<std::int64_t>(2 * MiB));
  EXPECT_EQ(allocated.blocks[0].current, 2);
  EXPECT_EQ(allocated.reserved.current, static_cast<std::int64_t>(8 * MiB));
  EXPECT_EQ(freed.bytes[0].current, 0);
  EXPECT_EQ(freed.bytes[0].peak, static_cast<std::int64_t>(1000 + 2 * MiB));
  EXPECT_EQ(freed.bytes[0].freed, static_cast<std::int64_t>(1000 + 2 * MiB));
}

TEST_F(TorchMemory, FiguresLookBehindAdaptors)
{
  using limiting = rmm::mr::limiting_resource_adaptor<rmm::mr::device_memory_resource>;
  pool behind{&cuda, 4 * MiB, 4 * MiB};
  owners().set(0, std::make_shared<limiting>(&behind, 2 * MiB));
  EXPECT_EQ(torch->figures(0).reserved.current, static_cast<std::int64_t>(4 * MiB));
  owners().set(0, nullptr);
}

TEST_F(TorchMemory, PeaksAndSumsBeginAnew)
{
  auto const mr   = set_pool();
  void* const ptr = torch->allocate(1000, 0, stream->value());
  torch->deallocate(ptr, 1000, 0, stream->value());
  torch->of(0).usage.reset_peaks();
  EXPECT_EQ(torch->figures(0).bytes[0].peak, 0);
  EXPECT_EQ(torch->figures(0).bytes[0].allocated, 1000);
  EXPECT_THROW(static_cast<void>(torch->allocate(2 * MiB, 0, stream->value())), rmm::out_of_memory);
  EXPECT_EQ(torch->figures(0).out_of_memory, 1);
  torch->of(0).usage.reset_sums();
  EXPECT_EQ(torch->figures(0).bytes[0].allocated, 0);
  EXPECT_EQ(torch->figures(0).out_of_memory, 0);
}

TEST_F(TorchMemory, WhatThePoolHoldsGrowsAndShrinksInTheFigures)
{
  auto const mr = std::make_shared<rmm::mr::elastic_pool_memory_resource>();
  owners().set(0, mr);
  void* const ptr = torch->allocate(4 * MiB, 0, stream->value());
  torch->deallocate(ptr, 4 * MiB, 0, stream->value());
  auto const held = static_cast<std::int64_t>(mr->pool_size());
  ASSERT_GT(held, 0);
  cudasim::run_until_idle();
  torch->release_unused_memory();
  auto const found = torch->figures(0).reserved;
  EXPECT_EQ(found.current, 0);
  EXPECT_EQ(found.peak, held) << "it was not read before the memory went back";
  EXPECT_EQ(found.allocated, held);
  EXPECT_EQ(found.freed, held);
}

TEST_F(TorchMemory, FiguresTellWhatAPoolOfCudaHolds)
{
  auto const mr = std::make_shared<rmm::mr::cuda_async_memory_resource>();
  owners().set(0, mr);
  torch->deallocate(torch->allocate(MiB, 0, stream->value()), MiB, 0, stream->value());
  cudasim::run_until_idle();
  EXPECT_GE(torch->figures(0).reserved.current, static_cast<std::int64_t>(MiB));
}

// --- several streams

TEST_F(TorchMemory, ABlockThatAnotherStreamUsesIsFreeAfterItsWork)
{
  auto const mr   = set_pool();
  void* const ptr = torch->allocate(MiB, 0, stream->value());
  rmm::test::order(*stream, *other);
  torch->add_user(ptr, other->value());
  write(ptr, MiB, *other);
  torch->deallocate(ptr, MiB, 0, stream->value());
  void* const again = torch->allocate(MiB, 0, stream->value());
  EXPECT_EQ(again, ptr);
  write(again, MiB, *stream);  // a race unless it is ordered after the other stream's
  torch->deallocate(again, MiB, 0, stream->value());
}

TEST_F(TorchMemory, TheStreamOfABlockDoesNotWaitForOthersThatUseIt)
{
  auto const mr    = set_pool();
  void* const ptr  = torch->allocate(4 * KiB, 0, stream->value());
  void* const mine = torch->allocate(4 * KiB, 0, stream->value());
  cudasim::run_until_idle();
  cudasim::hold(other->value());
  torch->add_user(ptr, other->value());
  write(ptr, 4 * KiB, *other);
  torch->deallocate(ptr, 4 * KiB, 0, stream->value());
  write(mine, 4 * KiB, *stream);
  cudasim::run_until_idle();
  EXPECT_EQ(cudasim::pending(stream->value()), 0U);
  EXPECT_NE(cudasim::pending(other->value()), 0U);
  cudasim::let_go(other->value());
  torch->deallocate(mine, 4 * KiB, 0, stream->value());
}

TEST_F(TorchMemory, ABlockThatAnotherStreamUsesStaysUntilItCanWaitForThat)
{
  auto const mr   = set_pool();
  void* const ptr = torch->allocate(MiB, 0, stream->value());
  torch->add_user(ptr, other->value());
  auto const fired = cudasim::faults_fired();
  for (auto const* const call : {"cudaEventRecord", "cudaEventRecordWithFlags", "cuEventRecord"}) {
    cudasim::inject({call, 1, cudaErrorUnknown, 1});
  }
  torch->deallocate(ptr, MiB, 0, stream->value());
  EXPECT_EQ(cudasim::faults_fired(), fired + 1);
  cudasim::clear_faults();
  EXPECT_THROW(static_cast<void>(mr->allocate(MiB, *stream)), rmm::out_of_memory);
  EXPECT_EQ(torch->allocate(MiB, 0, stream->value()), ptr);
  torch->deallocate(ptr, MiB, 0, stream->value());
}

TEST_F(TorchMemory, ReportsThatAStreamCannotBeMadeBeforeTheBlockGoesBack)
{
  auto const mr   = set_pool();
  void* const ptr = torch->allocate(MiB, 0, stream->value());
  cudasim::inject({"cudaStreamCreateWithFlags", 1, cudaErrorUnknown, 1});
  EXPECT_THROW(torch->add_user(ptr, other->value()), rmm::cuda_error);
  torch->deallocate(ptr, MiB, 0, stream->value());
  EXPECT_EQ(torch->allocate(MiB, 0, stream->value()), ptr);
  torch->deallocate(ptr, MiB, 0, stream->value());
}

TEST_F(TorchMemory, IgnoresTheStreamOfTheBlockItself)
{
  auto const resource = std::make_shared<rmm::test::watched_upstream>();
  owners().set(0, resource);
  void* const ptr = torch->allocate(1000, 0, stream->value());
  torch->add_user(ptr, stream->value());
  torch->deallocate(ptr, 1000, 0, stream->value());
  ASSERT_EQ(resource->deallocated().size(), 1U);
  EXPECT_EQ(resource->deallocated()[0].stream, stream->value());
}

TEST_F(TorchMemory, IgnoresAUserOfAnUnknownBlock)
{
  int elsewhere{};
  torch->add_user(&elsewhere, stream->value());
  EXPECT_EQ(torch->bytes_of(&elsewhere), 0U);
}

// --- segments

TEST_F(TorchMemory, ASegmentMayBeUsedOnAnyStreamAtOnce)
{
  auto const mr   = set_pool();
  void* const ptr = torch->allocate(MiB, 0, stream->value());
  write(ptr, MiB, *stream);
  torch->deallocate(ptr, MiB, 0, stream->value());
  void* const segment = torch->allocate_segment(MiB, 0);
  EXPECT_EQ(segment, ptr);
  write(segment, MiB, *other);  // a race unless the first one is done
  torch->deallocate_segment(segment, 0);
}

TEST_F(TorchMemory, ASegmentGoesBackAfterAllWork)
{
  auto const mr       = set_pool();
  void* const segment = torch->allocate_segment(MiB, 0);
  write(segment, MiB, *other);
  torch->deallocate_segment(segment, 0);
  void* const ptr = torch->allocate(MiB, 0, stream->value());
  EXPECT_EQ(ptr, segment);
  write(ptr, MiB, *stream);
  torch->deallocate(ptr, MiB, 0, stream->value());
}

TEST_F(TorchMemory, ASegmentIsNullIfMemoryIsMissing)
{
  auto const mr = set_pool();
  EXPECT_EQ(torch->allocate_segment(2 * MiB, 0), nullptr);
  EXPECT_EQ(torch->figures(0).out_of_memory, 0) << "it is PyTorch's to count";
}

TEST_F(TorchMemory, ASegmentMayBeAllocatedInACapture)
{
  auto const mr = set_pool();
  void* segment{};
  auto const graph = rmm::test::capture(*stream, [&] { segment = torch->allocate_segment(4 * KiB, 0); });
  EXPECT_NE(segment, nullptr);
  EXPECT_EQ(graph.nodes(), 0U);
  torch->deallocate_segment(segment, 0);
}

TEST_F(TorchMemory, ASegmentThatIsFreedInACaptureGoesBackWhenThatIsOver)
{
  auto const mr       = set_pool();
  void* const segment = torch->allocate_segment(MiB, 0);
  static_cast<void>(rmm::test::capture(*stream, [&] {
    torch->deallocate_segment(segment, 0);
    EXPECT_EQ(torch->figures(0).postponed_bytes, static_cast<std::int64_t>(MiB));
  }));
  torch->free_postponed();
  EXPECT_EQ(torch->figures(0).postponed_bytes, 0);
  EXPECT_EQ(torch->allocate_segment(MiB, 0), segment);
  torch->deallocate_segment(segment, 0);
}

// --- graphs

struct TorchGraphs : TorchMemory {
  rmm_python::torch_graphs::pool_id const id{0, 7};

  /// Whether a stream is in a capture, as PyTorch's function says it.
  static bool captures(cudaStream_t asked) { return rmm::detail::query_capture(asked).is_capturing(); }

  /// Captures what `work` does as PyTorch captures a graph.
  template <class Work>
  [[nodiscard]] rmm::test::graph capture(Work&& work)
  {
    torch->graphs.begin(0, id, captures);
    auto made = rmm::test::capture(*stream, work);
    torch->graphs.end(0, id);
    torch->free_postponed();
    return made;
  }

  /// Whether the pool, which must be all free but for graphs, gives that memory to others.
  [[nodiscard]] bool is_for_others(void* ptr, std::size_t bytes, std::size_t pool_bytes)
  {
    std::vector<void*> all;
    bool found = false;
    for (std::size_t i = 0; i < pool_bytes / bytes; ++i) {
      try {
        all.push_back(torch->allocate(bytes, 0, other->value()));
        found = found || all.back() == ptr;
      } catch (rmm::out_of_memory const&) {
        break;
      }
    }
    for (void* const each : all) { torch->deallocate(each, bytes, 0, other->value()); }
    return found;
  }
};

TEST_F(TorchGraphs, MemoryOfACaptureBelongsToTheGraphUntilItIsReleased)
{
  auto const mr = set_pool();
  void* used{};
  auto graph = capture([&] {
    used = torch->allocate(64 * KiB, 0, stream->value());
    write(used, 64 * KiB, *stream);
    torch->deallocate(used, 64 * KiB, 0, stream->value());
  });
  graph.launch(*stream);
  EXPECT_FALSE(is_for_others(used, 64 * KiB, MiB));
  cudasim::run_until_idle();
  graph = {};
  torch->graphs.release(0, id);
  EXPECT_TRUE(is_for_others(used, 64 * KiB, MiB));
}

TEST_F(TorchGraphs, GraphsOfOnePoolShareMemoryUntilTheLastIsReleased)
{
  auto const mr = set_pool();
  std::vector<void*> used;
  auto const once = [&] {
    used.push_back(torch->allocate(64 * KiB, 0, stream->value()));
    torch->deallocate(used.back(), 64 * KiB, 0, stream->value());
  };
  static_cast<void>(capture(once));
  static_cast<void>(capture(once));
  EXPECT_EQ(used[0], used[1]);
  torch->graphs.release(0, id);
  EXPECT_FALSE(is_for_others(used[0], 64 * KiB, MiB));
  torch->graphs.release(0, id);
  EXPECT_TRUE(is_for_others(used[0], 64 * KiB, MiB));
}

TEST_F(TorchGraphs, StreamsThatAreNotInTheCaptureGoOnAsAlways)
{
  auto const mr = set_pool();
  void* beside{};
  static_cast<void>(capture([&] { beside = torch->allocate(64 * KiB, 0, other->value()); }));
  torch->deallocate(beside, 64 * KiB, 0, other->value());
  EXPECT_TRUE(is_for_others(beside, 64 * KiB, MiB));
  torch->graphs.release(0, id);
}

TEST_F(TorchGraphs, ABlockThatAStreamOfTheCaptureUsesGoesBackWhenThatIsOver)
{
  auto const mr   = set_pool();
  void* const ptr = torch->allocate(64 * KiB, 0, other->value());
  cudasim::run_until_idle();
  auto const graph = capture([&] {
    torch->add_user(ptr, stream->value());
    torch->deallocate(ptr, 64 * KiB, 0, other->value());
    EXPECT_EQ(torch->figures(0).postponed_bytes, static_cast<std::int64_t>(64 * KiB));
  });
  EXPECT_EQ(torch->figures(0).postponed_bytes, 0);
  EXPECT_TRUE(is_for_others(ptr, 64 * KiB, MiB));
  torch->graphs.release(0, id);
}

TEST_F(TorchGraphs, EndAndReleaseWithoutACaptureDoNothing)
{
  torch->graphs.end(0, id);
  torch->graphs.release(0, id);
  EXPECT_FALSE(rmm::detail::announced_captures().any());
}

}  // namespace
