// SPDX-License-Identifier: Apache-2.0
#include "../support/simulated.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/error.hpp>
#include <rmm/prefetch.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <optional>
#include <thread>

namespace {

struct CudaStreamOnSimulator : Simulated {};

TEST_F(CudaStreamOnSimulator, AFailureToCreateThrowsCudaError)
{
  cudasim::inject({"*", 1, cudaErrorInitializationError, 1});
  EXPECT_THROW(rmm::cuda_stream{}, rmm::cuda_error);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaStreamOnSimulator, EveryStreamIsDestroyedOnce)
{
  {
    rmm::cuda_stream first{};
    rmm::cuda_stream second{};
    rmm::cuda_stream third{std::move(first)};
    second = std::move(third);
    EXPECT_EQ(cudasim::ledger().size(), 1U);
  }
  EXPECT_EQ(cudasim::calls("cudaStreamDestroy"), 2U);
}

TEST_F(CudaStreamOnSimulator, SynchronizeThrowsWhatTheStreamFailedWith)
{
  rmm::cuda_stream const stream{};
  cudasim::inject({"cudaStreamSynchronize", 1, cudaErrorLaunchFailure, 1});
  EXPECT_THROW(stream.synchronize(), rmm::cuda_error);
  cudasim::inject({"cudaStreamSynchronize", 1, cudaErrorLaunchFailure, 1});
  EXPECT_THROW(stream.view().synchronize(), rmm::cuda_error);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

#if RMM_ASSERTIONS_ENABLED

struct CudaStreamOnSimulatorDeathTest : Simulated {};

TEST_F(CudaStreamOnSimulatorDeathTest, AFailedSynchronizeNoThrowIsAsserted)
{
  rmm::cuda_stream const stream{};
  EXPECT_DEATH(
    {
      cudasim::inject({"cudaStreamSynchronize", 1, cudaErrorLaunchFailure, 1});
      stream.synchronize_no_throw();
    },
    "cudaErrorLaunchFailure(.|\n)*Assertion");
}

#else

TEST_F(CudaStreamOnSimulator, AFailedSynchronizeNoThrowIsIgnored)
{
  rmm::cuda_stream const stream{};
  cudasim::inject({"cudaStreamSynchronize", 1, cudaErrorLaunchFailure, 1});
  stream.synchronize_no_throw();
  EXPECT_EQ(cudasim::faults_fired(), 1U);
  static_cast<void>(cudaGetLastError());
}

#endif

TEST_F(CudaStreamOnSimulator, SynchronizeWaitsForWorkThatIsHeld)
{
  rmm::cuda_stream const stream{};
  std::atomic<bool> ran{false};
  cudasim::hold(stream.value());
  ASSERT_EQ(cudasim::launch(stream.value(), {}, {}, [&] { ran = true; }), cudaSuccess);
  EXPECT_FALSE(ran);
  std::thread release{[&] { cudasim::let_go(stream.value()); }};
  stream.synchronize();
  EXPECT_TRUE(ran);
  release.join();
}

TEST_F(CudaStreamOnSimulator, TheEndOfTheRuntimeDoesNotDisturbDestructors)
{
  {
    rmm::cuda_stream const stream{};
    rmm::cuda_stream_pool const pool{2};
    cudasim::begin_unloading();
  }
  cudasim::reset();  // these streams belong to the old machine
}

TEST_F(CudaStreamOnSimulator, APoolThatFailsHalfWayKeepsNoStream)
{
  auto const runs = cudasim::for_each_fault(
    [] {
      try {
        rmm::cuda_stream_pool const pool{4};
      } catch (rmm::cuda_error const&) {}
    },
    [](auto n) { EXPECT_EQ(cudasim::leak_report(), "") << "failure of call " << n; },
    cudaErrorMemoryAllocation,
    "cudaStreamCreateWithFlags");
  EXPECT_EQ(runs, 4U);
}

struct PrefetchOnSimulator : Simulated {};

TEST_F(PrefetchOnSimulator, OtherErrorsThrowCudaError)
{
  rmm::cuda_stream const stream{};
  int object{};
  cudasim::inject({"cudaMemPrefetchAsync", 1, cudaErrorLaunchFailure, 1});
  EXPECT_THROW(rmm::prefetch(&object, sizeof object, rmm::cuda_device_id{0}, stream), rmm::cuda_error);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
