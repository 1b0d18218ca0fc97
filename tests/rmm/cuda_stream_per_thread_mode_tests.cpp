// SPDX-License-Identifier: Apache-2.0

// A file of the per-thread mode, in one program with a file of the legacy mode: each must see its
// own meaning of handle 0.
#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#endif
#include <rmm/cuda_stream_view.hpp>

#include <gtest/gtest.h>

namespace {

TEST(CudaStreamPerThreadMode, TheNullHandleIsThePerThreadStream)
{
  EXPECT_TRUE(rmm::cuda_stream_default.is_per_thread_default());
  EXPECT_FALSE(rmm::cuda_stream_default.is_default());
}

}  // namespace
