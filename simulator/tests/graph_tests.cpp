// SPDX-License-Identifier: Apache-2.0
//
// Graphs: instantiating and launching captured graphs. Captures themselves are tested in capture_tests.cpp.

#include "support.hpp"

#include <string>

namespace cudasim_tests {
namespace {

using cudasim::violation;

class GraphTest : public Stepped {
 protected:
  /// The graph of kernels that append the letters of `text` to `log_`.
  cudaGraph_t capture(std::string const& text)
  {
    scoped_stream const s;
    cudaGraph_t graph{};
    EXPECT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
    for (char const letter : text) {
      EXPECT_EQ(cudasim::launch(s, {}, {}, [this, letter] { log_ += letter; }), cudaSuccess);
    }
    EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
    return graph;
  }

  cudaGraphExec_t instantiate(cudaGraph_t graph)
  {
    cudaGraphExec_t exec{};
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    return exec;
  }

  std::string log_;
};

TEST_F(GraphTest, ALaunchRunsTheNodesInTheOrderOfTheStream)
{
  scoped_stream const s;
  auto* const graph = capture("bc");
  auto* const exec  = instantiate(graph);
  ASSERT_EQ(cudasim::launch(s, {}, {}, [&] { log_ += 'a'; }), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, s), cudaSuccess);
  ASSERT_EQ(cudasim::launch(s, {}, {}, [&] { log_ += 'd'; }), cudaSuccess);
  EXPECT_EQ(log_, "");
  EXPECT_EQ(cudasim::pending(s), 4U);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(log_, "abcd");
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphTest, AGraphRunsAsOftenAsItIsLaunched)
{
  scoped_stream const s;
  auto* const graph = capture("ab");
  auto* const exec  = instantiate(graph);
  for (int i = 0; i < 3; ++i) { ASSERT_EQ(cudaGraphLaunch(exec, s), cudaSuccess); }
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(log_, "ababab");
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphTest, LaunchesOfOneExecutableGraphFollowEachOtherOnAnyStreams)
{
  scoped_stream const first;
  scoped_stream const second;
  auto* const graph = capture("a");
  auto* const exec  = instantiate(graph);
  cudasim::hold(first);
  ASSERT_EQ(cudaGraphLaunch(exec, first), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, second), cudaSuccess);
  EXPECT_FALSE(cudasim::step(second));
  cudasim::let_go(first);
  ASSERT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(log_, "aa");
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphTest, TheCheckerKnowsThatLaunchesFollowEachOther)
{
  scoped_stream const first;
  scoped_stream const second;
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamBeginCapture(first, cudaStreamCaptureModeRelaxed), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 1, 64, first), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(first, &graph), cudaSuccess);
  auto* const exec  = instantiate(graph);
  auto* const other = instantiate(graph);
  ASSERT_EQ(cudaGraphLaunch(exec, first), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, second), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
  ASSERT_EQ(cudaGraphLaunch(other, first), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::race), 1U) << "another executable graph is not ordered";
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(other), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphTest, AnExecutableGraphOutlivesItsGraphAndALaunchBoth)
{
  scoped_stream const s;
  auto* const graph = capture("ab");
  auto* const exec  = instantiate(graph);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, s), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(log_, "ab");
}

TEST_F(GraphTest, AnEmptyGraphRuns)
{
  scoped_stream const s;
  cudaGraph_t graph{};
  std::size_t count = 77;
  ASSERT_EQ(cudaGraphCreate(&graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  EXPECT_EQ(count, 0U);
  auto* const exec = instantiate(graph);
  EXPECT_EQ(cudaGraphLaunch(exec, s), cudaSuccess);
  EXPECT_EQ(cudaGraphUpload(exec, s), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphTest, NodesAreHandedOutAsFarAsThereIsRoom)
{
  auto* const graph = capture("abc");
  cudaGraphNode_t nodes[5];
  auto* const mark = reinterpret_cast<cudaGraphNode_t>(this);
  std::fill(std::begin(nodes), std::end(nodes), mark);
  std::size_t count = 2;
  ASSERT_EQ(cudaGraphGetNodes(graph, nodes, &count), cudaSuccess);
  EXPECT_EQ(count, 2U);
  EXPECT_NE(nodes[0], nodes[1]);
  EXPECT_EQ(nodes[2], mark);
  count = 5;
  ASSERT_EQ(cudaGraphGetNodes(graph, nodes, &count), cudaSuccess);
  EXPECT_EQ(count, 3U);
  EXPECT_EQ(nodes[4], nullptr);
  cudaGraphNode_t root{};
  count = 1;
  ASSERT_EQ(cudaGraphGetRootNodes(graph, &root, &count), cudaSuccess);
  EXPECT_EQ(root, nodes[0]);
  ASSERT_EQ(cudaGraphGetRootNodes(graph, nullptr, &count), cudaSuccess);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(cudaGraphGetNodes(graph, nodes, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphTest, FlagsAreCheckedAndKept)
{
  auto* const graph = capture("");
  cudaGraphExec_t exec{};
  unsigned long long flags = 0;
  EXPECT_EQ(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUpload), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagDeviceLaunch), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0xff00), cudaErrorInvalidValue);
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch), cudaSuccess);
  ASSERT_EQ(cudaGraphExecGetFlags(exec, &flags), cudaSuccess);
  EXPECT_EQ(flags, static_cast<unsigned long long>(cudaGraphInstantiateFlagAutoFreeOnLaunch));
  EXPECT_EQ(cudaGraphExecGetFlags(exec, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 4U);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphTest, ParametersSayWhetherItWorked)
{
  scoped_stream const s;
  auto* const graph = capture("a");
  cudaGraphExec_t exec{};
  cudaGraphInstantiateParams parameters{};
  parameters.flags        = cudaGraphInstantiateFlagUpload;
  parameters.uploadStream = s;
  ASSERT_EQ(cudaGraphInstantiateWithParams(&exec, graph, &parameters), cudaSuccess);
  EXPECT_EQ(parameters.result_out, cudaGraphInstantiateSuccess);
  parameters.flags = 0xff00;
  cudaGraphExec_t none{};
  EXPECT_EQ(cudaGraphInstantiateWithParams(&none, graph, &parameters), cudaErrorInvalidValue);
  EXPECT_EQ(parameters.result_out, cudaGraphInstantiateError);
  EXPECT_EQ(cudaGraphInstantiateWithParams(&none, graph, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 2U);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphTest, HandlesOfNothingAreMisuse)
{
  scoped_stream const s;
  cudaGraph_t graph{};
  cudaGraphExec_t exec{};
  std::size_t count        = 0;
  unsigned long long flags = 0;
  EXPECT_EQ(cudaGraphCreate(nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphCreate(&graph, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphDestroy(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphGetNodes(nullptr, nullptr, &count), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphGetRootNodes(nullptr, nullptr, &count), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphInstantiate(&exec, nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphLaunch(nullptr, s), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphUpload(nullptr, s), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecGetFlags(nullptr, &flags), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecDestroy(nullptr), cudaErrorInvalidValue);
  graph = capture("a");
  exec  = instantiate(graph);
  EXPECT_EQ(cudaGraphInstantiate(nullptr, graph, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphLaunch(exec, s), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 14U);
}

TEST_F(GraphTest, ALaunchNeedsAStreamThatExists)
{
  auto* const graph = capture("a");
  auto* const exec  = instantiate(graph);
  auto* const none  = reinterpret_cast<cudaStream_t>(std::uintptr_t{0x1230});
  EXPECT_EQ(cudaGraphLaunch(exec, none), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGraphUpload(exec, none), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(take_count(violation::kind::misuse), 2U);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphTest, GraphsCannotBeLaunchedIntoACapture)
{
  scoped_stream const s;
  auto* const graph = capture("a");
  auto* const exec  = instantiate(graph);
  cudaGraph_t captured{};
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec, s), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(s, &captured), cudaErrorStreamCaptureInvalidated);
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaGraphUpload(exec, s), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(s, &captured), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphTest, InstantiatingBesideAGlobalCaptureInvalidatesIt)
{
  scoped_stream const s;
  auto* const graph = capture("a");
  cudaGraph_t captured{};
  cudaGraphExec_t exec{};
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(s, &captured), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphTest, AGraphThatAllocatesMemoryHasOneExecutableGraphAtATime)
{
  scoped_stream const s;
  void* memory = nullptr;
  cudaGraph_t graph{};
  cudaGraphExec_t second{};
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&memory, 64, s), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(memory, s), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  auto* const first = instantiate(graph);
  EXPECT_EQ(cudaGraphInstantiate(&second, graph, 0), cudaErrorNotSupported);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  for (int i = 0; i < 2; ++i) { EXPECT_EQ(cudaGraphLaunch(first, s), cudaSuccess); }
  EXPECT_EQ(cudaGraphExecDestroy(first), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&second, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(second), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

/// A graph whose launches leave memory behind.
class GraphMemoryTest : public GraphTest {
 protected:
  void SetUp() override
  {
    GraphTest::SetUp();
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
    ASSERT_EQ(cudaMallocAsync(&memory_, 64, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph_), cudaSuccess);
  }
  void TearDown() override
  {
    EXPECT_EQ(cudaGraphExecDestroy(exec_), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    GraphTest::TearDown();
  }
  cudaStream_t stream_{};
  void* memory_{};
  cudaGraph_t graph_{};
  cudaGraphExec_t exec_{};
};

TEST_F(GraphMemoryTest, WhatALaunchLeavesBehindHasToBeFreedBeforeTheNext)
{
  exec_ = instantiate(graph_);
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec_, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  ASSERT_EQ(cudaFreeAsync(memory_, stream_), cudaSuccess) << "queued behind the launch";
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  ASSERT_EQ(cudaFree(memory_), cudaSuccess);
}

TEST_F(GraphMemoryTest, WithAutoFreeTheNextLaunchFreesIt)
{
  ASSERT_EQ(cudaGraphInstantiate(&exec_, graph_, cudaGraphInstantiateFlagAutoFreeOnLaunch), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(memory_, stream_), cudaSuccess);
}

TEST_F(GraphMemoryTest, MemoryThatOutlivesItsGraphIsFreedWhenTheStreamGetsThere)
{
  exec_ = instantiate(graph_);
  ASSERT_EQ(cudaGraphLaunch(exec_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  ASSERT_EQ(cudaGraphExecDestroy(exec_), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory_, 1, 64, stream_), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(memory_, stream_), cudaSuccess);
  ASSERT_EQ(cudaGraphCreate(&graph_, 0), cudaSuccess);
  exec_ = instantiate(graph_);
}

TEST_F(GraphMemoryTest, MemoryIsNotTheProgramsToFreeBeforeALaunch)
{
  exec_ = instantiate(graph_);
  EXPECT_EQ(cudaFreeAsync(memory_, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

TEST_F(GraphTest, GraphsThatAreNotDestroyedAreInTheLedger)
{
  auto* const graph = capture("a");
  auto* const exec  = instantiate(graph);
  auto const open   = cudasim::ledger();
  ASSERT_EQ(open.size(), 2U);
  EXPECT_EQ(open[0].freed_by, "cudaGraphDestroy");
  EXPECT_EQ(open[1].freed_by, "cudaGraphExecDestroy");
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace
}  // namespace cudasim_tests
