// SPDX-License-Identifier: Apache-2.0
//
// The last error of a thread and the names of errors, asked through the CUDA API alone. The simulator and a real GPU have to
// pass the same tests.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace {

constexpr auto no_error_at_all = static_cast<cudaError_t>(1011);

class ErrorBehaviour : public ::testing::Test {
 protected:
  void SetUp() override
  {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    cudaGetLastError();
  }
  void TearDown() override { cudaGetLastError(); }
};

TEST_F(ErrorBehaviour, AFailureIsTheLastErrorUntilItIsRead)
{
  ASSERT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(ErrorBehaviour, ASuccessLeavesTheLastErrorAsItIs)
{
  ASSERT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST_F(ErrorBehaviour, ALaterFailureReplacesAnEarlierOne)
{
  ASSERT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  ASSERT_EQ(cudaGetDevice(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST_F(ErrorBehaviour, EveryThreadHasItsOwnLastError)
{
  ASSERT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  std::thread{[] {
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    EXPECT_EQ(cudaGetDevice(nullptr), cudaErrorInvalidValue);
  }}.join();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST_F(ErrorBehaviour, OutOfMemoryIsAnErrorLikeOthers)
{
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, std::size_t{1} << 60U), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
}

TEST_F(ErrorBehaviour, NotReadyIsAnAnswerAndNoError)
{
  cudaStream_t s{};
  cudaEvent_t e{};
  std::promise<void> open;
  auto opened = open.get_future();
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&e), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(
              s, [](void* f) { static_cast<std::future<void>*>(f)->wait(); }, &opened),
            cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e, s), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(e), cudaErrorNotReady);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  open.set_value();
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(e), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
}

TEST_F(ErrorBehaviour, ErrorsHaveTheNamesOfTheirEnumerators)
{
  EXPECT_STREQ(cudaGetErrorName(cudaSuccess), "cudaSuccess");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorCudartUnloading), "cudaErrorCudartUnloading");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorPeerAccessAlreadyEnabled), "cudaErrorPeerAccessAlreadyEnabled");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNotSupported), "cudaErrorNotSupported");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorStreamCaptureImplicit), "cudaErrorStreamCaptureImplicit");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorUnknown), "cudaErrorUnknown");
}

TEST_F(ErrorBehaviour, ErrorsAreDescribed)
{
  EXPECT_STREQ(cudaGetErrorString(cudaSuccess), "no error");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorCudartUnloading), "driver shutting down");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidDevice), "invalid device ordinal");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorNoDevice), "no CUDA-capable device is detected");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidResourceHandle), "invalid resource handle");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorNotReady), "device not ready");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorIllegalAddress), "an illegal memory access was encountered");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorPeerAccessAlreadyEnabled), "peer access is already enabled");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorPeerAccessNotEnabled), "peer access has not been enabled");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorNotSupported), "operation not supported");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorUnknown), "unknown error");
}

TEST_F(ErrorBehaviour, NumbersOfNoErrorHaveNoName)
{
  EXPECT_STREQ(cudaGetErrorName(no_error_at_all), "unrecognized error code");
  EXPECT_STREQ(cudaGetErrorString(no_error_at_all), "unrecognized error code");
}

}  // namespace
