// SPDX-License-Identifier: Apache-2.0

// A program of the host compiler that needs no device, and the definitions that reach it.

#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/version_config.hpp>

#if defined(RMM_STATIC_CUDART) != defined(EXPECT_STATIC_RUNTIME)
#error "RMM_STATIC_CUDART does not say which runtime is linked"
#endif
#if defined(RMM_NVTX) != defined(EXPECT_STATIC_RUNTIME)
#error "RMM_NVTX does not follow the option"
#endif
#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#error "the definition that libcu++ wants is missing"
#endif

int main()
{
  try {
    throw rmm::out_of_memory{"expected"};
  } catch (std::bad_alloc const&) {
    return RMM_VERSION_MAJOR >= 24 && rmm::cuda_stream_default.is_default() ? 0 : 1;
  }
}
