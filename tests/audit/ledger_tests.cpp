// SPDX-License-Identifier: Apache-2.0
#include <tools/audit/ledger.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace rmm::tools::audit;

class AuditLedger : public ::testing::Test {
 protected:
  [[nodiscard]] figures of(library_id library, memory_kind kind) const
  {
    return known_.libraries().at(library).by_kind[static_cast<std::size_t>(kind)];
  }

  void expect(memory_kind kind, std::uint64_t calls, std::uint64_t bytes, std::uint64_t most, std::uint64_t live) const
  {
    auto const counted = of(first_, kind);
    EXPECT_EQ(counted.calls, calls);
    EXPECT_EQ(counted.bytes, bytes);
    EXPECT_EQ(counted.most, most);
    EXPECT_EQ(counted.live, live);
  }

  ledger known_;
  library_id first_{known_.id_of("libfirst.so")};
};

TEST_F(AuditLedger, CountsWhatIsLiveAndTheMost)
{
  known_.add(key_space::address, 0x10, 100, first_, memory_kind::device);
  known_.add(key_space::address, 0x20, 50, first_, memory_kind::device);
  EXPECT_EQ(known_.remove(key_space::address, 0x10)->bytes, 100U);
  known_.add(key_space::address, 0x30, 20, first_, memory_kind::device);
  expect(memory_kind::device, 3, 170, 150, 70);
  EXPECT_FALSE(known_.remove(key_space::address, 0x10));
  EXPECT_FALSE(known_.remove(key_space::array, 0x20)) << "another space";
  expect(memory_kind::device, 3, 170, 150, 70);
}

TEST_F(AuditLedger, RestoresWhatTheDriverDidNotFree)
{
  known_.add(key_space::address, 0x10, 100, first_, memory_kind::async);
  auto const ended = known_.remove(key_space::address, 0x10);
  known_.restore(key_space::address, 0x10, *ended);
  expect(memory_kind::async, 1, 100, 100, 100);
  EXPECT_TRUE(known_.remove(key_space::address, 0x10));
}

TEST_F(AuditLedger, TakesAnAddressThatIsGivenAgainAsFreed)
{
  known_.add(key_space::address, 0x10, 100, first_, memory_kind::device);
  known_.add(key_space::address, 0x10, 30, first_, memory_kind::device);
  expect(memory_kind::device, 2, 130, 100, 30);
}

TEST_F(AuditLedger, SumsUpMemoryOfDevicesOnly)
{
  known_.add(key_space::address, 1, 100, first_, memory_kind::managed);
  known_.add(key_space::address, 2, 1000, first_, memory_kind::pinned_host);
  known_.add(key_space::routed, 3, 10000, first_, memory_kind::routed);
  EXPECT_EQ(known_.on_devices().bytes, 100U);
  EXPECT_EQ(known_.on_devices().calls, 1U);
  known_.remove(key_space::address, 1);
  EXPECT_EQ(known_.on_devices().live, 0U);
  EXPECT_EQ(known_.on_devices().most, 100U);
}

TEST_F(AuditLedger, KeepsPhysicalMemoryLiveWhileItHasAnOwnerOrIsMapped)
{
  known_.add_handle(7, 100, first_);
  known_.map(0x1000, 7);
  known_.disown_handle(7);
  expect(memory_kind::virtual_memory, 1, 100, 100, 100);
  known_.add_handle(7, 50, first_);  // the driver uses the number again
  expect(memory_kind::virtual_memory, 2, 150, 150, 150);
  known_.unmap(0x0, 0x1000);
  expect(memory_kind::virtual_memory, 2, 150, 150, 150);
  known_.unmap(0x0, 0x2000);
  expect(memory_kind::virtual_memory, 2, 150, 150, 50);
  known_.own_handle(7);
  known_.disown_handle(7);
  expect(memory_kind::virtual_memory, 2, 150, 150, 50);
  known_.disown_handle(7);
  expect(memory_kind::virtual_memory, 2, 150, 150, 0);
}

TEST_F(AuditLedger, IgnoresImportedHandles)
{
  known_.own_handle(9);
  known_.map(0x1000, 9);
  known_.disown_handle(9);
  known_.unmap(0x1000, 0x1000);
  EXPECT_TRUE(known_.is_empty());
}

TEST_F(AuditLedger, CountsRefusals)
{
  EXPECT_EQ(known_.refuse(first_, memory_kind::device, 10), 0U);
  EXPECT_EQ(known_.refuse(first_, memory_kind::device, 20), 1U);
  EXPECT_EQ(of(first_, memory_kind::device).refused_bytes, 30U);
  expect(memory_kind::device, 0, 0, 0, 0);
  EXPECT_FALSE(known_.is_empty());
}

TEST_F(AuditLedger, ForgetsAllButTheNumbersOfLibraries)
{
  known_.add(key_space::address, 1, 100, first_, memory_kind::device);
  known_.forget();
  EXPECT_TRUE(known_.is_empty());
  EXPECT_FALSE(known_.remove(key_space::address, 1));
  EXPECT_EQ(known_.on_devices().live, 0U);
  EXPECT_EQ(known_.id_of("libfirst.so"), first_);
}

TEST_F(AuditLedger, HasOneNumberForTooManyLibraries)
{
  std::vector<library_id> ids;
  for (std::size_t i = 0; i < ledger::most_libraries + 10; ++i) { ids.push_back(known_.id_of(std::to_string(i))); }
  EXPECT_EQ(ids.back(), ledger::most_libraries - 1);
  EXPECT_EQ(ids[ids.size() - 5], ids.back());
  EXPECT_EQ(known_.name_of_library(ids.back()), "(other libraries)");
  EXPECT_EQ(known_.name_of_library(ids.front()), "0");
}

TEST_F(AuditLedger, MayBeUsedByThreads)
{
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        known_.add(key_space::address, t << 32U | i, 10, first_, memory_kind::device);
        EXPECT_TRUE(known_.remove(key_space::address, t << 32U | i));
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(of(first_, memory_kind::device).calls, 8000U);
  EXPECT_EQ(of(first_, memory_kind::device).live, 0U);
}

}  // namespace
