// SPDX-License-Identifier: Apache-2.0
#include <rmm/c/rmm.h>

uint32_t rmm_c_version(void) noexcept { return RMM_C_VERSION; }

char const* rmm_c_engine_version(void) noexcept { return RMM_C_ENGINE_VERSION; }

char const* rmm_c_status_name(int status) noexcept
{
  switch (status) {
    case RMM_C_OK:
      return "RMM_C_OK";
    case RMM_C_OUT_OF_MEMORY:
      return "RMM_C_OUT_OF_MEMORY";
    case RMM_C_HOST_OUT_OF_MEMORY:
      return "RMM_C_HOST_OUT_OF_MEMORY";
    case RMM_C_ALLOCATION_FAILED:
      return "RMM_C_ALLOCATION_FAILED";
    case RMM_C_BAD_CONFIGURATION:
      return "RMM_C_BAD_CONFIGURATION";
    case RMM_C_INVALID_ARGUMENT:
      return "RMM_C_INVALID_ARGUMENT";
    case RMM_C_NOT_SUPPORTED:
      return "RMM_C_NOT_SUPPORTED";
    case RMM_C_MISUSE:
      return "RMM_C_MISUSE";
    case RMM_C_CUDA_ERROR:
      return "RMM_C_CUDA_ERROR";
    case RMM_C_UNAVAILABLE:
      return "RMM_C_UNAVAILABLE";
    case RMM_C_FAILED:
      return "RMM_C_FAILED";
    default:
      return "unknown status";
  }
}
