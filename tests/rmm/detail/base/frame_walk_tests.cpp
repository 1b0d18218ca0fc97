// SPDX-License-Identifier: Apache-2.0
#include "../../../support/unwind_tables.hpp"

#include <rmm/detail/base/frame_walk.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#if defined(RMM_DETAIL_HAS_FRAME_WALK)

namespace {

using namespace rmm::test;
using rmm::detail::frame_registers;
using rmm::detail::frame_walk;
using kind = rmm::detail::unwind_rule::kind;

made_object* loaded;

int find_loaded(void* address, frame_walk::loaded_object* into)
{
  if (loaded == nullptr || address < loaded->begin() || address >= loaded->end()) { return -1; }
  into->begin        = loaded->begin();
  into->end          = loaded->end();
  into->unwind_table = const_cast<unsigned char*>(loaded->table());
  return 0;
}

/// Three functions: the first moves the stack pointer, the second has a frame pointer, and the third is the first of a thread.
std::vector<cfi::bytes> functions()
{
  using namespace cfi;
  return {{advance(4), def_cfa_offset, 32},
          {advance(1), def_cfa_offset, 16, offset(rbp), 2, advance(3), def_cfa_register, rbp},
          {undefined, ra}};
}

/// A stack: function 0 was called by 1, that by 0, and that by 2.
struct FrameWalk : ::testing::Test {
  std::unique_ptr<made_object> object{std::make_unique<made_object>(functions())};
  std::array<std::uintptr_t, 20> stack{};
  std::vector<std::uintptr_t> expected;
  std::array<void*, 8> frames{};
  frame_registers start{};
  std::unique_ptr<frame_walk> walk{std::make_unique<frame_walk>(find_loaded)};

  void SetUp() override { lay(0); }
  void TearDown() override { loaded = nullptr; }

  /// Lays the stack with `free` words between the frame pointer and the stack pointer of function 1.
  void lay(std::size_t free)
  {
    loaded           = object.get();
    auto const& code = *object;
    expected = {code.code(0, 20), code.code(1, 30), code.code(0, 64), code.code(2, 10)};  // 0 calls 2 at its very end
    auto const at = [&](std::size_t i) { return reinterpret_cast<std::uintptr_t>(&stack[i]); };
    stack.fill(expected[0]);        // what other frames have left
    stack[3]        = expected[1];  // 3 words of function 0, and its return address
    stack[4 + free] = 5555;         // the frame pointer of the caller of 1
    stack[5 + free] = expected[2];
    stack[9 + free] = expected[3];
    start           = {expected[0], at(0), at(4 + free)};
  }

  [[nodiscard]] kind walk_now(std::size_t capacity = 8)
  {
    frames.fill(nullptr);
    auto const result = walk->walk(start, frames.data(), capacity);
    found.assign(frames.data(), frames.data() + result.frames);
    return result.end;
  }
  std::vector<void*> found;

  [[nodiscard]] std::vector<void*> of(std::vector<std::uintptr_t> const& addresses) const
  {
    std::vector<void*> all;
    for (auto const each : addresses) { all.push_back(reinterpret_cast<void*>(each)); }
    return all;
  }

  /// Learns with what backtrace() is said to have found, whose first frame is elsewhere in the same function. Returns the frames.
  std::vector<void*> learn(std::vector<std::uintptr_t> theirs, std::size_t capacity = 8)
  {
    auto all = of(theirs);
    all.resize(capacity);
    all.resize(walk->learn(start, all.data(), theirs.size(), capacity));
    return all;
  }
  std::vector<std::uintptr_t> theirs()
  {
    auto all = expected;
    all[0] += 7;
    return all;
  }
};

TEST_F(FrameWalk, FindsTheFramesOnceItHasLearntTheRules)
{
  EXPECT_EQ(walk_now(), kind::missing);
  EXPECT_EQ(learn(theirs()), of(expected));
  EXPECT_EQ(walk_now(), kind::last);
  EXPECT_EQ(found, of(expected));
}

TEST_F(FrameWalk, FindsFramesOfAnySize)
{
  learn(theirs());
  for (std::size_t const free : {1U, 5U, 10U}) {
    lay(free);
    EXPECT_EQ(walk_now(), kind::last);
    EXPECT_EQ(found, of(expected));
  }
}

TEST_F(FrameWalk, KeepsNoRuleThatLedElsewhereThanBacktrace)
{
  auto other = theirs();
  other[2] += 1;
  EXPECT_EQ(learn(other), of(other));
  EXPECT_EQ(walk_now(), kind::unknown);
  EXPECT_EQ(learn(other), of(other));
}

TEST_F(FrameWalk, KeepsNoRuleOfAWalkThatWasLongerOrShorterThanBacktrace)
{
  for (bool const longer : {true, false}) {
    SetUp();
    walk       = std::make_unique<frame_walk>(find_loaded);
    auto other = theirs();
    if (longer) {
      other.push_back(99);
    } else {
      other.pop_back();
    }
    EXPECT_EQ(learn(other), of(other));
    EXPECT_EQ(walk_now(), kind::unknown);
  }
}

TEST_F(FrameWalk, AcceptsAFrameOfASanitizerInFront)
{
  auto with_one = theirs();
  with_one.insert(with_one.begin(), 99);
  EXPECT_EQ(learn(with_one), of(expected));
  EXPECT_EQ(walk_now(), kind::last);
}

TEST_F(FrameWalk, StopsWhereTheCapacityEnds)
{
  for (std::size_t capacity = 1; capacity != 6; ++capacity) {
    walk       = std::make_unique<frame_walk>(find_loaded);
    auto first = theirs();
    first.resize(std::min(first.size(), capacity));
    auto few = expected;
    few.resize(first.size());
    EXPECT_EQ(learn(first, capacity), of(few));
    EXPECT_EQ(walk_now(capacity), kind::last);
    EXPECT_EQ(found, of(few));
  }
  EXPECT_EQ(walk_now(0), kind::unknown);
  EXPECT_TRUE(found.empty());
}

TEST_F(FrameWalk, ForgetsRulesWhenAnotherObjectIsAtTheirPlace)
{
  learn(theirs());
  std::vector<std::size_t> places;
  for (std::size_t i = 12; i != 24; ++i) { places.push_back(object->entry(1) + i); }
  for (std::size_t const function : {0U, 1U, 2U}) {
    for (std::size_t i = 8; i != 22; ++i) { places.push_back(object->common(function) + i); }
  }
  for (auto const place : places) {
    auto& byte = object->at(place);
    byte ^= 1U;
    EXPECT_EQ(walk_now(), kind::missing) << place;
    byte ^= 1U;
    EXPECT_EQ(walk_now(), kind::last) << place;
  }
}

TEST_F(FrameWalk, LearnsTheRulesOfTheNextObject)
{
  learn(theirs());
  auto const table = functions();
  for (unsigned const words : {5U, 3U}) {  // the first function gets a larger stack, and a smaller one again
    auto other = table;
    other[0]   = {cfi::advance(4), cfi::def_cfa_offset, static_cast<unsigned char>(8 * words)};
    *object    = made_object{other};
    lay(0);
    stack.fill(0);
    auto const top   = words - 1;
    auto const at    = [&](std::size_t i) { return reinterpret_cast<std::uintptr_t>(&stack[i]); };
    stack[top]       = expected[1];
    stack[9]         = expected[2];
    stack[9 + words] = expected[3];
    start.fp         = at(8);
    EXPECT_EQ(walk_now(), kind::missing);
    EXPECT_EQ(learn(theirs()), of(expected));
    EXPECT_EQ(walk_now(), kind::last);
    EXPECT_EQ(found, of(expected));
  }
}

TEST_F(FrameWalk, LooksAtNoEntryThatASmallerTableDoesNotHave)
{
  learn(theirs());
  object->at(8) = 1;  // the number of functions
  for (std::size_t i = 20; i != 36; ++i) { object->at(i) = 0x7F; }
  EXPECT_EQ(walk_now(), kind::missing);
  auto const all = theirs();
  EXPECT_EQ(learn(all), of(all));
}

TEST_F(FrameWalk, LearnsNothingOfObjectsWithoutTables)
{
  *object = made_object{{}};
  EXPECT_EQ(walk_now(), kind::unknown);
  auto const all = theirs();
  EXPECT_EQ(learn(all), of(all));
  EXPECT_EQ(walk_now(), kind::unknown);
}

TEST_F(FrameWalk, AsksBacktraceAboutCodeWithoutTables)
{
  learn(theirs());
  stack[5] = 4444;
  EXPECT_EQ(walk_now(), kind::unknown);
  auto const jitted = std::vector<std::uintptr_t>{expected[0], expected[1], 4444, 77};
  EXPECT_EQ(learn(jitted), of(jitted));
  lay(0);
  EXPECT_EQ(walk_now(), kind::last);
}

TEST_F(FrameWalk, KeepsTheRulesInFrontOfAnUnknownOne)
{
  auto table = functions();
  table[2]   = {cfi::def_cfa, cfi::r10, 0};
  *object    = made_object{table};
  auto more  = theirs();
  more.push_back(77);
  EXPECT_EQ(walk_now(), kind::missing);
  EXPECT_EQ(learn(more), of(more));
  EXPECT_EQ(walk_now(), kind::unknown);
  EXPECT_EQ(found.size(), 4U);
}

TEST_F(FrameWalk, FindsTheEndOfAStackAtAReturnAddressOfZero)
{
  stack[9] = 0;
  expected.pop_back();
  EXPECT_EQ(learn(theirs()), of(expected));
  EXPECT_EQ(walk_now(), kind::last);
  EXPECT_EQ(found, of(expected));
}

TEST_F(FrameWalk, KnowsNothingWithoutTheDynamicLinker)
{
  frame_walk const none{nullptr};
  EXPECT_EQ(none.walk(start, frames.data(), 8).end, kind::unknown);
}

// Many functions with stacks of different sizes, more than the cache has places.
struct many_functions {  // half of them with frame pointers
  static constexpr std::size_t count{100};
  made_object object;

  many_functions() : object{make()} { loaded = &object; }
  ~many_functions() { loaded = nullptr; }

  static std::size_t words(std::size_t function) { return 2 + function % 7; }
  static std::vector<cfi::bytes> make()
  {
    std::vector<cfi::bytes> all;
    for (std::size_t i = 0; i != count - 1; ++i) {
      auto const bytes = static_cast<unsigned char>(8 * words(i));
      if (i % 2 == 0) {
        all.push_back({cfi::def_cfa_offset, bytes});
      } else {
        all.push_back({cfi::def_cfa, cfi::rbp, static_cast<unsigned char>(bytes - 8)});
      }
    }
    all.push_back({cfi::undefined, cfi::ra});
    return all;
  }

  /// Walks a stack of a function at each address, and learns what is missing. Returns the number of walks with a wrong frame.
  int walk_all(frame_walk& walk, std::size_t first = 0) const
  {
    int wrong{0};
    std::array<std::uintptr_t, 12> stack{};
    for (std::size_t i = 0; i + 1 != count; ++i) {
      auto const function = (i + first) % (count - 1);
      for (std::size_t byte = 1; byte != 64; ++byte) {
        std::array<void*, 2> const right{reinterpret_cast<void*>(object.code(function, byte)),
                                         reinterpret_cast<void*>(object.code(count - 1, 9))};
        stack.fill(5555);
        stack[words(function) - 1] = object.code(count - 1, 9);
        frame_registers const start{object.code(function, byte),
                                    reinterpret_cast<std::uintptr_t>(&stack[0]),
                                    reinterpret_cast<std::uintptr_t>(&stack[1])};
        std::array<void*, 4> frames{};
        auto const found = walk.walk(start, frames.data(), frames.size());
        if (found.end == kind::missing) {
          frames[0] = right[0];
          frames[1] = right[1];
          static_cast<void>(walk.learn(start, frames.data(), 2, frames.size()));
        } else {
          wrong += found.end != kind::last || found.frames != 2 || frames[1] != right[1];
        }
      }
    }
    return wrong;
  }
};

TEST(FrameWalkCache, IsRightWhenItIsTooSmall)
{
  many_functions const all;
  auto const walk = std::make_unique<frame_walk>(find_loaded);
  for (int i = 0; i != 3; ++i) { EXPECT_EQ(all.walk_all(*walk), 0); }
}

TEST(FrameWalkCache, IsRightWhileThreadsWriteTheSamePlaces)
{
  many_functions const all;
  auto const walk = std::make_unique<frame_walk>(find_loaded);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i != 4; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t round = 0; round != 10; ++round) { wrong += all.walk_all(*walk, i * round); }
    });
  }
  for (auto& each : threads) { each.join(); }
  EXPECT_EQ(wrong, 0);
}

// A thread can find any words of a place as another thread has written them, and the other words as they were before.
TEST(FrameWalkCache, IsRightWhateverPartOfAWriteAThreadSees)
{
  many_functions const all;
  auto const one   = std::make_unique<frame_walk>(find_loaded);
  auto const other = std::make_unique<frame_walk>(find_loaded);
  EXPECT_EQ(all.walk_all(*one), 0);
  EXPECT_EQ(all.walk_all(*other, 50), 0);  // in another order, so that other rules are left at the end
  std::array<std::uint64_t, sizeof(frame_walk) / sizeof(std::uint64_t)> words_of_one;
  std::array<std::uint64_t, words_of_one.size()> words_of_other;
  std::memcpy(words_of_one.data(), one.get(), sizeof(frame_walk));
  std::memcpy(words_of_other.data(), other.get(), sizeof(frame_walk));
  EXPECT_NE(words_of_one, words_of_other);
  std::mt19937 random{1};
  for (int i = 0; i != 50; ++i) {
    auto mixed = words_of_one;
    for (std::size_t word = 0; word != mixed.size(); ++word) {
      if (random() % 2 == 0) { mixed[word] = words_of_other[word]; }
    }
    std::memcpy(static_cast<void*>(one.get()), mixed.data(), sizeof(frame_walk));
    ASSERT_EQ(all.walk_all(*one), 0);
  }
}

}  // namespace

#endif
