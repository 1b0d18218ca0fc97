// SPDX-License-Identifier: Apache-2.0
//
// Several processes on the same devices.

#include "support.hpp"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

namespace cudasim_tests {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

constexpr std::size_t MiB = std::size_t{1} << 20U;

[[nodiscard]] std::size_t free_memory()
{
  std::size_t free  = 0;
  std::size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

/// Runs a test of this program in another process, and exchanges steps with it through two pipes.
class other_process {
 public:
  explicit other_process(std::string const& test)
  {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    EXPECT_EQ(::pipe2(in.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out.data(), O_CLOEXEC), 0);
    auto const filter = "--gtest_filter=" + test;
    id_               = ::fork();
    if (id_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::execl("/proc/self/exe", "tests", filter.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_   = in[1];
    from_ = out[0];
  }
  other_process(other_process const&)            = delete;
  other_process& operator=(other_process const&) = delete;
  ~other_process()
  {
    if (id_ > 0) { end(); }
  }

  /// Waits until the other process has done `step`.
  [[nodiscard]] bool has_done(char step) const
  {
    char letter = 0;
    while (::read(from_, &letter, 1) == 1) {  // skips the output of GoogleTest
      if (letter == step) { return true; }
    }
    return false;
  }
  void let_go_on() const { EXPECT_EQ(::write(to_, "g", 1), 1); }

  void kill() const { EXPECT_EQ(::kill(id_, SIGKILL), 0); }

  /// Waits for the process to end. Returns whether it passed.
  bool end()
  {
    ::close(to_);
    static_cast<void>(has_done('\0'));  // drains its output
    ::close(from_);
    int status = -1;
    EXPECT_EQ(::waitpid(std::exchange(id_, 0), &status, 0) > 0, true);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t id_{};
  int to_{};
  int from_{};
};

// Steps, as bytes that GoogleTest does not print.
constexpr char began{'\1'};
constexpr char took{'\2'};
constexpr char gave_back{'\3'};

void tell(char step) { EXPECT_EQ(::write(STDOUT_FILENO, &step, 1), 1); }

/// Waits until the starting test lets this process go on. Returns false if that test is gone.
[[nodiscard]] bool wait_to_go_on()
{
  char letter = 0;
  return ::read(STDIN_FILENO, &letter, 1) == 1;
}

/// Makes an empty file with a unique name.
[[nodiscard]] std::string make_file()
{
  auto path             = ::testing::TempDir() + "cudasim-shared-XXXXXX";
  auto const descriptor = ::mkstemp(path.data());
  EXPECT_GE(descriptor, 0);
  EXPECT_EQ(::close(descriptor), 0);
  return path;
}

/// A machine of two devices of 64 MiB that this process shares with others.
class SharedDevices : public Simulated {
 protected:
  [[nodiscard]] cudasim::options machine() const override
  {
    cudasim::options o;
    o.devices      = 2;
    o.memory_bytes = 64 * MiB;
    return o;
  }
  void SetUp() override
  {
    path_ = make_file();
    ::setenv("CUDASIM_SHARED", path_.c_str(), 1);
    Simulated::SetUp();
  }
  void TearDown() override
  {
    ::unsetenv("CUDASIM_SHARED");
    Simulated::TearDown();
    EXPECT_EQ(std::remove(path_.c_str()), 0);
  }
  std::string path_;
};

/// The tests that the other process runs. They cannot run by themselves.
class DISABLED_OtherProcess : public Simulated {
 protected:
  [[nodiscard]] cudasim::options machine() const override
  {
    cudasim::options o;
    o.devices      = 2;
    o.memory_bytes = 64 * MiB;
    return o;
  }
};

TEST_F(DISABLED_OtherProcess, TakesMemoryAndGivesItBack)
{
  void* ptr = nullptr;
  ASSERT_EQ(cudaMalloc(&ptr, 40 * MiB), cudaSuccess);
  tell(took);
  ASSERT_TRUE(wait_to_go_on());
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  tell(gave_back);
  EXPECT_TRUE(wait_to_go_on());
}

TEST_F(SharedDevices, LackTheMemoryOfOtherProcesses)
{
  EXPECT_EQ(free_memory(), 64 * MiB);
  other_process other{"DISABLED_OtherProcess.TakesMemoryAndGivesItBack"};
  ASSERT_TRUE(other.has_done(took));
  EXPECT_EQ(free_memory(), 24 * MiB);
  EXPECT_EQ(cudasim::usage(0).free, 24 * MiB);
  EXPECT_EQ(cudasim::usage(0).allocated, 0U);
  EXPECT_EQ(cudasim::usage(1).free, 64 * MiB) << "the other device";
  void* ptr = nullptr;
  EXPECT_EQ(cudaMalloc(&ptr, 26 * MiB), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&ptr, 24 * MiB), cudaSuccess);
  EXPECT_EQ(free_memory(), 0U);
  EXPECT_FALSE(cudasim::occupy(0, 2 * MiB));
  other.let_go_on();
  ASSERT_TRUE(other.has_done(gave_back));
  EXPECT_EQ(free_memory(), 40 * MiB);
  EXPECT_TRUE(cudasim::occupy(0, 40 * MiB));
  EXPECT_TRUE(cudasim::occupy(0, 0));
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  other.let_go_on();
  EXPECT_TRUE(other.end());
}

TEST_F(SharedDevices, GetTheMemoryOfADeadProcessBack)
{
  other_process other{"DISABLED_OtherProcess.TakesMemoryAndGivesItBack"};
  ASSERT_TRUE(other.has_done(took));
  EXPECT_EQ(free_memory(), 24 * MiB);
  other.kill();
  EXPECT_FALSE(other.end());
  EXPECT_EQ(free_memory(), 64 * MiB);
}

TEST_F(SharedDevices, GetTheMemoryOfARestartedProcessBack)
{
  void* ptr = nullptr;
  ASSERT_EQ(cudaMalloc(&ptr, 40 * MiB), cudaSuccess);
  cudasim::reset(machine());
  EXPECT_EQ(free_memory(), 64 * MiB);
}

/// Repeatedly takes more than half of the device and gives it back. Counts how often another process had that much.
[[nodiscard]] int count_conflicts()
{
  int conflicts = 0;
  for (int taken = 0; taken < 1000;) {
    void* ptr = nullptr;
    if (cudaMalloc(&ptr, 40 * MiB) != cudaSuccess) {
      std::this_thread::yield();  // so that the other process soon gives its part back
      continue;
    }
    ++taken;
    if (free_memory() != 24 * MiB) { ++conflicts; }
    EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  }
  cudaGetLastError();
  return conflicts;
}

TEST_F(DISABLED_OtherProcess, TakesMostAgainAndAgain)
{
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  tell(began);
  ASSERT_TRUE(wait_to_go_on());
  EXPECT_EQ(count_conflicts(), 0);
}

TEST_F(SharedDevices, AreNeverGivenOutTwice)
{
  other_process other{"DISABLED_OtherProcess.TakesMostAgainAndAgain"};
  ASSERT_TRUE(other.has_done(began));
  other.let_go_on();
  EXPECT_EQ(count_conflicts(), 0);
  EXPECT_TRUE(other.end());
  EXPECT_EQ(free_memory(), 64 * MiB);
}

class SharedDevicesProcess : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("CUDASIM_SHARED"); }
};

TEST_F(SharedDevicesProcess, EndsIfTheFileCannotBeMade)
{
  ::setenv("CUDASIM_SHARED", "/no/such/folder/file", 1);
  EXPECT_EXIT(cudaFree(nullptr), ExitedWithCode(64), HasSubstr("CUDASIM_SHARED=/no/such/folder/file: No such file"));
}

TEST_F(SharedDevicesProcess, EndsIfTheFileIsAnotherOne)
{
  auto const path = ::testing::TempDir() + "cudasim-no-devices";  // the death test's process uses this path, too
  std::ofstream{path} << "somebody's text";
  ::setenv("CUDASIM_SHARED", path.c_str(), 1);
  EXPECT_EXIT(cudaFree(nullptr), ExitedWithCode(64), HasSubstr(path + ": the file was not made for this"));
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

}  // namespace
}  // namespace cudasim_tests
