// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/stack_trace.hpp>

#include <dlfcn.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <type_traits>

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
