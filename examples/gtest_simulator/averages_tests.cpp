// SPDX-License-Identifier: Apache-2.0
//
// Tests on the simulator. Besides the result they check the order of the streams, the behaviour when any CUDA call fails, and that
// no memory, event or stream is leaked.

#include "averages.hpp"
#include "kernels.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/device_uvector.hpp>

#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

namespace {

/// Each test has a new simulated machine, which checks every use of memory.
class AveragesTest : public ::testing::Test {
 protected:
  void SetUp() override
  {
    cudasim::options machine;
    machine.mode           = cudasim::execution::stepped;  // work runs only when something waits for it
    machine.check_ordering = true;
    cudasim::reset(machine);
    copying_.emplace(rmm::cuda_stream::flags::non_blocking);
    computing_.emplace(rmm::cuda_stream::flags::non_blocking);
  }

  void TearDown() override
  {
    cudasim::run_until_idle();
    copying_.reset();
    computing_.reset();
    EXPECT_EQ(cudasim::leak_report(), "");
  }

  [[nodiscard]] std::vector<float> averages(std::vector<float> const& values)
  {
    return averages_of_neighbours(values, *copying_, *computing_);
  }

  std::optional<rmm::cuda_stream> copying_;
  std::optional<rmm::cuda_stream> computing_;
};

TEST_F(AveragesTest, AreHalfTheSumOfNeighbours) { EXPECT_EQ(averages({1, 2, 4, 8}), (std::vector<float>{1.5F, 3, 6})); }

TEST_F(AveragesTest, KeepTheOrderOfStreams)
{
  for (int i = 0; i < 3; ++i) { static_cast<void>(averages({1, 2, 4, 8})); }
  for (auto const& violation : cudasim::violations()) { ADD_FAILURE() << violation.text; }
}

TEST_F(AveragesTest, LeaveNothingBehindWhicheverCallFails)
{
  for (char const* const function : {"cudaMalloc", "cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent"}) {
    bool threw      = false;
    auto const work = [&] {
      threw = false;
      try {
        static_cast<void>(averages({1, 2, 4, 8}));
      } catch (std::exception const&) {
        threw = true;
      }
    };
    auto const verify = [&](std::uint64_t n) {
      EXPECT_TRUE(threw) << "call " << n << " of " << function << " failed, but no exception was thrown";
      cudasim::run_until_idle();
      EXPECT_EQ(cudasim::usage(0).allocated, 0) << "after call " << n << " of " << function << " failed";
    };
    EXPECT_GE(cudasim::for_each_fault(work, verify, cudaErrorMemoryAllocation, function), 1) << function;
  }
}

// Shows the report of an error: here, the line that orders the streams is missing.
TEST_F(AveragesTest, AMissingWaitWouldBeFound)
{
  std::vector<float> const values(4);
  {
    rmm::device_uvector<float> data(values.size(), *copying_);
    cudaMemcpyAsync(data.data(), values.data(), sizeof(float) * 4, cudaMemcpyHostToDevice, copying_->value());
    launch_scale(data.data(), 2, values.size(), computing_->value());
    computing_->synchronize();
    copying_->synchronize();
  }
  auto const found = cudasim::violations();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].what, cudasim::violation::kind::race) << found[0].text;
  EXPECT_NE(found[0].text.find("scale"), std::string::npos) << found[0].text;
}

}  // namespace
