// SPDX-License-Identifier: Apache-2.0
//
// Faults, counters of calls, and unloading.

#include "support.hpp"

#include <atomic>
#include <stdexcept>
#include <thread>

namespace cudasim_tests {
namespace {

using cudasim::fault;

class FaultTest : public Simulated {
 protected:
  /// Calls cudaSetDevice(0) `times` times. Returns a letter for each call: '.' for success, '!' for failure.
  static std::string set_device(int times)
  {
    std::string pattern;
    for (int i = 0; i < times; ++i) { pattern += cudaSetDevice(0) == cudaSuccess ? '.' : '!'; }
    return pattern;
  }
};

TEST_F(FaultTest, TheNthCallOfAFunctionFails)
{
  cudasim::inject({"cudaSetDevice", 3, cudaErrorDevicesUnavailable, 1});
  EXPECT_EQ(set_device(5), "..!..");
  EXPECT_EQ(cudasim::faults_fired(), 1U);
}

TEST_F(FaultTest, TheErrorIsTheOneAskedForAndTheLastError)
{
  cudasim::inject({"cudaSetDevice", 1, cudaErrorDevicesUnavailable, 1});
  EXPECT_EQ(cudaSetDevice(0), cudaErrorDevicesUnavailable);
  EXPECT_EQ(cudaGetLastError(), cudaErrorDevicesUnavailable);
}

TEST_F(FaultTest, SeveralCallsFailInARow)
{
  cudasim::inject({"cudaSetDevice", 2, cudaErrorUnknown, 3});
  EXPECT_EQ(set_device(6), ".!!!..");
  EXPECT_EQ(cudasim::faults_fired(), 3U);
}

TEST_F(FaultTest, AFaultCanLastForEver)
{
  cudasim::inject({"cudaSetDevice", 2, cudaErrorUnknown, ~std::uint64_t{0}});
  EXPECT_EQ(set_device(5), ".!!!!");
}

TEST_F(FaultTest, CountingStartsWithTheInjection)
{
  EXPECT_EQ(set_device(4), "....");
  cudasim::inject({"cudaSetDevice", 2, cudaErrorUnknown, 1});
  EXPECT_EQ(set_device(3), ".!.");
}

TEST_F(FaultTest, BothWaysToRecordAnEventCanFail)
{
  scoped_event const e;
  cudasim::inject({"cudaEventRecord", 1, cudaErrorUnknown, 1});
  cudasim::inject({"cudaEventRecordWithFlags", 1, cudaErrorDevicesUnavailable, 1});
  EXPECT_EQ(cudaEventRecordWithFlags(e, nullptr, cudaEventRecordDefault), cudaErrorDevicesUnavailable);
  EXPECT_EQ(cudaEventRecord(e, nullptr), cudaErrorUnknown);
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), 1U);
  EXPECT_EQ(cudasim::calls("cudaEventRecordWithFlags"), 1U);
}

TEST_F(FaultTest, AVersionOfAFunctionIsTheFunction)
{
  cudasim::inject({"cudaEventElapsedTime_v2", 1, cudaErrorUnknown, 1});
  EXPECT_EQ(cudaEventElapsedTime(nullptr, nullptr, nullptr), cudaErrorUnknown);
  EXPECT_EQ(cudasim::calls("cudaEventElapsedTime_v2"), 1U);
}

TEST_F(FaultTest, ACallThatFailsHasNoEffect)
{
  auto* memory = reinterpret_cast<void*>(this);
  cudasim::inject({"cudaMalloc", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_EQ(cudaMalloc(&memory, 64), cudaErrorMemoryAllocation);
  EXPECT_EQ(memory, this);
  EXPECT_TRUE(cudasim::ledger().empty());
  EXPECT_TRUE(cudasim::violations().empty()) << "a fault is no mistake of the program";
}

TEST_F(FaultTest, OtherFunctionsAreNotConcerned)
{
  cudasim::inject({"cudaMalloc", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_EQ(set_device(2), "..");
  EXPECT_EQ(cudasim::faults_fired(), 0U);
}

TEST_F(FaultTest, AStarIsEveryFunction)
{
  int value = 0;
  cudasim::inject({"*", 2, cudaErrorUnknown, 2});
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaGetDevice(&value), cudaErrorUnknown);
  EXPECT_EQ(cudaGetDeviceCount(&value), cudaErrorUnknown);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(FaultTest, FunctionsThatReportErrorsAreNotCountedAndNeverFail)
{
  cudasim::inject({"*", 1, cudaErrorUnknown, 1});
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorUnknown), "cudaErrorUnknown");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorUnknown), "unknown error");
  EXPECT_EQ(cudasim::faults_fired(), 0U);
  EXPECT_EQ(set_device(1), "!");
}

TEST_F(FaultTest, FaultsAreCountedEachForItself)
{
  cudasim::inject({"cudaSetDevice", 1, cudaErrorUnknown, 1});
  cudasim::inject({"cudaSetDevice", 3, cudaErrorUnknown, 1});
  cudasim::inject({"*", 5, cudaErrorUnknown, 1});
  EXPECT_EQ(set_device(6), "!.!.!.");
  EXPECT_EQ(cudasim::faults_fired(), 3U);
}

TEST_F(FaultTest, OfTwoFaultsOfOneCallTheFirstAnswers)
{
  cudasim::inject({"*", 1, cudaErrorInvalidValue, 1});
  cudasim::inject({"cudaSetDevice", 1, cudaErrorUnknown, 1});
  EXPECT_EQ(cudaSetDevice(0), cudaErrorInvalidValue);
  EXPECT_EQ(cudasim::faults_fired(), 1U);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(FaultTest, FaultsCanBeCleared)
{
  cudasim::inject({"cudaSetDevice", 2, cudaErrorUnknown, 1});
  EXPECT_EQ(set_device(1), ".");
  cudasim::clear_faults();
  EXPECT_EQ(set_device(2), "..");
}

TEST_F(FaultTest, ResettingTheMachineClearsFaultsAndCounters)
{
  cudasim::inject({"cudaSetDevice", 1, cudaErrorUnknown, 2});
  EXPECT_EQ(set_device(1), "!");
  cudasim::reset(machine());
  EXPECT_EQ(cudasim::faults_fired(), 0U);
  EXPECT_EQ(cudasim::calls(), 0U);
  EXPECT_EQ(set_device(1), ".");
}

TEST_F(FaultTest, LaunchesCanFail)
{
  cudasim::inject({"cudasim::launch", 1, cudaErrorLaunchOutOfResources, 1});
  EXPECT_EQ(cudasim::launch(nullptr, {}, {}), cudaErrorLaunchOutOfResources);
  EXPECT_EQ(cudasim::launch(nullptr, {}, {}), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(FaultTest, ATwinIsTheFunctionItself)
{
  cudasim::inject({"cudaMemsetAsync_ptsz", 1, cudaErrorUnknown, 1});
  EXPECT_EQ(cudaMemsetAsync(nullptr, 0, 0, nullptr), cudaErrorUnknown);
  EXPECT_EQ(cudasim::calls("cudaMemsetAsync_ptsz"), 1U);
}

TEST_F(FaultTest, AFaultThatCannotHappenIsRefused)
{
  EXPECT_THROW(cudasim::inject({"cudaMaloc", 1, cudaErrorUnknown, 1}), std::invalid_argument);
  EXPECT_THROW(cudasim::inject({"", 1, cudaErrorUnknown, 1}), std::invalid_argument);
  EXPECT_THROW(cudasim::inject({"cudaGetLastError", 1, cudaErrorUnknown, 1}), std::invalid_argument);
  EXPECT_THROW(cudasim::inject({"cudaMalloc", 0, cudaErrorUnknown, 1}), std::invalid_argument);
  EXPECT_THROW(cudasim::inject({"cudaMalloc", 1, cudaErrorUnknown, 0}), std::invalid_argument);
  EXPECT_THROW(cudasim::inject({"cudaMalloc", 1, cudaSuccess, 1}), std::invalid_argument);
  EXPECT_NO_THROW(cudasim::inject({"cuMemCreate", 1, cudaErrorUnknown, 1}));
}

TEST_F(FaultTest, ManyThreadsMeetAFaultExactlyAsOftenAsAsked)
{
  std::atomic<int> failures{0};
  cudasim::inject({"cudaGetDevice", 100, cudaErrorUnknown, 250});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 500; ++n) {
        int value = 0;
        if (cudaGetDevice(&value) != cudaSuccess) { ++failures; }
      }
    });
  }
  for (auto& t : threads) { t.join(); }
  EXPECT_EQ(failures, 250);
  EXPECT_EQ(cudasim::faults_fired(), 250U);
}

// --- Every call in turn

TEST_F(FaultTest, EveryCallOfAScenarioFailsOnce)
{
  std::vector<std::uint64_t> verified;
  std::vector<std::string> patterns;
  auto const runs = cudasim::for_each_fault([&] { patterns.push_back(set_device(3)); },
                                            [&](std::uint64_t n) { verified.push_back(n); });
  EXPECT_EQ(runs, 3U);
  EXPECT_EQ(patterns, (std::vector<std::string>{"!..", ".!.", "..!", "..."}));
  EXPECT_EQ(verified, (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(set_device(3), "...") << "faults are cleared";
}

TEST_F(FaultTest, TheDriverTakesOneFunctionAndAnError)
{
  std::vector<cudaError_t> answers;
  auto const runs = cudasim::for_each_fault(
    [&] {
      answers.push_back(cudaDeviceSynchronize());
      answers.push_back(cudaSetDevice(0));
    },
    [](std::uint64_t) {},
    cudaErrorInvalidDevice,
    "cudaSetDevice");
  EXPECT_EQ(runs, 1U);
  EXPECT_EQ(answers, (std::vector<cudaError_t>{cudaSuccess, cudaErrorInvalidDevice, cudaSuccess, cudaSuccess}));
}

TEST_F(FaultTest, WhatTheScenarioThrowsLeavesTheDriverWithTheFaultsCleared)
{
  auto const scenario = [] {
    if (cudaSetDevice(0) != cudaSuccess) { throw std::runtime_error{"as planned"}; }
  };
  EXPECT_THROW(cudasim::for_each_fault(scenario, [](std::uint64_t) {}), std::runtime_error);
  EXPECT_EQ(set_device(2), "..");
}

// --- Counters

TEST_F(FaultTest, CallsAreCountedByFunctionAndTogether)
{
  int value = 0;
  ASSERT_EQ(set_device(3), "...");
  ASSERT_EQ(cudaGetDevice(&value), cudaSuccess);
  EXPECT_EQ(cudasim::calls("cudaSetDevice"), 3U);
  EXPECT_EQ(cudasim::calls("cudaGetDevice"), 1U);
  EXPECT_EQ(cudasim::calls("cudaMalloc"), 0U);
  EXPECT_EQ(cudasim::calls(), 4U);
}

TEST_F(FaultTest, CallsThatFailAreCountedToo)
{
  cudasim::inject({"cudaSetDevice", 1, cudaErrorUnknown, 1});
  EXPECT_EQ(set_device(1), "!");
  EXPECT_EQ(cudasim::calls("cudaSetDevice"), 1U);
}

// --- Unloading

TEST_F(FaultTest, EveryCallFailsWhileTheRuntimeIsUnloading)
{
  int value = 0;
  cudasim::begin_unloading();
  EXPECT_EQ(cudaGetDevice(&value), cudaErrorCudartUnloading);
  EXPECT_EQ(cudaFree(nullptr), cudaErrorCudartUnloading);
  EXPECT_EQ(cudaRuntimeGetVersion(&value), cudaErrorCudartUnloading);
  EXPECT_EQ(cudaGetLastError(), cudaErrorCudartUnloading);
  cudasim::reset(machine());
  EXPECT_EQ(cudaGetDevice(&value), cudaSuccess);
}

}  // namespace
}  // namespace cudasim_tests
