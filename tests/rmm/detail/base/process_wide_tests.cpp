// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/process_wide.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

RMM_PROCESS_WIDE_ANCHOR(rmm_test_anchor_made_once, 1001);
RMM_PROCESS_WIDE_ANCHOR(rmm_test_anchor_of_threads, 1002);
RMM_PROCESS_WIDE_ANCHOR(rmm_test_anchor_that_fails, 1003);

namespace {

using rmm::detail::find_or_publish;
using rmm::detail::process_wide_anchor;
using rmm::detail::process_wide_object;

TEST(ProcessWideTest, TheObjectIsMadeOnce)
{
  int made        = 0;
  auto const make = [&] {
    ++made;
    return new int{42};
  };
  int& object         = process_wide_object<int>(rmm_test_anchor_made_once, 1001, make);
  int const& another  = process_wide_object<int>(rmm_test_anchor_made_once, 1001, make);
  int const& searched = find_or_publish<int>(rmm_test_anchor_made_once, 1001, make);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(object, 42);
  EXPECT_EQ(&object, &another);
  EXPECT_EQ(&object, &searched);
  EXPECT_EQ(rmm_test_anchor_made_once.load(), &object);
}

std::atomic<int> alive{0};

struct counted {
  counted() { ++alive; }
  counted(counted const&)            = delete;
  counted& operator=(counted const&) = delete;
  ~counted() { --alive; }
};

TEST(ProcessWideTest, ThreadsAgreeOnOneObjectAndDiscardOthers)
{
  constexpr int count = 8;
  std::atomic<int> waiting{0};
  std::vector<counted*> found(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      ++waiting;
      while (waiting < count) { std::this_thread::yield(); }
      found[static_cast<std::size_t>(i)] =
        &process_wide_object<counted>(rmm_test_anchor_of_threads, 1002, [] { return new counted; });
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(alive, 1);
  for (counted* const object : found) { EXPECT_EQ(object, found.front()); }
}

TEST(ProcessWideTest, AFailureToMakeItPublishesNothing)
{
  auto const fail = []() -> int* { throw 1; };
  EXPECT_THROW(static_cast<void>(process_wide_object<int>(rmm_test_anchor_that_fails, 1003, fail)), int);
  EXPECT_EQ(rmm_test_anchor_that_fails.load(), nullptr);
  EXPECT_EQ(process_wide_object<int>(rmm_test_anchor_that_fails, 1003, [] { return new int{42}; }), 42);
}

#if defined(__ELF__)

// A segment of ELF notes in memory.
struct notes {
  std::string bytes;
  std::size_t alignment{4};

  void add(std::string const& owner, std::uint32_t number, std::string const& content)
  {
    std::uint32_t const header[3]{
      static_cast<std::uint32_t>(owner.size() + 1), static_cast<std::uint32_t>(content.size()), number};
    bytes.append(reinterpret_cast<char const*>(header), sizeof header);
    bytes.append(owner.c_str(), owner.size() + 1);
    pad();
    bytes += content;
    pad();
  }

  [[nodiscard]] process_wide_anchor* find(std::uint32_t number) const
  {
    return rmm::detail::find_anchor(bytes.data(), bytes.size(), alignment, number);
  }

  void pad() { bytes.resize((bytes.size() + alignment - 1) / alignment * alignment); }
};

std::string distance(std::int32_t value) { return {reinterpret_cast<char const*>(&value), sizeof value}; }

struct ProcessWideNotesTest : ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Alignment, ProcessWideNotesTest, ::testing::Values(4, 8));

TEST_P(ProcessWideNotesTest, AnAnchorIsFoundAmongOtherNotes)
{
  notes segment{{}, GetParam()};
  segment.add("GNU", 5, std::string(16, 'x'));
  segment.add("a longer name", 7, "odd");
  segment.add("RMM", 6, distance(1));
  auto const before = segment.bytes.size();
  segment.add("RMM", 7, distance(64));
  segment.add("GNU", 3, std::string(20, 'y'));
  char const* const content = segment.bytes.data() + before + 16;
  EXPECT_EQ(reinterpret_cast<char*>(segment.find(7)), content + 64);
}

TEST_P(ProcessWideNotesTest, NotesWithOtherNamesAreIgnored)
{
  notes segment{{}, GetParam()};
  segment.add("GNU", 7, distance(64));
  segment.add("RMN", 7, distance(64));
  segment.add("RMM", 7, "too long for a distance");
  segment.add("RMM", 8, distance(64));
  EXPECT_EQ(segment.find(7), nullptr);
}

TEST_P(ProcessWideNotesTest, ATruncatedSegmentEndsTheSearch)
{
  notes segment{{}, GetParam()};
  segment.add("RMM", 7, distance(64));
  segment.bytes.resize(segment.bytes.size() - 1);
  EXPECT_EQ(segment.find(7), nullptr);
  segment.bytes.resize(7);
  EXPECT_EQ(segment.find(7), nullptr);
}

#endif

}  // namespace
