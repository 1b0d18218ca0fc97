# SPDX-License-Identifier: Apache-2.0

# Where the machine has no CUDA toolkit, the build takes NVIDIA's packages of PyPI, which build_backend/backend.py requires then.

set(RMM_CUDA_PACKAGES auto CACHE STRING "NVIDIA's packages of PyPI: auto, where there is no toolkit; 1; 0; or the folder they are unpacked in")

set(rmm_cuda_packages "${RMM_CUDA_PACKAGES}")
if(rmm_cuda_packages STREQUAL "auto")
  set(rmm_cuda_packages 0)
  if(NOT CUDAToolkit_ROOT AND NOT CMAKE_CUDA_COMPILER)
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -c "import cuda_packages; print(int(cuda_packages.wants_packages()))"
      WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/build_backend"
      OUTPUT_VARIABLE rmm_cuda_packages
      OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  endif()
endif()
if(NOT rmm_cuda_packages MATCHES "^0?$")
  set(rmm_cuda_packages_folder "")
  if(NOT rmm_cuda_packages STREQUAL "1")
    set(rmm_cuda_packages_folder "${rmm_cuda_packages}")
  endif()
  execute_process(
    COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/build_backend/cuda_packages.py"
            "${CMAKE_CURRENT_BINARY_DIR}/cuda_toolkit" ${rmm_cuda_packages_folder}
    RESULT_VARIABLE rmm_cuda_packages_failed
    ERROR_VARIABLE rmm_cuda_packages_error
    OUTPUT_VARIABLE rmm_cuda_toolkit
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(rmm_cuda_packages_failed)
    message(FATAL_ERROR "RMM's Python package: ${rmm_cuda_packages_error}")
  endif()
  message(STATUS "CUDA: NVIDIA's packages of PyPI, laid out in ${rmm_cuda_toolkit}")
  set(CUDAToolkit_ROOT "${rmm_cuda_toolkit}")
  set(CUDAToolkit_SENTINEL_FILE "${rmm_cuda_toolkit}/version.txt" CACHE FILEPATH "Keeps CMake from the toolkit of an nvcc on PATH" FORCE)
endif()
