// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"
#include "../../support/recycling_upstream.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/guard_resource_adaptor.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cuda_runtime_api.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

template class rmm::mr::guard_resource_adaptor<rmm::mr::cuda_memory_resource>;

namespace {

using namespace rmm::test;
using rmm::mr::guard_options;
using rmm::mr::guard_resource_adaptor;
using rmm::mr::guard_violation;
using kind = guard_violation::kind;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Guard : ::testing::Test {
  counting_upstream upstream;
  std::mutex mutex;
  std::vector<guard_violation> found;
  std::unique_ptr<guard_resource_adaptor<counting_upstream>> mr{make({})};

  std::unique_ptr<guard_resource_adaptor<counting_upstream>> make(guard_options options)
  {
    options.handler = [this](guard_violation const& violation) {
      std::lock_guard<std::mutex> const lock{mutex};
      found.push_back(violation);
    };
    return std::make_unique<guard_resource_adaptor<counting_upstream>>(&upstream, options);
  }

  void TearDown() override
  {
    mr.reset();
    EXPECT_EQ(upstream.live_count(), 0U);
  }

  static void write(void* ptr, std::ptrdiff_t offset, std::size_t bytes = 1)
  {
    ASSERT_EQ(cudaMemset(static_cast<char*>(ptr) + offset, 1, bytes), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  static std::vector<unsigned char> read(void* ptr, std::size_t bytes)
  {
    std::vector<unsigned char> result(bytes);
    EXPECT_EQ(cudaMemcpy(result.data(), ptr, bytes, cudaMemcpyDefault), cudaSuccess);
    return result;
  }

  [[nodiscard]] std::vector<kind> kinds() const
  {
    std::vector<kind> result;
    for (auto const& each : found) { result.push_back(each.what); }
    return result;
  }
};

TEST_F(Guard, ReportsNothingWithoutMisuse)
{
  for (std::size_t const bytes : {0UL, 1UL, 255UL, 256UL, 1000UL, 1UL << 20U}) {
    void* const ptr = mr->allocate(bytes);
    if (bytes != 0) { write(ptr, 0, bytes); }
    mr->deallocate(ptr, bytes);
  }
  mr.reset();
  EXPECT_THAT(found, IsEmpty());
}

TEST_F(Guard, KeepsTheAlignment)
{
  mr              = make({1});
  void* const ptr = mr->allocate(100);
  EXPECT_TRUE(rmm::is_pointer_aligned(ptr));
  EXPECT_THAT(upstream.asked(), ElementsAre(100 + 2 * 256));
  mr->deallocate(ptr, 100);
}

TEST_F(Guard, FindsAByteWrittenBehindTheEnd)
{
  void* const ptr = mr->allocate(100);
  write(ptr, 103);
  mr->deallocate(ptr, 100);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].what, kind::overrun);
  EXPECT_EQ(found[0].ptr, ptr);
  EXPECT_EQ(found[0].bytes, 100);
  EXPECT_EQ(found[0].offset, 103);
  EXPECT_THAT(found[0].report, HasSubstr("first at offset 103"));
  EXPECT_THAT(found[0].report, HasSubstr("allocated by thread"));
}

TEST_F(Guard, FindsAByteWrittenBeforeTheBegin)
{
  void* const ptr = mr->allocate(100);
  write(ptr, -3);
  mr->deallocate(ptr, 100);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].what, kind::underrun);
  EXPECT_EQ(found[0].offset, -3);
}

TEST_F(Guard, FindsBothEndsOfAZone)
{
  for (std::ptrdiff_t const offset : {-256, -1, 100, 355}) {
    found.clear();
    void* const ptr = mr->allocate(100);
    write(ptr, offset);
    mr->deallocate(ptr, 100);
    ASSERT_THAT(found, SizeIs(1)) << offset;
    EXPECT_EQ(found[0].offset, offset);
  }
}

TEST_F(Guard, FindsASecondFreeAndThePlaceOfTheFirst)
{
  void* const ptr = mr->allocate(100);
  mr->deallocate(ptr, 100);
  mr->deallocate(ptr, 100);
  ASSERT_THAT(kinds(), ElementsAre(kind::double_free));
  EXPECT_EQ(found[0].ptr, ptr);
  EXPECT_EQ(found[0].bytes, 100);
  EXPECT_THAT(found[0].report, HasSubstr("freed by thread"));
  EXPECT_THAT(found[0].report, HasSubstr("allocated by thread"));
  EXPECT_THAT(found[0].report, HasSubstr("#0 in "));
}

TEST_F(Guard, FindsASecondFreeOfMemoryThatUpstreamHasBack)
{
  mr              = make({256, 0});
  void* const ptr = mr->allocate(100);
  mr->deallocate(ptr, 100);
  EXPECT_EQ(upstream.live_count(), 0U);
  mr->deallocate(ptr, 100);
  EXPECT_THAT(kinds(), ElementsAre(kind::double_free));
}

TEST_F(Guard, FindsAFreeOfMemoryOfAnotherResource)
{
  void* const ptr = upstream.allocate(100);
  mr->deallocate(ptr, 100);
  EXPECT_THAT(kinds(), ElementsAre(kind::unknown_pointer));
  EXPECT_EQ(upstream.live_count(), 1U);  // the free was not forwarded
  upstream.deallocate(ptr, 100);
}

TEST_F(Guard, FindsAFreeInsideAnAllocation)
{
  void* const ptr = mr->allocate(1000);
  mr->deallocate(static_cast<char*>(ptr) + 256, 744);
  EXPECT_THAT(kinds(), ElementsAre(kind::unknown_pointer));
  mr->deallocate(ptr, 1000);
}

TEST_F(Guard, FindsAWrongSizeAndFreesTheRightOne)
{
  for (std::size_t const wrong : {0UL, 99UL, 101UL}) {
    found.clear();
    void* const ptr = mr->allocate(100);
    mr->deallocate(ptr, wrong);
    ASSERT_THAT(kinds(), ElementsAre(kind::wrong_size)) << wrong;
    EXPECT_EQ(found[0].bytes, 100);
    EXPECT_THAT(found[0].report, HasSubstr("freed as " + std::to_string(wrong) + " bytes"));
  }
}

TEST_F(Guard, FindsAWriteAfterTheFree)
{
  void* const ptr = mr->allocate(3 << 20);
  mr->deallocate(ptr, 3 << 20);
  write(ptr, (2 << 20) + 5);
  mr.reset();
  ASSERT_THAT(kinds(), ElementsAre(kind::write_after_free));
  EXPECT_EQ(found[0].offset, (2 << 20) + 5);
  EXPECT_THAT(found[0].report, HasSubstr("freed by thread"));
}

TEST_F(Guard, OverwritesNewAndFreedMemory)
{
  void* const ptr = mr->allocate(100);
  EXPECT_THAT(read(ptr, 100), Each(0xCD));
  mr->deallocate(ptr, 100);
  EXPECT_THAT(read(ptr, 100), Each(0xDD));
}

TEST_F(Guard, DelaysRecentlyFreedMemory)
{
  mr = make({256, 2000});
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) { blocks.push_back(mr->allocate(200)); }  // 712 bytes each with red zones
  for (void* const ptr : blocks) { mr->deallocate(ptr, 200); }
  EXPECT_EQ(upstream.live_count(), 2U);
  write(blocks[3], 0);
  write(blocks[4], 0);
  mr.reset();
  ASSERT_THAT(kinds(), ElementsAre(kind::write_after_free, kind::write_after_free));
  EXPECT_EQ(found[0].ptr, blocks[3]);
}

TEST_F(Guard, RemembersTheNewest4096FreesOutsideOfTheQuarantine)
{
  struct new_addresses final : rmm::mr::device_memory_resource {  // returns each address only once
    rmm::mr::cuda_memory_resource cuda;
    char* const begin{static_cast<char*>(cuda.allocate(32 << 20))};
    char* next{begin};
    ~new_addresses() override { cuda.deallocate(begin, 32 << 20); }
    void* do_allocate(std::size_t /*bytes*/, rmm::cuda_stream_view) override
    {
      return std::exchange(next, next + 4096);
    }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
  };
  for (auto const quarantine :
       {std::size_t{0}, std::size_t{2000}}) {  // the second quarantine keeps the first freed block only
    new_addresses fresh;
    guard_options options;
    options.quarantine_bytes = quarantine;
    options.capture_stacks   = false;
    options.handler          = [this](guard_violation const& violation) { found.push_back(violation); };
    guard_resource_adaptor guarded{&fresh, options};
    if (quarantine != 0) { guarded.deallocate(guarded.allocate(100), 100); }
    std::vector<void*> freed;
    for (int i = 0; i < 4097; ++i) {
      freed.push_back(guarded.allocate(2000));
      guarded.deallocate(freed.back(), 2000);
    }
    guarded.deallocate(freed[1], 2000);
    guarded.deallocate(freed[0], 2000);
    EXPECT_THAT(kinds(), ElementsAre(kind::double_free, kind::unknown_pointer));
    found.clear();
  }
}

TEST_F(Guard, EmptiesTheQuarantineBeforeItRunsOutOfMemory)
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 1 << 20, 1 << 20};
  guard_resource_adaptor guarded{&pool};
  for (int i = 0; i < 5; ++i) { guarded.deallocate(guarded.allocate(700'000), 700'000); }
  EXPECT_THROW(guarded.allocate(2 << 20), rmm::out_of_memory);
}

TEST_F(Guard, RefusesSizesWithoutRoomForRedZones)
{
  EXPECT_THROW(mr->allocate(std::numeric_limits<std::size_t>::max()), rmm::bad_alloc);
  EXPECT_THAT(upstream.asked(), IsEmpty());
}

TEST_F(Guard, GivesUpstreamItsMemoryBackIfItCannotBeFilled)
{
  recycling_upstream fake;  // its addresses cannot be accessed
  guard_resource_adaptor guarded{&fake};
  EXPECT_THROW(guarded.allocate(100), rmm::cuda_error);
  cudaGetLastError();
}

TEST_F(Guard, ChecksWritesOfPendingWork)
{
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  void* const ptr = mr->allocate(100, stream);
  ASSERT_EQ(cudaMemsetAsync(ptr, 1, 101, stream.value()), cudaSuccess);  // still pending when it is freed
  mr->deallocate(ptr, 100, stream);
  EXPECT_THAT(kinds(), ElementsAre(kind::overrun));
}

TEST_F(Guard, LeavesCapturesAlone)
{
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  void* const before = mr->allocate(100, stream);
  ASSERT_EQ(cudaStreamBeginCapture(stream.value(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  void* const inside = mr->allocate(100, stream);
  mr->deallocate(inside, 100, stream);
  mr->deallocate(before, 100, stream);
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamEndCapture(stream.value(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_THAT(found, IsEmpty());
}

TEST_F(Guard, IsEqualToItselfOnly)
{
  auto const other = make({});
  EXPECT_TRUE(mr->is_equal(*mr));
  EXPECT_FALSE(mr->is_equal(*other));
}

TEST_F(Guard, GuardsAReference)
{
  guard_options options;
  options.handler = [this](guard_violation const& violation) { found.push_back(violation); };
  guard_resource_adaptor guarded{rmm::device_async_resource_ref{upstream}, options};
  EXPECT_EQ(guarded.get_upstream(), nullptr);
  EXPECT_EQ(guarded.get_upstream_resource(), rmm::device_async_resource_ref{upstream});
  void* const ptr = guarded.allocate(100);
  EXPECT_EQ(upstream.live_count(), 1U);
  write(ptr, 100);
  guarded.deallocate(ptr, 100);
  EXPECT_THAT(kinds(), ElementsAre(kind::overrun));
}

TEST_F(Guard, NeedsAnUpstream) { EXPECT_THROW((guard_resource_adaptor<counting_upstream>{nullptr}), rmm::logic_error); }

TEST_F(Guard, ServesManyThreads)
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 64 << 20};
  guard_options options;
  options.handler          = [](guard_violation const& violation) { ADD_FAILURE() << violation.report; };
  options.quarantine_bytes = 10'000;
  guard_resource_adaptor guarded{&pool, options};
  run_on_threads(4, [&](int number) {
    rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
    auto const bytes = static_cast<std::size_t>(100 * (number + 1));
    for (int i = 0; i < 100; ++i) {
      void* const ptr = guarded.allocate(bytes, stream);
      EXPECT_EQ(cudaMemsetAsync(ptr, 1, bytes, stream.value()), cudaSuccess);
      guarded.deallocate(ptr, bytes, stream);
    }
  });
}

using GuardDeathTest = Guard;

TEST_F(GuardDeathTest, AbortsWithAReportWithoutAHandler)
{
  guard_resource_adaptor unhandled{&upstream};
  auto const free_twice = [&] {
    void* const ptr = unhandled.allocate(100);
    unhandled.deallocate(ptr, 100);
    unhandled.deallocate(ptr, 100);
  };
  EXPECT_DEATH(free_twice(), "RMM guard: memory was freed twice: 0x[0-9a-f]+, 100 bytes");
}

}  // namespace
