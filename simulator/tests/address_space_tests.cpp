// SPDX-License-Identifier: Apache-2.0

#include "../src/address_space.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace {

using cudasim::block_bytes;
using cudasim::heap;
using cudasim::memory_file;
using cudasim::protection;
using cudasim::range_set;
using cudasim::territory;

constexpr std::size_t plenty = std::size_t{1} << 40U;

[[nodiscard]] unsigned char* bytes_at(std::uintptr_t address) { return reinterpret_cast<unsigned char*>(address); }

// --- range_set ------------------------------------------------------------------------------------------------------

TEST(RangeSet, JoinsNeighbours)
{
  range_set set;
  set.insert(100, 10);
  set.insert(120, 10);
  set.insert(110, 10);
  EXPECT_EQ(set.ranges(), (std::map<std::uintptr_t, std::size_t>{{100, 30}}));
}

TEST(RangeSet, TakesFromTheSmallestRangeThatFits)
{
  range_set set;
  set.insert(100, 30);
  set.insert(200, 20);
  EXPECT_EQ(set.take(15), 200U);
  EXPECT_EQ(set.take(30), 100U);
  EXPECT_EQ(set.take(6), 0U);
  EXPECT_EQ(set.take(5), 215U);
  EXPECT_TRUE(set.empty());
}

TEST(RangeSet, RemovesFromTheMiddle)
{
  range_set set;
  set.insert(100, 30);
  set.remove(110, 5);
  EXPECT_EQ(set.ranges(), (std::map<std::uintptr_t, std::size_t>{{100, 10}, {115, 15}}));
}

TEST(RangeSet, KnowsWhatItContains)
{
  range_set set;
  set.insert(100, 30);
  EXPECT_TRUE(set.contains(100, 30));
  EXPECT_TRUE(set.contains(110, 5));
  EXPECT_FALSE(set.contains(110, 21));
  EXPECT_FALSE(set.contains(99, 2));
  EXPECT_FALSE(set.contains(130, 1));
}

TEST(RangeSet, KnowsWhatLiesBeforeAnAddress)
{
  range_set set;
  set.insert(100, 30);
  EXPECT_EQ(set.bytes_before(130), 30U);
  EXPECT_EQ(set.bytes_before(131), 0U);
  EXPECT_EQ(set.bytes_before(100), 0U);
}

TEST(RangeSet, AbsorbsAnother)
{
  range_set set;
  range_set other;
  set.insert(100, 10);
  other.insert(110, 10);
  other.insert(200, 1);
  set.absorb(other);
  EXPECT_TRUE(other.empty());
  EXPECT_EQ(set.ranges(), (std::map<std::uintptr_t, std::size_t>{{100, 20}, {200, 1}}));
  EXPECT_EQ(set.largest(), 20U);
}

TEST(RangeSet, AgreesWithAModel)
{
  std::mt19937 random{7};
  range_set set;
  std::set<std::uintptr_t> model;  // single bytes
  for (int step = 0; step < 5'000; ++step) {
    auto const begin = std::uintptr_t{1} + random() % 300;
    auto const bytes = std::size_t{1} + random() % 20;
    std::vector<std::uintptr_t> wanted;
    for (auto byte = begin; byte < begin + bytes; ++byte) { wanted.push_back(byte); }
    auto const present = std::count_if(wanted.begin(), wanted.end(), [&](auto byte) { return model.count(byte) != 0; });
    ASSERT_EQ(set.contains(begin, bytes), static_cast<std::size_t>(present) == bytes);
    if (present == 0) {
      set.insert(begin, bytes);
      model.insert(wanted.begin(), wanted.end());
    } else if (static_cast<std::size_t>(present) == bytes) {
      set.remove(begin, bytes);
      for (auto const byte : wanted) { model.erase(byte); }
    }
    ASSERT_TRUE(set.check_invariants()) << "step " << step;
  }
}

// --- territory and memory_file --------------------------------------------------------------------------------------

TEST(Territory, ClaimsAlignedAddresses)
{
  territory addresses;
  auto const begin = addresses.claim(block_bytes, std::size_t{64} << 20U);
  ASSERT_NE(begin, 0U);
  EXPECT_EQ(begin % (std::size_t{64} << 20U), 0U);
  EXPECT_TRUE(addresses.owns(begin));
  EXPECT_TRUE(addresses.owns(begin + block_bytes - 1));
  EXPECT_FALSE(addresses.owns(begin + block_bytes));
}

TEST(Territory, TakesAHintIfItIsFree)
{
  territory addresses;
  auto const wide = addresses.claim(4 * block_bytes, block_bytes);
  EXPECT_NE(addresses.claim(block_bytes, block_bytes, wide), wide);
  EXPECT_EQ(addresses.claim(block_bytes, block_bytes, wide + 4 * block_bytes), wide + 4 * block_bytes);
}

TEST(Territory, RemembersForAWhileWhatWasGivenUp)
{
  territory addresses;
  std::vector<std::uintptr_t> claims(100);
  for (auto& begin : claims) { begin = addresses.claim(block_bytes, block_bytes); }
  addresses.give_up(claims.front());
  EXPECT_TRUE(addresses.owns(claims.front()));
  for (std::size_t i = 1; i < claims.size(); ++i) { addresses.give_up(claims[i]); }
  EXPECT_FALSE(addresses.owns(claims.front()));
  EXPECT_TRUE(addresses.owns(claims.back()));
}

TEST(Territory, RefusesMoreThanTheProcessCanHave)
{
  territory addresses;
  EXPECT_EQ(addresses.claim(std::size_t{1} << 60U, block_bytes), 0U);
  EXPECT_EQ(addresses.claim(block_bytes, std::size_t{1} << 62U), 0U);
}

TEST(MemoryFile, ShowsTheSamePagesAtTwoAddresses)
{
  territory addresses;
  memory_file file{"cudasim-test"};
  auto const one    = addresses.claim(block_bytes, block_bytes);
  auto const two    = addresses.claim(block_bytes, block_bytes);
  auto const offset = file.extend(block_bytes);
  for (auto const begin : {one, two}) {
    ASSERT_TRUE(file.map(begin, block_bytes, offset));
    ASSERT_TRUE(cudasim::protect(begin, block_bytes, protection::read_write));
  }
  bytes_at(one)[5] = 42;
  EXPECT_EQ(bytes_at(two)[5], 42);
  file.discard(offset, block_bytes);
  EXPECT_EQ(bytes_at(two)[5], 0);
}

TEST(MemoryFile, CarriesNotesToWhoeverGetsTheDescriptor)
{
  memory_file file{"cudasim-test"};
  std::array<char, 40> const first{"first"};
  std::array<char, 40> const second{"second"};
  auto const one = file.export_note(first.data(), first.size());
  auto const two = file.export_note(second.data(), second.size());
  std::array<char, 40> read{};
  EXPECT_TRUE(memory_file::read_note(one, read.data(), read.size()));
  EXPECT_EQ(read, first);
  EXPECT_TRUE(memory_file::read_note(two, read.data(), read.size()));
  EXPECT_EQ(read, second);
  EXPECT_EQ(::close(one), 0);
  EXPECT_EQ(::close(two), 0);
}

TEST(MemoryFile, FindsNoNoteWhereNoneWasLeft)
{
  std::array<int, 2> ends{};
  std::array<char, 40> read{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  EXPECT_FALSE(memory_file::read_note(ends[0], read.data(), read.size()));
  EXPECT_FALSE(memory_file::read_note(-1, read.data(), read.size()));
  EXPECT_EQ(::close(ends[0]), 0);
  EXPECT_EQ(::close(ends[1]), 0);
}

// --- heap -----------------------------------------------------------------------------------------------------------

class Heap : public ::testing::Test {
 protected:
  territory addresses_;
  memory_file pages_{"cudasim-test"};
  heap heap_{addresses_, pages_};
};

TEST_F(Heap, PutsSmallBlocksIntoOneSegment)
{
  std::set<std::uintptr_t> blocks;
  for (int i = 0; i < 4096; ++i) { blocks.insert(heap_.allocate(512, plenty)); }
  EXPECT_EQ(blocks.size(), 4096U);
  EXPECT_EQ(heap_.footprint(), block_bytes);
  EXPECT_TRUE(heap_.check_invariants());
  blocks.insert(heap_.allocate(1, plenty));
  EXPECT_EQ(heap_.footprint(), 2 * block_bytes);
  for (auto const begin : blocks) { heap_.deallocate(begin, 512); }
  EXPECT_EQ(heap_.footprint(), 0U);
  EXPECT_TRUE(heap_.check_invariants());
}

TEST_F(Heap, DoesNotGrowBeyondItsRoom)
{
  EXPECT_EQ(heap_.allocate(1, block_bytes - 1), 0U);
  auto const begin = heap_.allocate(1, block_bytes);
  EXPECT_NE(begin, 0U);
  auto const other = heap_.allocate(1000, 0);
  EXPECT_NE(other, 0U) << "the segment has room";
  EXPECT_EQ(heap_.allocate(block_bytes + 1, 2 * block_bytes - 1), 0U);
  heap_.deallocate(begin, 1);
  heap_.deallocate(other, 1000);
}

TEST_F(Heap, GivesLargeBlocksWholePages)
{
  auto const begin = heap_.allocate(block_bytes + 1, plenty);
  EXPECT_EQ(begin % block_bytes, 0U);
  EXPECT_EQ(heap_.footprint(), 2 * block_bytes);
  bytes_at(begin)[2 * block_bytes - 1] = 1;
  heap_.deallocate(begin, block_bytes + 1);
  EXPECT_EQ(heap_.footprint(), 0U);
  EXPECT_TRUE(heap_.check_invariants());
}

TEST_F(Heap, FillsHolesBeforeItGrows)
{
  std::vector<std::uintptr_t> blocks;
  for (int i = 0; i < 4; ++i) { blocks.push_back(heap_.allocate(block_bytes / 4, plenty)); }
  heap_.deallocate(blocks[1], block_bytes / 4);
  EXPECT_EQ(heap_.allocate(block_bytes / 4, 0), blocks[1]);
}

TEST_F(Heap, GivesAddressesBackLate)
{
  for (auto const bytes : {std::size_t{100}, 3 * block_bytes}) {
    std::set<std::uintptr_t> seen;
    for (int i = 0; i < 4; ++i) {
      auto const begin = heap_.allocate(bytes, plenty);
      EXPECT_TRUE(seen.insert(begin).second) << bytes;
      heap_.deallocate(begin, bytes);
    }
  }
}

TEST_F(Heap, GoesRoundASegmentBeforeItReusesAPlace)
{
  auto const kept = heap_.allocate(100, plenty);
  std::set<std::uintptr_t> seen;
  for (int i = 0; i < 4'000; ++i) {
    auto const begin = heap_.allocate(100, plenty);
    EXPECT_TRUE(seen.insert(begin).second);
    heap_.deallocate(begin, 100);
  }
  EXPECT_EQ(heap_.footprint(), block_bytes);
  heap_.deallocate(kept, 100);
}

TEST_F(Heap, ReusesAddressesInTheEnd)
{
  std::set<std::uintptr_t> seen;
  for (int i = 0; i < 10'000; ++i) {
    auto const begin = heap_.allocate(std::size_t{64} << 20U, plenty);
    ASSERT_NE(begin, 0U);
    seen.insert(begin);
    heap_.deallocate(begin, std::size_t{64} << 20U);
  }
  EXPECT_LT(seen.size(), 1'000U);
  EXPECT_TRUE(heap_.check_invariants());
}

TEST_F(Heap, MapsAddressesToTheFile)
{
  auto const begin = heap_.allocate(3 * block_bytes, plenty);
  auto const view  = addresses_.claim(4096, 4096);
  ASSERT_TRUE(pages_.map(view, 4096, heap_.offset_of(begin + block_bytes)));
  ASSERT_TRUE(cudasim::protect(view, 4096, protection::read));
  std::memset(bytes_at(begin + block_bytes), 77, 4096);
  EXPECT_EQ(bytes_at(view)[4095], 77);
  heap_.deallocate(begin, 3 * block_bytes);
}

TEST_F(Heap, KeepsItsInvariantsUnderRandomUse)
{
  std::mt19937 random{11};
  std::map<std::uintptr_t, std::size_t> live;
  for (int step = 0; step < 20'000; ++step) {
    bool const grow = live.size() < 50 || (live.size() < 500 && random() % 2 == 0);
    if (grow) {
      auto const shape = random() % 10;
      auto const bytes = std::size_t{1} + (shape < 7   ? random() % 5'000
                                           : shape < 9 ? random() % block_bytes
                                                       : random() % (8 * block_bytes));
      auto const begin = heap_.allocate(bytes, plenty);
      ASSERT_NE(begin, 0U);
      auto const next = live.lower_bound(begin);
      ASSERT_TRUE(next == live.end() || begin + bytes <= next->first);
      ASSERT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second <= begin);
      live.emplace(begin, bytes);
    } else {
      auto const victim = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      heap_.deallocate(victim->first, victim->second);
      live.erase(victim);
    }
    if (step % 100 == 0) { ASSERT_TRUE(heap_.check_invariants()) << "step " << step; }
  }
  for (auto const& [begin, bytes] : live) { heap_.deallocate(begin, bytes); }
  EXPECT_EQ(heap_.footprint(), 0U);
  EXPECT_TRUE(heap_.check_invariants());
}

}  // namespace
