// SPDX-License-Identifier: Apache-2.0
//
// Random programs of threads, streams and devices on every resource, under the ordering checker. A program that fails
// is reduced until nothing can be left out, and printed as C++ code.
//
// RMM_TEST_OPERATIONS=n sets the number of operations; RMM_TEST_SEED=n runs the programs of one seed.

#include "../support/nearly_full_pool.hpp"
#include "../support/sanitizers.hpp"
#include "../support/simulated.hpp"
#include "schedule.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cudasim/cudasim.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

using rmm::test::schedule;
using rmm::test::schedule_resource;
using rmm::test::schedule_run;

schedule_resource configured(std::string const& text, std::uint32_t largest = 300'000)
{
  return {"rmm::mr::configured_resource{\"" + text + "\"}.share()",
          [text] { return rmm::mr::configured_resource{text}.share(); },
          largest};
}

std::vector<schedule_resource> resources()
{
  return {configured("pool,initial=4MiB,max=4MiB"),
          configured("pool,initial=1MiB,max=64MiB"),
          configured("pool,initial=256KiB,max=512KiB", 4'000),
          configured("pool,initial=1MiB,upstream=cuda_async"),
          configured("pool,initial=32MiB,max=32MiB", 3'000'000),
          {"rmm::test::nearly_full_pool()", rmm::test::nearly_full_pool, 3'000'000},
          configured("arena,size=8MiB"),
          configured("fixed_size,block=16KiB,preallocate=4", 16'000),
          configured("binning,smallest=1KiB,largest=32KiB", 60'000),
          configured("elastic,max=8MiB"),
          configured("elastic,max=32MiB", 5'000'000),
          configured("cached,block=1MiB,max=16MiB"),
          configured("cuda_async"),
          configured("pool,initial=1MiB,max=16MiB,limit=8MiB,statistics,thread_safe", 100'000)};
}

std::uint64_t from_environment(char const* name, std::uint64_t otherwise)
{
  auto const* const given = std::getenv(name);
  return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
}

/// Reduces a failing program. Returns its code, and how to repeat it.
std::string reproducer_of(schedule const& program, schedule_resource const& resource)
{
  auto const smallest =
    shrink(program, [&](schedule const& each) { return !schedule_run::of(each, resource).failure.empty(); });
  return to_code(smallest, resource, schedule_run::of(smallest, resource).refused);
}

/// The code of the running program, for report_and_end().
std::string running;

/// Prints the running program when a signal ends it, as a failed assertion does. It cannot be reduced in this process.
void report_and_end(int signal)
{
  static_cast<void>(!::write(STDERR_FILENO, running.data(), running.size()));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

struct RandomSchedule : Simulated {
  void TearDown() override
  {
    start(cudasim::environment_options());
    Simulated::TearDown();
  }
};

TEST_F(RandomSchedule, NeverHandsMemoryOutTooEarly)
{
  constexpr std::uint64_t usual = RMM_TEST_UNDER_SANITIZER ? 200'000 : 10'000'000;
  auto const wanted             = from_environment("RMM_TEST_OPERATIONS", usual);
  auto const only               = from_environment("RMM_TEST_SEED", 0);
  auto const all                = resources();
  std::uint64_t operations{0};
  std::uint64_t refused{0};
  std::uint64_t programs{0};
  for (auto const signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) { std::signal(signal, report_and_end); }
  for (auto seed = only != 0 ? only : 1; operations < wanted && !HasFailure(); ++seed) {
    for (auto const& resource : all) {
      auto const program = schedule::random(seed, 4000, resource.largest);
      running            = "in RMM_TEST_SEED=" + std::to_string(seed) + ", " + resource.code + "\n";
      auto const result  = schedule_run::of(program, resource);
      operations += result.operations;
      refused += result.refused.size();
      ++programs;
      if (!result.failure.empty()) {
        ADD_FAILURE() << "RMM_TEST_SEED=" << seed << ", " << resource.code << ", step " << result.step << ": "
                      << result.failure << "\nSmallest program found:\n"
                      << reproducer_of(program, resource);
        break;
      }
    }
    if (only != 0) { break; }
  }
  for (auto const signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) { std::signal(signal, SIG_DFL); }
  std::printf("%llu operations in %llu programs, %llu allocations refused\n",
              static_cast<unsigned long long>(operations),
              static_cast<unsigned long long>(programs),
              static_cast<unsigned long long>(refused));
  EXPECT_GT(refused, 0U);
  if (only == 0) { EXPECT_GE(operations, wanted); }
}

// --- a planted bug is found

/// A resource with a planted bug: it reuses freed memory on any stream, without ordering the streams.
class hasty_resource final : public rmm::mr::device_memory_resource {
 public:
  hasty_resource() = default;
  ~hasty_resource() override
  {
    for (auto const& each : free_) { cuda_.deallocate(each.second, each.first); }
  }
  hasty_resource(hasty_resource const&)            = delete;
  hasty_resource& operator=(hasty_resource const&) = delete;

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    auto const found = free_.find(bytes);
    if (found == free_.end()) { return cuda_.allocate(bytes, stream); }
    void* const ptr = found->second;
    free_.erase(found);
    return ptr;
  }
  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view) override { free_.emplace(bytes, ptr); }

  rmm::mr::cuda_memory_resource cuda_;
  std::multimap<std::size_t, void*> free_;
};

schedule_resource const& hasty()
{
  static schedule_resource const made{"std::make_unique<hasty_resource>()",
                                      [] { return std::make_shared<hasty_resource>(); }};
  return made;
}

struct PlantedBug : RandomSchedule {};

TEST_F(PlantedBug, IsFoundByTheFirstProgram)
{
  EXPECT_THAT(schedule_run::of(schedule::random(1, 4000, 300'000), hasty()).failure,
              ::testing::HasSubstr("is not ordered after"));
}

TEST_F(PlantedBug, IsPrintedAsTheCodeThatFailsBelow)
{
  auto const code = reproducer_of(schedule::random(1, 4000, 300'000), hasty());
  std::ifstream file{RMM_RELIABILITY_TESTS "/planted_bug.inc"};
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(code, expected.str()) << code;
}

TEST_F(PlantedBug, FailsInThePrintedCode)
{
#include "planted_bug.inc"
  ASSERT_FALSE(violations.empty());
  EXPECT_EQ(violations[0].what, cudasim::violation::kind::race) << violations[0].text;
  cudasim::clear_violations();
}

/// A resource that throws an exception that resources must not throw: one that does not mean missing memory.
class throwing_resource final : public rmm::mr::device_memory_resource {
 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    if (bytes > 200'000) { throw rmm::logic_error{"planted"}; }
    return cuda_.allocate(bytes, stream);
  }
  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    cuda_.deallocate(ptr, bytes, stream);
  }

  rmm::mr::cuda_memory_resource cuda_;
};

TEST_F(PlantedBug, ThatThrowsIsAFailureThatIsMadeSmallerToo)
{
  schedule_resource const throwing{"std::make_unique<throwing_resource>()",
                                   [] { return std::make_shared<throwing_resource>(); }};
  auto const program = schedule::random(1, 4000, 300'000);
  ASSERT_EQ(schedule_run::of(program, throwing).failure, "it throws: planted");
  auto const smallest =
    shrink(program, [&](schedule const& each) { return !schedule_run::of(each, throwing).failure.empty(); });
  ASSERT_EQ(smallest.steps.size(), 1U);
  EXPECT_EQ(smallest.steps[0].what, rmm::test::schedule_step::kind::allocate);
}

/// Requests that are refused are printed, too, because the bug may be in how the resource handles them.
TEST_F(PlantedBug, IsPrintedWithWhatIsRefused)
{
  using kind = rmm::test::schedule_step::kind;
  schedule program;
  program.steps = {{kind::allocate, 0, 0, 7, 1U << 30U},
                   {kind::write, 0, 0, 7, 0},
                   {kind::allocate, 0, 0, 8, 256},
                   {kind::free, 0, 0, 7, 0}};
  schedule_resource const small{"small()",
                                [] { return rmm::mr::configured_resource{"pool,initial=1MiB,max=1MiB"}.share(); }};
  auto const result = schedule_run::of(program, small);
  EXPECT_EQ(result.failure, "");
  EXPECT_THAT(result.refused, ::testing::ElementsAre(7));
  auto const code = to_code(program, small, result.refused);
  EXPECT_THAT(
    code,
    ::testing::HasSubstr("EXPECT_THROW(static_cast<void>(mr0->allocate(1073741824, *stream0)), std::bad_alloc);\n"
                         "void* const block8 = mr0->allocate(256, *stream0);\n"));
  EXPECT_THAT(code, ::testing::Not(::testing::HasSubstr("block7")));
}

/// Code for several threads and devices is not compared as a whole, only its parts.
TEST_F(PlantedBug, IsPrintedWithThreadsAndDevicesWhereTheyAreNeeded)
{
  using kind = rmm::test::schedule_step::kind;
  schedule program;
  program.devices = 2;
  program.threads = 2;
  program.streams = 4;
  program.steps   = {{kind::allocate, 0, 1, 0, 256},
                     {kind::replace_thread, 0, 0, 0, 0},
                     {kind::free_elsewhere, 1, 3, 0, 0},
                     {kind::trim, 1, 0, 0, 0}};
  auto const code = to_code(program, hasty(), {});
  for (auto const* const part : {"machine.devices = 2;",
                                 "std::optional<rmm::test::worker> thread1{std::in_place};",
                                 "thread0->run([&] {\ncudaSetDevice(1);\nblock0 = mr1->allocate(256, *stream1);\n",
                                 "thread0.emplace();",
                                 "stream1->synchronize();\ncudasim::launch(stream3->value(), {}, {{block0, 256}});\n"
                                 "mr1->deallocate(block0, 256, *stream3);\n",
                                 "release_unused()"}) {
    EXPECT_NE(code.find(part), std::string::npos) << part << "\nin\n" << code;
  }
}

}  // namespace
