// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <utility>

namespace rmm::test {

/// The graph of a capture, ready to run; empty if the capture failed.
class graph {
 public:
  graph() = default;
  explicit graph(cudaGraph_t captured) : captured_{captured}
  {
    EXPECT_EQ(cudaGraphInstantiateWithFlags(&executable_, captured_, 0), cudaSuccess);
  }
  graph(graph&& other) noexcept
    : captured_{std::exchange(other.captured_, nullptr)}, executable_{std::exchange(other.executable_, nullptr)}
  {}
  graph& operator=(graph&& other) noexcept
  {
    std::swap(captured_, other.captured_);
    std::swap(executable_, other.executable_);
    return *this;
  }
  graph(graph const&)            = delete;
  graph& operator=(graph const&) = delete;
  ~graph()
  {
    if (executable_ != nullptr) { EXPECT_EQ(cudaGraphExecDestroy(executable_), cudaSuccess); }
    if (captured_ != nullptr) { EXPECT_EQ(cudaGraphDestroy(captured_), cudaSuccess); }
  }

  void launch(cuda_stream_view stream) const { ASSERT_EQ(cudaGraphLaunch(executable_, stream.value()), cudaSuccess); }

  [[nodiscard]] std::size_t nodes() const
  {
    std::size_t count{};
    EXPECT_EQ(cudaGraphGetNodes(captured_, nullptr, &count), cudaSuccess);
    return count;
  }

 private:
  cudaGraph_t captured_{};
  cudaGraphExec_t executable_{};
};

/// Captures the calls of `work` on `stream`. The test fails if the capture does.
template <class Work>
[[nodiscard]] graph capture(cuda_stream_view stream, cudaStreamCaptureMode mode, Work&& work)
{
  EXPECT_EQ(cudaStreamBeginCapture(stream.value(), mode), cudaSuccess);
  work();
  cudaGraph_t captured{};
  auto const ended = cudaStreamEndCapture(stream.value(), &captured);
  EXPECT_EQ(ended, cudaSuccess) << cudaGetErrorName(ended);
  static_cast<void>(cudaGetLastError());
  return ended == cudaSuccess ? graph{captured} : graph{};
}

template <class Work>
[[nodiscard]] graph capture(cuda_stream_view stream, Work&& work)
{
  return capture(stream, cudaStreamCaptureModeGlobal, std::forward<Work>(work));
}

/// Waits for `stream` while other streams may capture. Uses the relaxed mode, as other waits break global captures.
inline void synchronize_beside_captures(cuda_stream_view stream)
{
  auto mode = cudaStreamCaptureModeRelaxed;
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  stream.synchronize();
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
}

/// Orders later work of `second` after the present work of `first`. If `first` captures, `second` joins the capture.
inline void order(cuda_stream_view first, cuda_stream_view second)
{
  cudaEvent_t event{};
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, first.value()), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(second.value(), event, 0), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

}  // namespace rmm::test
