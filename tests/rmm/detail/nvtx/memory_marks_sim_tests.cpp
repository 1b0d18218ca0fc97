// SPDX-License-Identifier: Apache-2.0
//
// The NVTX memory events of pools, as a tool receives them. The program is compiled with RMM_NVTX and has its own tool.

#include <rmm/detail/nvtx/memory_marks.hpp>

#include "../../../support/sanitizers.hpp"
#include "../../../support/seeds.hpp"
#include "../../../support/simulated.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/memory_reservation.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>

namespace {

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

using ranges = std::map<std::uintptr_t, std::size_t>;

/// A tool that NVTX loads. It records heaps and regions, and objects to events that contradict each other.
struct listening_tool {
  std::mutex mutex;
  ranges heaps;
  ranges regions;
  std::string objection;

  static listening_tool& instance()
  {
    static auto* const tool = new listening_tool;
    return *tool;
  }

  static std::pair<std::uintptr_t, std::size_t> range_of(void const* description)
  {
    auto const& range = *static_cast<nvtxMemVirtualRangeDesc_t const*>(description);
    return {reinterpret_cast<std::uintptr_t>(range.ptr), range.size};
  }

  [[nodiscard]] static bool overlaps(ranges const& in, std::uintptr_t begin, std::size_t bytes)
  {
    auto const next = in.lower_bound(begin);
    if (next != in.end() && next->first < begin + bytes) { return true; }
    return next != in.begin() && std::prev(next)->first + std::prev(next)->second > begin;
  }

  static nvtxMemHeapHandle_t NVTX_API begin_heap(nvtxDomainHandle_t, nvtxMemHeapDesc_t const* what)
  {
    auto& self = instance();
    std::lock_guard<std::mutex> const lock{self.mutex};
    auto const [begin, bytes] = range_of(what->typeSpecificDesc);
    if (what->usage != NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR || what->type != NVTX_MEM_TYPE_VIRTUAL_ADDRESS) {
      self.objection += "what kind of heap is that? ";
    }
    if (overlaps(self.heaps, begin, bytes)) { self.objection += "heaps overlap. "; }
    self.heaps[begin] = bytes;
    return reinterpret_cast<nvtxMemHeapHandle_t>(begin);
  }

  static void NVTX_API end_heap(nvtxDomainHandle_t, nvtxMemHeapHandle_t handle)
  {
    auto& self = instance();
    std::lock_guard<std::mutex> const lock{self.mutex};
    auto const heap = self.heaps.find(reinterpret_cast<std::uintptr_t>(handle));
    if (heap == self.heaps.end()) {
      self.objection += "no such heap. ";
      return;
    }
    self.regions.erase(self.regions.lower_bound(heap->first), self.regions.lower_bound(heap->first + heap->second));
    self.heaps.erase(heap);
  }

  static void NVTX_API begin_regions(nvtxDomainHandle_t, nvtxMemRegionsRegisterBatch_t const* what)
  {
    auto& self = instance();
    std::lock_guard<std::mutex> const lock{self.mutex};
    auto const [begin, bytes] = range_of(what->regionDescElements);
    auto const heap           = self.heaps.find(reinterpret_cast<std::uintptr_t>(what->heap));
    if (heap == self.heaps.end() || begin < heap->first || begin + bytes > heap->first + heap->second) {
      self.objection += "a region is not in its heap. ";
    }
    if (overlaps(self.regions, begin, bytes)) { self.objection += "regions overlap. "; }
    self.regions[begin] = bytes;
  }

  static void NVTX_API end_regions(nvtxDomainHandle_t, nvtxMemRegionsUnregisterBatch_t const* what)
  {
    auto& self = instance();
    std::lock_guard<std::mutex> const lock{self.mutex};
    if (self.regions.erase(reinterpret_cast<std::uintptr_t>(what->refElements[0].pointer)) != 1) {
      self.objection += "no such region. ";
    }
  }

  /// Coalesces regions that touch.
  [[nodiscard]] static ranges joined(ranges const& parts)
  {
    ranges all;
    for (auto const& [begin, bytes] : parts) {
      if (!all.empty() && all.rbegin()->first + all.rbegin()->second == begin) {
        all.rbegin()->second += bytes;
      } else {
        all[begin] = bytes;
      }
    }
    return all;
  }
};

int NVTX_API start_tool(nvtxExtModuleInfo_t* module)
{
  if (module->moduleId != NVTX_EXT_MODULEID_MEM) { return 0; }
  auto* const slots                             = module->segments[0].functionSlots;
  slots[NVTX3EXT_CBID_nvtxMemHeapRegister]      = reinterpret_cast<std::intptr_t>(listening_tool::begin_heap);
  slots[NVTX3EXT_CBID_nvtxMemHeapUnregister]    = reinterpret_cast<std::intptr_t>(listening_tool::end_heap);
  slots[NVTX3EXT_CBID_nvtxMemRegionsRegister]   = reinterpret_cast<std::intptr_t>(listening_tool::begin_regions);
  slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = reinterpret_cast<std::intptr_t>(listening_tool::end_regions);
  return 1;
}

// NVTX calls this pointer when it is first used.
[[maybe_unused]] auto const tool_is_there = InitializeInjectionNvtxExtension_fnptr = start_tool;

struct MemoryMarks : FreshMachine {
  listening_tool& tool{listening_tool::instance()};
  rmm::mr::cuda_memory_resource cuda;

  void TearDown() override
  {
    EXPECT_EQ(tool.objection, "");
    EXPECT_TRUE(tool.heaps.empty());
    EXPECT_TRUE(tool.regions.empty());
    tool.objection.clear();
    Simulated::TearDown();
  }

  /// Allocates and frees at random. After each step, the regions of the tool must be the live allocations.
  template <class Resource, class Now>
  void run_random_program(Resource& mr, std::uint64_t seed, std::size_t largest, Now now_and_then)
  {
    std::mt19937_64 random{seed};
    rmm::cuda_stream const stream;
    ranges live;
    for (int i = 0; i < 200; ++i) {
      if (live.empty() || random() % 5 < 3) {
        auto const bytes                                                   = 1 + random() % largest;
        live[reinterpret_cast<std::uintptr_t>(mr.allocate(bytes, stream))] = bytes;
      } else {
        auto const freed = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
        mr.deallocate(reinterpret_cast<void*>(freed->first), freed->second, stream);
        live.erase(freed);
      }
      now_and_then(i);
      ASSERT_EQ(listening_tool::joined(tool.regions), listening_tool::joined(live)) << "step " << i;
    }
    for (auto const& [begin, bytes] : live) { mr.deallocate(reinterpret_cast<void*>(begin), bytes, stream); }
    EXPECT_TRUE(tool.regions.empty());
    stream.synchronize();
  }
};

TEST_F(MemoryMarks, ReportAllocationsOfAPoolToTheByte)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 1 * MiB};
  EXPECT_EQ(tool.heaps.size(), 1U);
  void* const ptr = mr.allocate(1000);
  EXPECT_EQ(tool.regions, (ranges{{reinterpret_cast<std::uintptr_t>(ptr), 1000}}));
  mr.deallocate(ptr, 1000);
  EXPECT_TRUE(tool.regions.empty());
}

TEST_F(MemoryMarks, AreNotBypassedByNonblockingCalls)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 1 * MiB};
  mr.set_check_capture(false);
  rmm::cuda_stream const stream;
  mr.deallocate(mr.allocate(KiB, stream), KiB, stream);
  EXPECT_EQ(mr.try_allocate_nonblocking(KiB, stream), nullptr);
  auto* const ptr = mr.allocate(KiB, stream);
  EXPECT_FALSE(mr.try_deallocate_nonblocking(ptr, KiB, stream));
  mr.deallocate(ptr, KiB, stream);
  EXPECT_TRUE(tool.regions.empty());
}

TEST_F(MemoryMarks, FollowAPoolThatGrows)
{
  rmm::test::for_each_seed(4, [&](std::uint64_t seed) {
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 256 * KiB};
    run_random_program(mr, seed, 64 * KiB, [](int) {});
  });
}

TEST_F(MemoryMarks, FollowAnElasticPoolThatGrowsInPlaceAndTrims)
{
  rmm::test::for_each_seed(4, [&](std::uint64_t seed) {
    rmm::mr::elastic_pool_memory_resource mr;
    run_random_program(mr, seed, 8 * MiB, [&](int step) {
      if (step % 17 == 0) { mr.trim_to(0); }
    });
  });
}

TEST_F(MemoryMarks, FollowAnArenaAndBlocksOfOneSize)
{
  rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> arena{&cuda, 32 * MiB};
  run_random_program(arena, 1, 64 * KiB, [](int) {});
  rmm::mr::fixed_size_memory_resource<rmm::mr::cuda_memory_resource> blocks{&cuda, 64 * KiB, 8};
  run_random_program(blocks, 1, 64 * KiB, [](int) {});
}

TEST_F(MemoryMarks, ComeFromTheInnermostPoolOnly)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> outer{&cuda, 4 * MiB};
  void* const beside = outer.allocate(300);
  {
    rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource> inner{&outer, 1 * MiB};
    EXPECT_EQ(tool.regions.size(), 1U);
    void* const ptr = inner.allocate(1000);
    EXPECT_EQ(tool.regions.size(), 2U);
    EXPECT_EQ(tool.regions.at(reinterpret_cast<std::uintptr_t>(ptr)), 1000U);
    inner.deallocate(ptr, 1000);
  }
  EXPECT_EQ(tool.heaps.size(), 1U);
  EXPECT_EQ(tool.regions, (ranges{{reinterpret_cast<std::uintptr_t>(beside), 300}}));
  outer.deallocate(beside, 300);
}

TEST_F(MemoryMarks, DoNotMakeAForkedChildWaitForThreadsOfItsParent)
{
  if (RMM_TEST_UNDER_SANITIZER) { GTEST_SKIP() << "a forked child waits for locks of the sanitizer"; }
  static char memory[1024];  // the tool does not look at it
  std::atomic<bool> ends{false};
  std::atomic<bool> runs{false};
  rmm::detail::mark_memory_begins(memory, sizeof memory);
  std::thread marks{[&] {
    for (; !ends; runs = true) { rmm::detail::mark_freed(rmm::detail::mark_allocated(memory, 512), 512); }
  }};
  while (!runs) { std::this_thread::yield(); }
  for (int i = 0; i != 100 && !HasFailure(); ++i) {
    auto const child = ::fork();
    if (child == 0) {
      ::alarm(20);  // instead of hanging
      rmm::detail::mark_freed(rmm::detail::mark_allocated(memory + 512, 512), 512);
      rmm::detail::mark_memory_ends(memory, sizeof memory);
      ::_Exit(0);
    }
    int status = 1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "fork " << i;
  }
  ends = true;
  marks.join();
  rmm::detail::mark_memory_ends(memory, sizeof memory);
}

TEST_F(MemoryMarks, CountReservedMemoryAsAllocated)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 1 * MiB};
  {
    auto reserved = mr.reserve(64 * KiB);
    EXPECT_EQ(tool.regions.size(), 1U);
    void* const ptr = reserved.resource().allocate(1000);
    reserved.resource().deallocate(ptr, 1000);
  }
  EXPECT_TRUE(tool.regions.empty());
}

}  // namespace
