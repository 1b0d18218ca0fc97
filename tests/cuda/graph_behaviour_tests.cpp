// SPDX-License-Identifier: Apache-2.0
//
// What captured graphs do when they run again, asked through the CUDA API alone. The simulator and a real GPU have to pass
// the same tests.

#include "gate.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

namespace {

/// A graph that fills `device_` with a value from `pinned_`, and copies it to `result_`.
class GraphBehaviour : public ::testing::Test {
 protected:
  void SetUp() override
  {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device_), 64), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned_), 64), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&result_), 64), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(device_, pinned_, 64, cudaMemcpyHostToDevice, stream_), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(result_, device_, 64, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph_), cudaSuccess);
    *result_ = 0;
  }

  void TearDown() override
  {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    if (exec_ != nullptr) { EXPECT_EQ(cudaGraphExecDestroy(exec_), cudaSuccess); }
    if (graph_ != nullptr) { EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess); }
    EXPECT_EQ(cudaStreamDestroy(other_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(result_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    EXPECT_EQ(cudaFree(device_), cudaSuccess);
    cudaGetLastError();
  }

  void instantiate(unsigned long long flags = 0)
  {
    ASSERT_EQ(cudaGraphInstantiate(&exec_, graph_, flags), cudaSuccess);
  }

  char* device_{};
  char* pinned_{};
  char* result_{};
  cudaStream_t stream_{};
  cudaStream_t other_{};
  cudaGraph_t graph_{};
  cudaGraphExec_t exec_{};
};

TEST_F(GraphBehaviour, AGraphRunsAsOftenAsItIsLaunched)
{
  instantiate();
  for (char value = 1; value < 4; ++value) {
    *pinned_ = value;
    ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(*result_, value);
  }
}

TEST_F(GraphBehaviour, ALaunchIsInTheOrderOfItsStream)
{
  instantiate();
  *pinned_ = 5;
  gate busy{stream_};
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(*result_, 0);
  busy.open();
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*result_, 5);
}

TEST_F(GraphBehaviour, LaunchesOfOneExecutableGraphFollowEachOtherOnAnyStreams)
{
  instantiate();
  gate busy{stream_};
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec_, other_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(other_), cudaErrorNotReady);
  busy.open();
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
}

TEST_F(GraphBehaviour, AnExecutableGraphOutlivesItsGraph)
{
  instantiate();
  ASSERT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
  graph_   = nullptr;
  *pinned_ = 6;
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*result_, 6);
}

TEST_F(GraphBehaviour, ALaunchOutlivesItsExecutableGraph)
{
  instantiate();
  *pinned_ = 7;
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  ASSERT_EQ(cudaGraphExecDestroy(exec_), cudaSuccess);
  exec_ = nullptr;
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*result_, 7);
}

TEST_F(GraphBehaviour, AnEmptyGraphRuns)
{
  cudaGraph_t empty{};
  cudaGraphExec_t exec{};
  std::size_t count = 77;
  ASSERT_EQ(cudaGraphCreate(&empty, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphGetNodes(empty, nullptr, &count), cudaSuccess);
  EXPECT_EQ(count, 0U);
  ASSERT_EQ(cudaGraphInstantiate(&exec, empty, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphUpload(exec, stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(empty), cudaSuccess);
}

TEST_F(GraphBehaviour, NodesAreHandedOutAsFarAsThereIsRoom)
{
  cudaGraphNode_t nodes[4];
  auto* const mark = reinterpret_cast<cudaGraphNode_t>(this);
  std::fill(std::begin(nodes), std::end(nodes), mark);
  std::size_t count = 1;
  ASSERT_EQ(cudaGraphGetNodes(graph_, nodes, &count), cudaSuccess);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(nodes[1], mark);
  count = 4;
  ASSERT_EQ(cudaGraphGetNodes(graph_, nodes, &count), cudaSuccess);
  EXPECT_EQ(count, 2U);
  EXPECT_NE(nodes[0], nodes[1]);
  EXPECT_EQ(nodes[3], nullptr);
  ASSERT_EQ(cudaGraphGetRootNodes(graph_, nullptr, &count), cudaSuccess);
  EXPECT_EQ(count, 1U);
}

TEST_F(GraphBehaviour, FlagsAreCheckedAndKept)
{
  cudaGraphExec_t none{};
  unsigned long long flags = 0;
  EXPECT_EQ(cudaGraphInstantiate(&none, graph_, cudaGraphInstantiateFlagUpload), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphInstantiate(&none, graph_, 0xff00), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphInstantiateWithFlags(&none, graph_, 0xff00), cudaErrorInvalidValue);
  instantiate(cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUseNodePriority);
  ASSERT_EQ(cudaGraphExecGetFlags(exec_, &flags), cudaSuccess);
  EXPECT_EQ(flags, static_cast<unsigned long long>(cudaGraphInstantiateFlagAutoFreeOnLaunch))
    << "the other is only used";
  EXPECT_EQ(cudaGraphExecGetFlags(exec_, nullptr), cudaErrorInvalidValue);
}

TEST_F(GraphBehaviour, InstantiatingWithParametersCanUpload)
{
  cudaGraphInstantiateParams parameters{};
  parameters.flags        = cudaGraphInstantiateFlagUpload;
  parameters.uploadStream = stream_;
  ASSERT_EQ(cudaGraphInstantiateWithParams(&exec_, graph_, &parameters), cudaSuccess);
  EXPECT_EQ(parameters.result_out, cudaGraphInstantiateSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
}

TEST_F(GraphBehaviour, NullIsNoGraph)
{
  std::size_t count        = 0;
  unsigned long long flags = 0;
  EXPECT_EQ(cudaGraphCreate(nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphDestroy(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphGetNodes(nullptr, nullptr, &count), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphGetNodes(graph_, nullptr, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphInstantiate(nullptr, graph_, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphInstantiate(&exec_, nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphLaunch(nullptr, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphUpload(nullptr, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecGetFlags(nullptr, &flags), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecDestroy(nullptr), cudaErrorInvalidValue);
  exec_ = nullptr;
}

TEST_F(GraphBehaviour, GraphsCannotBeLaunchedIntoACapture)
{
  instantiate();
  cudaGraph_t captured{};
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec_, stream_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &captured), cudaErrorStreamCaptureInvalidated);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaGraphUpload(exec_, stream_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &captured), cudaErrorStreamCaptureInvalidated);
}

TEST_F(GraphBehaviour, GraphsCanBeLaunchedBesideACapture)
{
  instantiate();
  cudaGraph_t captured{};
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec_, other_), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &captured), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(captured), cudaSuccess);
}

TEST_F(GraphBehaviour, InstantiatingBesideAGlobalCaptureInvalidatesIt)
{
  cudaGraph_t captured{};
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaGraphInstantiate(&exec_, graph_, 0), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &captured), cudaErrorStreamCaptureInvalidated);
  exec_ = nullptr;
}

// ---------------------------------------------------------------------------------------------------------------
// Graphs that allocate memory

/// Graphs that allocate memory, and free it only if asked to.
class GraphMemoryBehaviour : public GraphBehaviour {
 protected:
  void capture(bool frees)
  {
    ASSERT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
    ASSERT_EQ(cudaMallocAsync(&memory_, 1024, stream_), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(memory_, 1, 1024, stream_), cudaSuccess);
    if (frees) { ASSERT_EQ(cudaFreeAsync(memory_, stream_), cudaSuccess); }
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph_), cudaSuccess);
  }
  void* memory_{};
};

TEST_F(GraphMemoryBehaviour, AGraphThatFreesItsMemoryRunsAgainAndAgain)
{
  capture(true);
  instantiate();
  for (int i = 0; i < 3; ++i) { EXPECT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess); }
}

TEST_F(GraphMemoryBehaviour, ThereIsOneExecutableGraphAtATime)
{
  capture(true);
  instantiate();
  cudaGraphExec_t second{};
  EXPECT_EQ(cudaGraphInstantiate(&second, graph_, 0), cudaErrorNotSupported);
  ASSERT_EQ(cudaGraphExecDestroy(exec_), cudaSuccess);
  instantiate();
}

TEST_F(GraphMemoryBehaviour, WhatALaunchLeavesBehindHasToBeFreedBeforeTheNext)
{
  capture(false);
  instantiate();
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec_, stream_), cudaErrorInvalidValue);
  ASSERT_EQ(cudaFreeAsync(memory_, stream_), cudaSuccess) << "queued behind the launch";
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaFree(memory_), cudaSuccess);
}

TEST_F(GraphMemoryBehaviour, WithAutoFreeTheNextLaunchFreesIt)
{
  capture(false);
  instantiate(cudaGraphInstantiateFlagAutoFreeOnLaunch);
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(memory_, stream_), cudaSuccess);
}

TEST_F(GraphMemoryBehaviour, WhatALaunchLeavesBehindOutlivesTheGraph)
{
  capture(false);
  instantiate();
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  ASSERT_EQ(cudaGraphExecDestroy(exec_), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
  exec_  = nullptr;
  graph_ = nullptr;
  EXPECT_EQ(cudaMemsetAsync(memory_, 2, 1024, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(result_, memory_, 64, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(memory_, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*result_, 2);
}

}  // namespace
