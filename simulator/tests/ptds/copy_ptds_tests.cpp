// SPDX-License-Identifier: Apache-2.0
//
// Compiled for per-thread default streams: calls go to the _ptds and _ptsz twins, and stream 0 is the thread's own.

#include "../support.hpp"

#include <vector>

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
#error "compile this file with CUDA_API_PER_THREAD_DEFAULT_STREAM"
#endif

namespace cudasim_tests {
namespace {

using cudasim::violation;

/// Two blocks of the device, with the legacy stream held: work that still runs is on the thread's own.
class PtdsCopyTest : public Simulated {
 protected:
  void SetUp() override
  {
    Simulated::SetUp();
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory_), 64), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&other_), 64), cudaSuccess);
    cudasim::check_ordering(true);
  }
  void TearDown() override
  {
    EXPECT_EQ(cudaFree(other_), cudaSuccess);
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
    Simulated::TearDown();
  }

  /// Runs `work` while a kernel blocks the thread's own stream. Expects the work to wait, but not the call.
  template <class Work>
  static void expect_own_stream(Work&& work)
  {
    cudasim::hold(cudaStreamPerThread);
    ASSERT_EQ(work(), cudaSuccess);
    EXPECT_EQ(cudasim::pending(cudaStreamPerThread), 1U);
    EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 0U);
    cudasim::let_go(cudaStreamPerThread);
    ASSERT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
  }

  char* memory_{};
  char* other_{};
};

TEST_F(PtdsCopyTest, FillsRunOnTheThreadsOwnStream)
{
  expect_own_stream([&] { return cudaMemset(memory_, 1, 64); });
  EXPECT_EQ(memory_[63], 1);
  expect_own_stream([&] { return cudaMemsetAsync(memory_, 2, 64, nullptr); });
  EXPECT_EQ(memory_[63], 2);
  expect_own_stream([&] { return cudaMemset2D(memory_, 16, 3, 16, 4); });
  EXPECT_EQ(memory_[63], 3);
  expect_own_stream([&] { return cudaMemset2DAsync(memory_, 16, 4, 16, 4, nullptr); });
  EXPECT_EQ(memory_[63], 4);
  cudaPitchedPtr const box{memory_, 16, 16, 2};
  expect_own_stream([&] { return cudaMemset3D(box, 5, cudaExtent{16, 2, 2}); });
  EXPECT_EQ(memory_[63], 5);
  expect_own_stream([&] { return cudaMemset3DAsync(box, 6, cudaExtent{16, 2, 2}, nullptr); });
  EXPECT_EQ(memory_[63], 6);
}

TEST_F(PtdsCopyTest, CopiesRunOnTheThreadsOwnStream)
{
  expect_own_stream([&] { return cudaMemcpy(other_, memory_, 64, cudaMemcpyDefault); });
  expect_own_stream([&] { return cudaMemcpyAsync(other_, memory_, 64, cudaMemcpyDefault, nullptr); });
  expect_own_stream([&] { return cudaMemcpy2D(other_, 16, memory_, 16, 16, 4, cudaMemcpyDefault); });
  expect_own_stream([&] { return cudaMemcpy2DAsync(other_, 16, memory_, 16, 16, 4, cudaMemcpyDefault, nullptr); });
}

TEST_F(PtdsCopyTest, BoxesRunOnTheThreadsOwnStream)
{
  cudaMemcpy3DParms p{};
  p.srcPtr = cudaPitchedPtr{memory_, 16, 16, 2};
  p.dstPtr = cudaPitchedPtr{other_, 16, 16, 2};
  p.extent = cudaExtent{16, 2, 2};
  p.kind   = cudaMemcpyDefault;
  expect_own_stream([&] { return cudaMemcpy3D(&p); });
  expect_own_stream([&] { return cudaMemcpy3DAsync(&p, nullptr); });
  cudaMemcpy3DPeerParms peer{};
  peer.srcPtr = p.srcPtr;
  peer.dstPtr = p.dstPtr;
  peer.extent = p.extent;
  expect_own_stream([&] { return cudaMemcpy3DPeerAsync(&peer, nullptr); });
}

TEST_F(PtdsCopyTest, PeerCopiesHaveNoTwinsAndStayOnTheLegacyStream)
{
  cudasim::hold(cudaStreamLegacy);
  ASSERT_EQ(cudaMemcpyPeer(other_, 0, memory_, 0, 64), cudaSuccess);
  ASSERT_EQ(cudaMemcpyPeerAsync(other_, 0, memory_, 0, 64, nullptr), cudaSuccess);
  EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 2U);
  cudasim::let_go(cudaStreamLegacy);
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  cudaMemcpy3DPeerParms peer{};
  peer.srcPtr = cudaPitchedPtr{memory_, 16, 16, 2};
  peer.dstPtr = cudaPitchedPtr{other_, 16, 16, 2};
  peer.extent = cudaExtent{16, 2, 2};
  ASSERT_EQ(cudaMemcpy3DPeer(&peer), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

#if CUDART_VERSION >= 13000
TEST_F(PtdsCopyTest, ABatchTakesTheThreadsOwnStream)
{
  void* const to[]{other_};
  void const* const from[]{memory_};
  std::size_t const bytes[]{64};
  std::size_t first = 0;
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  expect_own_stream([&] { return cudaMemcpyBatchAsync(to, from, bytes, 1, &attributes, &first, 1, nullptr); });
}
#endif

TEST_F(PtdsCopyTest, ASynchronousCopyOnTheThreadsOwnStreamCannotBeCaptured)
{
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(other_, memory_, 16, cudaMemcpyDefault), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(nullptr, &graph), cudaErrorStreamCaptureInvalidated);
  ASSERT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMemset(memory_, 0, 16), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(nullptr, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(PtdsCopyTest, GraphsAreLaunchedOnTheThreadsOwnStream)
{
  cudaGraph_t graph{};
  cudaGraphExec_t exec{};
  cudaGraphInstantiateParams parameters{};
  parameters.flags = cudaGraphInstantiateFlagUpload;
  ASSERT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory_, 9, 64, nullptr), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(nullptr, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiateWithParams(&exec, graph, &parameters), cudaSuccess);
  expect_own_stream([&] { return cudaGraphUpload(exec, nullptr); });
  expect_own_stream([&] { return cudaGraphLaunch(exec, nullptr); });
  EXPECT_EQ(memory_[63], 9);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(PtdsCopyTest, TwinsCountAsTheFunctionItself)
{
  auto const before = cudasim::calls("cudaMemset");
  ASSERT_EQ(cudaMemset(memory_, 0, 64), cudaSuccess);
  EXPECT_EQ(cudasim::calls("cudaMemset"), before + 1);
  cudasim::inject({"cudaMemset", 1, cudaErrorUnknown, 1});
  EXPECT_EQ(cudaMemset(memory_, 0, 64), cudaErrorUnknown);
}

}  // namespace
}  // namespace cudasim_tests
