// SPDX-License-Identifier: Apache-2.0
#include "../../support/unwind_chain.hpp"

#include <rmm/detail/stack_trace.hpp>

#include <dlfcn.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

std::string printed(rmm::detail::stack_trace const& trace)
{
  std::ostringstream out;
  out << trace;
  return out.str();
}

#if defined(RMM_ENABLE_STACK_TRACES)

TEST(StackTrace, HasOneNumberedLineForEachFrame)
{
  std::istringstream lines{printed(rmm::detail::stack_trace{})};
  std::string line;
  int count{0};
  while (std::getline(lines, line)) {
    EXPECT_THAT(line, ::testing::StartsWith("#" + std::to_string(count) + " in ")) << line;
    ++count;
  }
  EXPECT_GT(count, 2);  // this function, main, and what calls main
  EXPECT_LE(count, 64);
}

TEST(StackTrace, EndsWithANewline) { EXPECT_EQ(printed(rmm::detail::stack_trace{}).back(), '\n'); }

// Calls itself, so that not every frame fits into the trace.
__attribute__((noinline)) rmm::detail::stack_trace trace_at_depth(int depth)
{
  if (depth == 0) { return rmm::detail::stack_trace{}; }
  auto trace = trace_at_depth(depth - 1);
  asm volatile("");  // keeps the compiler from making a loop
  return trace;
}

TEST(StackTrace, KeepsTheInnermost64Frames)
{
  auto const text = printed(trace_at_depth(100));
  EXPECT_THAT(text, ::testing::HasSubstr("\n#63 in "));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("\n#64 in ")));
}

// Takes a stack trace inside std::ostream::flush(), which is in a shared object.
struct tracing_buffer : std::streambuf {
  int sync() override
  {
    text = printed(rmm::detail::stack_trace{});
    return 0;
  }
  std::string text;
};

TEST(StackTrace, NamesFunctionsOfSharedObjectsAndTheObjects)
{
  if (dlsym(RTLD_DEFAULT, "_ZNSo5flushEv") == nullptr) { GTEST_SKIP() << "the C++ library is not a shared object"; }
  tracing_buffer buffer;
  std::ostream out{&buffer};
  out.flush();
  EXPECT_THAT(buffer.text, ::testing::ContainsRegex("#[0-9]+ in std::ostream::flush\\(\\) from [^\n]*libstdc\\+\\+"));
}

using rmm::test::captured_stack;
using rmm::test::stack_of_chain;

TEST(StackTrace, IsThatOfBacktrace)
{
  for (unsigned seed = 0; seed != 500; ++seed) {
    auto const stack = stack_of_chain(seed);
    EXPECT_TRUE(stack.is_right()) << "seed " << seed << "\n" << stack;
    EXPECT_TRUE(stack.is_kept()) << "seed " << seed << "\n" << stack;
  }
}

TEST(StackTrace, IsThatOfBacktraceInThreads)
{
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread != 4; ++thread) {
    threads.emplace_back([=] {
      for (unsigned seed = 1000 * thread; seed != 1000 * thread + 200; ++seed) {
        auto const stack = stack_of_chain(seed);
        EXPECT_TRUE(stack.is_right()) << "seed " << seed << "\n" << stack;
      }
    });
  }
  for (auto& each : threads) { each.join(); }
}

TEST(StackTrace, IsThatOfBacktraceInAHandlerOfSignals)
{
  static captured_stack last;
  static_cast<void>(captured_stack::here());  // the first call allocates
  auto const previous = std::signal(SIGUSR1, [](int) { last = captured_stack::here(); });
  for (int i = 0; i != 3; ++i) {
    std::raise(SIGUSR1);
    EXPECT_TRUE(last.is_right()) << last;
  }
  std::signal(SIGUSR1, previous);
}

__attribute__((noinline)) captured_stack from_shared_place()
{
  auto stack = captured_stack::here();
  asm volatile("");
  return stack;
}
__attribute__((noinline)) captured_stack from_small_caller()
{
  auto stack = from_shared_place();
  asm volatile("");
  return stack;
}
__attribute__((noinline)) captured_stack from_large_caller()
{
  char volatile space[600];
  space[0]   = 1;
  auto stack = from_shared_place();
  asm volatile("" : : "r"(space[0]));
  return stack;
}

TEST(StackTrace, TellsCallersOfOnePlaceApart)
{
  for (int i = 0; i != 4; ++i) {
    auto const small = from_small_caller();
    auto const large = from_large_caller();
    EXPECT_TRUE(small.is_right() && large.is_right());
    EXPECT_EQ(small.frame(2), large.frame(2));  // in from_shared_place()
    EXPECT_NE(small.frame(3), large.frame(3));
  }
}

#else

TEST(StackTrace, ReportsThatItIsDisabled) { EXPECT_EQ(printed(rmm::detail::stack_trace{}), "stack traces disabled\n"); }

#endif

TEST(StackTrace, IsAValue)
{
  static_assert(std::is_copy_constructible_v<rmm::detail::stack_trace>);
  rmm::detail::stack_trace const trace{};
  rmm::detail::stack_trace const copy{trace};
  EXPECT_EQ(printed(copy), printed(trace));
}

}  // namespace
