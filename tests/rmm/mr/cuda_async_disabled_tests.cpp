// SPDX-License-Identifier: Apache-2.0

// Tests programs without the driver's pools: everything here is compiled with RMM_DISABLE_CUDA_MALLOC_ASYNC.

#include <rmm/error.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>

#include <gtest/gtest.h>

#include <string>

#if !defined(RMM_DISABLE_CUDA_MALLOC_ASYNC) || defined(RMM_CUDA_MALLOC_ASYNC_SUPPORT)
#error "RMM_DISABLE_CUDA_MALLOC_ASYNC takes RMM_CUDA_MALLOC_ASYNC_SUPPORT away"
#endif

namespace {

TEST(CudaAsyncDisabled, TheResourceReportsIt)
{
  try {
    rmm::mr::cuda_async_memory_resource const resource;
    FAIL() << "the resource was made";
  } catch (rmm::logic_error const& error) {
    EXPECT_NE(std::string{error.what()}.find("RMM_DISABLE_CUDA_MALLOC_ASYNC"), std::string::npos) << error.what();
  }
}

}  // namespace
