// SPDX-License-Identifier: Apache-2.0
//
// fork() while a thread adds the name of a range. The program has its own table of tags, in which adding takes as long as the test wants.

#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/base/tag_table.hpp>
#include <rmm/detail/config.hpp>

#include <nvtx3/nvToolsExt.h>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace {

std::atomic<bool> is_adding{false};

std::uint32_t add_slowly(char const* name, std::size_t length) noexcept
{
  if (std::string_view{name, length} == "slow") {
    is_adding = true;
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
  }
  return rmm::detail::tag_names::intern_name(name, length);
}

[[noreturn]] void fork_while_a_thread_adds_a_name()
{
  ::setenv("NVTX_INJECTION64_PATH", RMM_NVTX_LIBRARY, 0);
  using rmm::detail::tag_names;
  using rmm::detail::tag_table;
  auto const& table = rmm::detail::find_or_publish<tag_table>(rmm_tag_table_v1, 4, [] {
    return new tag_table{tag_names::current_of_thread, add_slowly, tag_names::find_name};
  });
  nvtxRangePushA("first");
  if (table.intern != add_slowly || *table.current() == 0) { std::_Exit(2); }

  std::thread adds{[] { nvtxRangePushA("slow"); }};
  while (!is_adding) { std::this_thread::yield(); }
  auto const child = ::fork();
  if (child == 0) {
    ::alarm(100);  // ends the child if it waits for a thread that it does not have
    nvtxRangePushA("of the child");
    std::_Exit(table.name_of(*table.current()) == std::string_view{"of the child"} ? 0 : 3);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  adds.join();
  std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
}

TEST(NvtxFork, MayComeWhileAThreadAddsAName)
{
#if RMM_DETAIL_THREAD_SANITIZER
  GTEST_SKIP() << "ThreadSanitizer does not know that a forked child lacks the threads of its parent";
#endif
  EXPECT_EXIT(fork_while_a_thread_adds_a_name(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
