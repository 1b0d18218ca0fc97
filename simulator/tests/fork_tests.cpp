// SPDX-License-Identifier: Apache-2.0
//
// Processes forked from one that used CUDA: nothing works there, as with the real runtime.

#include "support.hpp"

#include <sys/wait.h>

#include <unistd.h>

#include <array>
#include <string>

namespace cudasim_tests {
namespace {

/// The child's standard error, and the status that `body` returned there.
struct answer {
  int status;
  std::string text;
};

template <class Body>
[[nodiscard]] answer in_forked_process(Body&& body)
{
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  auto const child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::_exit(body());
  }
  EXPECT_EQ(::close(ends[1]), 0);
  answer result{};
  std::array<char, 256> part{};
  for (ssize_t got = 0; (got = ::read(ends[0], part.data(), part.size())) > 0;) {
    result.text.append(part.data(), static_cast<std::size_t>(got));
  }
  EXPECT_EQ(::close(ends[0]), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  result.status = WEXITSTATUS(status);
  return result;
}

class ForkedProcess : public Simulated {};

TEST_F(ForkedProcess, HasNoCuda)
{
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  auto const found = in_forked_process([] { return static_cast<int>(cudaDeviceSynchronize()); });
  EXPECT_EQ(found.status, static_cast<int>(cudaErrorInitializationError));
  EXPECT_EQ(
    found.text,
    "cudasim: cudaDeviceSynchronize: this process was forked from one that used CUDA; it has to start a new program\n");
}

// A process that the child forks in turn starts with a new count.
TEST_F(ForkedProcess, SaysSoThreeTimes)
{
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  auto const call_often = [] {
    for (int i = 0; i < 10'000; ++i) { cudaDeviceSynchronize(); }
  };
  std::string const line =
    "cudasim: cudaDeviceSynchronize: this process was forked from one that used CUDA; it has to start a new program\n";
  auto const whole = line + line + line + "cudasim: more of these are not printed; CUDASIM_ALL=1 prints them\n";
  auto const found = in_forked_process([&] {
    call_often();
    auto const child = ::fork();
    if (child == 0) {
      call_often();
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return status;
  });
  EXPECT_EQ(found.status, 0);
  EXPECT_EQ(found.text, whole + whole);
}

TEST_F(ForkedProcess, FindsNoDevices)
{
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  int count         = 0;
  auto const status = in_forked_process([&] { return static_cast<int>(cudaGetDeviceCount(&count)); }).status;
  EXPECT_EQ(status, static_cast<int>(cudaErrorInitializationError));
}

TEST_F(ForkedProcess, LeavesTheFirstOneAlone)
{
  scoped_stream const s;
  void* ptr = nullptr;
  ASSERT_EQ(cudaMalloc(&ptr, 100), cudaSuccess);
  EXPECT_NE(in_forked_process([&] { return static_cast<int>(cudaFree(ptr)); }).status, 0);
  EXPECT_EQ(cudaMemsetAsync(ptr, 0, 100, s), cudaSuccess);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
}

}  // namespace
}  // namespace cudasim_tests
