# SPDX-License-Identifier: Apache-2.0

# The CUDA language, for programs with .cu files. They are built for the real runtime only.

set(RMM_CUDA_LANGUAGE OFF)
if(RMM_BACKEND STREQUAL "cuda")
  file(GLOB_RECURSE rmm_cuda_sources CONFIGURE_DEPENDS tests/gpu/*.cu benchmarks/*.cu)
  if(rmm_cuda_sources)
    set(RMM_CUDA_LANGUAGE ON)
  endif()
endif()
if(NOT RMM_CUDA_LANGUAGE)
  return()
endif()

# Besides CMake's values: NATIVE, the GPUs of this machine; RAPIDS and ALL (the default), all that the toolkit supports.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES OR CMAKE_CUDA_ARCHITECTURES MATCHES "^(RAPIDS|ALL)$")
  set(CMAKE_CUDA_ARCHITECTURES all-major)
elseif(CMAKE_CUDA_ARCHITECTURES STREQUAL "NATIVE")
  set(CMAKE_CUDA_ARCHITECTURES native)
endif()
enable_language(CUDA)
