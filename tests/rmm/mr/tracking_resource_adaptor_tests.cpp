// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"
#include "../../support/mock_resource.hpp"
#include "../../support/recycling_upstream.hpp"

#include <rmm/detail/base/log_hook.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <locale>
#include <memory>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace rmm::test;
using rmm::detail::log_level;
using rmm::mr::tracking_resource_adaptor;
using adaptor = tracking_resource_adaptor<counting_upstream>;
using ::testing::HasSubstr;

constexpr std::size_t ten_mib{10 << 20};

static_assert(!std::is_default_constructible_v<adaptor::allocation_info>);

std::vector<std::pair<log_level, std::string>> messages;
void record(log_level level, char const* message) noexcept { messages.emplace_back(level, message); }

struct Tracking : ::testing::Test {
  counting_upstream upstream;
  adaptor mr{&upstream};
  rmm::detail::log_function previous_hook{rmm::detail::log_hook.exchange(record)};

  void SetUp() override { messages.clear(); }
  void TearDown() override
  {
    rmm::detail::log_hook.store(previous_hook);
    EXPECT_EQ(upstream.live_count(), 0U);
  }
};

TEST_F(Tracking, KnowsNothingInitially)
{
  EXPECT_TRUE(mr.get_outstanding_allocations().empty());
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
  EXPECT_EQ(mr.get_outstanding_allocations_str(), "");
}

TEST_F(Tracking, KnowsWhatIsOutstanding)
{
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) { blocks.push_back(mr.allocate(ten_mib)); }
  for (std::size_t i = 0; i < 10; i += 2) { mr.deallocate(blocks[i], ten_mib); }
  EXPECT_EQ(mr.get_allocated_bytes(), 5 * ten_mib);
  auto const& outstanding = mr.get_outstanding_allocations();
  ASSERT_EQ(outstanding.size(), 5U);
  for (std::size_t i = 1; i < 10; i += 2) {
    ASSERT_EQ(outstanding.count(blocks[i]), 1U);
    EXPECT_EQ(outstanding.at(blocks[i]).allocation_size, ten_mib);
    EXPECT_EQ(outstanding.at(blocks[i]).strace, nullptr);
    mr.deallocate(blocks[i], ten_mib);
  }
  EXPECT_TRUE(outstanding.empty());
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
  EXPECT_TRUE(messages.empty());
}

TEST_F(Tracking, ListsWhatIsOutstanding)
{
  void* const ptr = mr.allocate(123);
  std::ostringstream expected;
  expected << ptr << ": 123 B\n";
  EXPECT_EQ(mr.get_outstanding_allocations_str(), expected.str());
  mr.deallocate(ptr, 123);
}

TEST_F(Tracking, ListsCallStacksWhereItCapturesThem)
{
  adaptor with_stacks{&upstream, true};
  void* const ptr = with_stacks.allocate(123);
  EXPECT_NE(with_stacks.get_outstanding_allocations().at(ptr).strace, nullptr);
  EXPECT_THAT(with_stacks.get_outstanding_allocations_str(), HasSubstr("123 B : callstack:\n#0 in "));
  with_stacks.deallocate(ptr, 123);
}

TEST_F(Tracking, CountsRequestedBytes)
{
  void* const ptr = mr.allocate(5);
  EXPECT_EQ(mr.get_allocated_bytes(), 5U);
  mr.deallocate(ptr, 5);
}

TEST_F(Tracking, DoesNotTrackFailedAllocations)
{
  upstream.refuse_above(10);
  EXPECT_THROW(mr.allocate(11), rmm::out_of_memory);
  EXPECT_TRUE(mr.get_outstanding_allocations().empty());
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
}

TEST_F(Tracking, DoesNotTrackAllocationsOfZeroBytes)
{
  rmm::mr::cuda_memory_resource cuda;
  tracking_resource_adaptor tracking{&cuda};
  void* const one   = tracking.allocate(0);
  void* const other = tracking.allocate(0);
  EXPECT_TRUE(tracking.get_outstanding_allocations().empty());
  tracking.deallocate(one, 0);
  tracking.deallocate(other, 0);
  EXPECT_TRUE(messages.empty());
}

TEST_F(Tracking, SubtractsTheSizeAllocatedWhenAnotherIsFreed)
{
  ::testing::NiceMock<mock_resource> careless;
  EXPECT_CALL(careless, do_allocate).WillOnce(::testing::Return(address(0x1000)));
  tracking_resource_adaptor tracking{&careless};
  void* const ptr = tracking.allocate(ten_mib);
  EXPECT_CALL(careless, do_deallocate(ptr, ten_mib / 2, ::testing::_));
  tracking.deallocate(ptr, ten_mib / 2);
  EXPECT_TRUE(tracking.get_outstanding_allocations().empty());
  EXPECT_EQ(tracking.get_allocated_bytes(), 0U);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].first, log_level::error);
  EXPECT_THAT(messages[0].second, HasSubstr("allocated with another size"));
}

TEST_F(Tracking, LogsAndForwardsUnknownPointers)
{
  void* const ptr = upstream.allocate(100);
  EXPECT_NO_THROW(mr.deallocate(ptr, 100));
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].first, log_level::error);
  EXPECT_THAT(messages[0].second, HasSubstr("not allocated by this adaptor"));
}

TEST_F(Tracking, CountsUnknownPointersDownToZero)
{
  void* const known   = mr.allocate(100);
  void* const unknown = upstream.allocate(80);
  mr.deallocate(unknown, 80);
  EXPECT_EQ(mr.get_allocated_bytes(), 20U);
  mr.deallocate(known, 100);
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
}

TEST_F(Tracking, TakesAReusedAddressForANewAllocation)
{
  ::testing::NiceMock<mock_resource> mock;
  EXPECT_CALL(mock, do_allocate).WillRepeatedly(::testing::Return(address(0x1000)));
  tracking_resource_adaptor tracking{&mock};
  tracking.allocate(100);
  void* const ptr = tracking.allocate(30);
  EXPECT_EQ(tracking.get_allocated_bytes(), 30U);
  EXPECT_EQ(tracking.get_outstanding_allocations().at(ptr).allocation_size, 30U);
  tracking.deallocate(ptr, 30);
  EXPECT_EQ(tracking.get_allocated_bytes(), 0U);
}

TEST_F(Tracking, TracksAtEachLevelOfAStackOfAdaptors)
{
  tracking_resource_adaptor<adaptor> outer{&mr};
  void* const inner_block = mr.allocate(100);
  void* const outer_block = outer.allocate(50);
  EXPECT_EQ(mr.get_allocated_bytes(), 150U);
  EXPECT_EQ(outer.get_allocated_bytes(), 50U);
  outer.deallocate(outer_block, 50);
  mr.deallocate(inner_block, 100);
}

void* allocate_here(adaptor& mr, std::size_t bytes) { return mr.allocate(bytes); }

TEST_F(Tracking, ReportsLeaksByCallStackMostBytesFirst)
{
  adaptor with_stacks{&upstream, true};
  std::vector<void*> blocks;
  int const volatile times = 3;  // volatile, because an unrolled loop would call from several places
  for (int i = 0; i < times; ++i) { blocks.push_back(allocate_here(with_stacks, 100)); }
  void* const other = with_stacks.allocate(1000);
  EXPECT_THAT(with_stacks.get_leak_report(),
              ::testing::MatchesRegex("RMM: 1300 B in 4 allocations have not been freed\n"
                                      "1000 B in 1 allocations from\n#0 in (.|\n)*"
                                      "300 B in 3 allocations from\n#0 in (.|\n)*"));
  for (void* const ptr : blocks) { with_stacks.deallocate(ptr, 100); }
  with_stacks.deallocate(other, 1000);
  EXPECT_EQ(with_stacks.get_leak_report(), "");
}

TEST_F(Tracking, WritesLeaksAtItsEndIfToldSo)
{
  void* ptr{};
  ::testing::internal::CaptureStderr();
  {
    adaptor reporting{&upstream, false, rmm::mr::leak_report::at_end};
    ptr = reporting.allocate(100);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "RMM: 100 B in 1 allocations have not been freed\n");
  upstream.deallocate(ptr, 100);
}

TEST_F(Tracking, WritesNothingAtItsEndIfNothingLeaksOrItWasNotToldSo)
{
  ::testing::internal::CaptureStderr();
  void* ptr{};
  {
    adaptor reporting{&upstream, false, rmm::mr::leak_report::at_end};
    reporting.deallocate(reporting.allocate(100), 100);
    adaptor silent{&upstream};
    ptr = silent.allocate(100);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  upstream.deallocate(ptr, 100);
}

using TrackingDeathTest = Tracking;

TEST_F(TrackingDeathTest, WritesLeaksWhenTheProgramEnds)
{
  auto const end = [&] {
    auto& reporting = *new adaptor{&upstream, false, rmm::mr::leak_report::at_end};
    static_cast<void>(reporting.allocate(100));
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "RMM: 100 B in 1 allocations have not been freed");
}

TEST_F(TrackingDeathTest, WritesLeaksOnceIfDestroyedAfterTheEndOfTheProgram)
{
  auto const end = [&] {
    static std::unique_ptr<adaptor> reporting;  // constructed before the exit handler, so destroyed after it
    reporting = std::make_unique<adaptor>(&upstream, false, rmm::mr::leak_report::at_end);
    static_cast<void>(reporting->allocate(100));
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "^RMM: 100 B in 1 allocations have not been freed\n$");
}

TEST_F(Tracking, ComesFromAFactory)
{
  auto made = rmm::mr::make_tracking_adaptor(&upstream);
  EXPECT_EQ(made.get_upstream(), &upstream);
}

TEST_F(Tracking, WritesNumbersWithoutTheSeparatorsOfTheLocale)
{
  struct separators final : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  auto const previous = std::locale::global(std::locale{std::locale::classic(), new separators});
  void* const ptr     = mr.allocate(ten_mib);
  EXPECT_THAT(mr.get_outstanding_allocations_str(), HasSubstr(": 10485760 B"));
  EXPECT_THAT(mr.get_leak_report(), HasSubstr("10485760 B in 1 allocations"));
  std::locale::global(previous);
  mr.deallocate(ptr, ten_mib);
}

/// A thread that exists only in the parent may hold a lock of the table.
TEST_F(Tracking, HasEmptyTextsInAForkedChild)
{
  void* const ptr  = mr.allocate(1000);
  auto const child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) { ::_Exit(mr.get_outstanding_allocations_str().empty() && mr.get_leak_report().empty() ? 0 : 1); }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  mr.deallocate(ptr, 1000);
}

TEST_F(Tracking, HoldsNoLockWhileItLogs)
{
  static adaptor* asked{nullptr};
  asked = &mr;
  rmm::detail::log_hook.store(
    [](log_level, char const*) noexcept { static_cast<void>(asked->get_outstanding_allocations_str()); });
  mr.deallocate(upstream.allocate(100), 100);  // would deadlock with the lock held
}

TEST(TrackingOrder, ForgetsMemoryBeforeUpstreamHasItBack)
{
  ::testing::StrictMock<mock_resource> mock;
  tracking_resource_adaptor mr{&mock};
  EXPECT_CALL(mock, do_allocate).WillOnce(::testing::Return(address(0x1000)));
  EXPECT_CALL(mock, do_deallocate).WillOnce([&](auto&&...) { EXPECT_TRUE(mr.get_outstanding_allocations().empty()); });
  mr.deallocate(mr.allocate(100), 100);
}

std::atomic<int> errors{0};

TEST(TrackingThreads, LoseNoAllocationWhenAddressesChangeHands)
{
  errors              = 0;
  auto const previous = rmm::detail::log_hook.exchange([](log_level, char const*) noexcept { ++errors; });
  recycling_upstream upstream;
  tracking_resource_adaptor mr{&upstream};
  run_on_threads(8, [&](int number) {
    auto const bytes = static_cast<std::size_t>(number + 1);
    for (int i = 0; i < 5000; ++i) { mr.deallocate(mr.allocate(bytes), bytes); }
  });
  rmm::detail::log_hook.store(previous);
  EXPECT_EQ(errors, 0);
  EXPECT_TRUE(mr.get_outstanding_allocations().empty());
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
}

}  // namespace
