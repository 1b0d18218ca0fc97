// SPDX-License-Identifier: Apache-2.0

// A file of the legacy mode, in one program with a file of the per-thread mode: each must see its
// own meaning of handle 0.
#undef CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <rmm/cuda_stream_view.hpp>

#include <gtest/gtest.h>

namespace {

TEST(CudaStreamLegacyMode, TheNullHandleIsTheLegacyStream)
{
  EXPECT_TRUE(rmm::cuda_stream_default.is_default());
  EXPECT_FALSE(rmm::cuda_stream_default.is_per_thread_default());
}

}  // namespace
