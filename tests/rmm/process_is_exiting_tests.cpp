// SPDX-License-Identifier: Apache-2.0
#include <rmm/cuda_device.hpp>
#include <rmm/detail/runtime_shutdown.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/process_is_exiting.hpp>

#include <gtest/gtest.h>

#include <cstdlib>

namespace {

// Ends the process while its exit handlers run. The status says what process_is_exiting() returned there.
void exit_with_answer() { std::_Exit(rmm::process_is_exiting() ? 10 : 11); }

// Set before main() and after the library's own hook, so it runs before that hook and after all others.
struct global {
  ~global()
  {
    if (probe) { exit_with_answer(); }
  }
  bool probe{false};
};
global made_before_main;

TEST(ProcessIsExiting, IsFalseWhileTheProgramRuns) { EXPECT_FALSE(rmm::process_is_exiting()); }

TEST(ProcessIsExitingDeathTest, IsTrueInExitHandlersSetBeforeTheHook)
{
  EXPECT_EXIT(
    {
      std::atexit(exit_with_answer);
      rmm::detail::register_process_exit_hook();
      std::exit(0);
    },
    ::testing::ExitedWithCode(10),
    "");
}

// The registry is used for the first time in this process.
TEST(ProcessIsExitingDeathTest, IsTrueInExitHandlersSetBeforeTheRegistryIsUsed)
{
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
    {
      std::atexit(exit_with_answer);
      static_cast<void>(rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{0}));
      std::exit(0);
    },
    ::testing::ExitedWithCode(10),
    "");
}

TEST(ProcessIsExitingDeathTest, IsFalseInExitHandlersSetAfterTheHook)
{
  EXPECT_EXIT(
    {
      rmm::detail::register_process_exit_hook();
      std::atexit(exit_with_answer);
      std::exit(0);
    },
    ::testing::ExitedWithCode(11),
    "");
}

TEST(ProcessIsExitingDeathTest, IsTrueInDestructorsOfGlobalsMadeBeforeTheHook)
{
  EXPECT_EXIT(
    {
      rmm::detail::register_process_exit_hook();
      made_before_main.probe = true;
      std::exit(0);
    },
    ::testing::ExitedWithCode(10),
    "");
}

}  // namespace
