# SPDX-License-Identifier: Apache-2.0

# Every option of the project, and what follows from it. Nothing here looks at a dependency.

option(RMM_NVTX "Mark ranges for NVIDIA's profilers (NVTX)" OFF)
option(CUDA_STATIC_RUNTIME "Link the static CUDA runtime" OFF)
option(RMM_USE_SPDLOG "Use spdlog where it is installed; only rmm/logger.hpp needs it" ON)
option(RMM_BUILD_SIMULATOR "Build rmm::cudart_sim, the CUDA runtime simulated on the CPU" ${PROJECT_IS_TOP_LEVEL})

set(RMM_LOGGING_LEVEL INFO CACHE STRING "Least severe log message that tests and benchmarks compile in")
set(rmm_logging_levels TRACE DEBUG INFO WARN ERROR CRITICAL OFF)
set_property(CACHE RMM_LOGGING_LEVEL PROPERTY STRINGS ${rmm_logging_levels})
if(NOT RMM_LOGGING_LEVEL IN_LIST rmm_logging_levels)
  list(JOIN rmm_logging_levels ", " rmm_logging_levels)
  message(FATAL_ERROR "RMM_LOGGING_LEVEL is '${RMM_LOGGING_LEVEL}'; it takes one of ${rmm_logging_levels}.")
endif()

set(THRUST_HOST_SYSTEM CPP CACHE STRING "Host system of the Thrust that consumers get")
set_property(CACHE THRUST_HOST_SYSTEM PROPERTY STRINGS CPP OMP TBB)
set(THRUST_DEVICE_SYSTEM CUDA CACHE STRING "Device system of the Thrust that consumers get")
set_property(CACHE THRUST_DEVICE_SYSTEM PROPERTY STRINGS CUDA CPP OMP TBB)

# Inside another project only the library is configured, whatever that project's own BUILD_TESTS says.
set(RMM_BUILD_TESTS OFF)
set(RMM_BUILD_BENCHMARKS OFF)
set(RMM_BUILD_EXAMPLES OFF)
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

option(BUILD_TESTS "Build the test programs" ON)
option(BUILD_BENCHMARKS "Build the benchmark programs" OFF)
option(BUILD_EXAMPLES "Build the example programs" ${BUILD_TESTS})
set(rmm_build_trace_tool OFF)
if((BUILD_TESTS OR BUILD_BENCHMARKS) AND RMM_BUILD_SIMULATOR AND NOT RMM_SANITIZE)
  set(rmm_build_trace_tool ON)
endif()
option(RMM_BUILD_TRACE_TOOL "Build rmm-trace, which reports on recorded allocations; it needs the simulator"
       ${rmm_build_trace_tool})
option(RMM_BUILD_ENVIRONMENT_LIBRARY "Build librmm_environment.so, which lets any program obey RMM_RESOURCE and RMM_TRACE_FILE"
       OFF)
option(RMM_BUILD_PTDS_TESTS "Build each test program a second time, for the per-thread default stream" ON)
option(DISABLE_DEPRECATION_WARNING "Compile tests and benchmarks without warnings about deprecated names" OFF)
option(CODE_COVERAGE "Instrument the test programs for gcov" OFF)
option(PER_THREAD_DEFAULT_STREAM "Compile the benchmarks for the per-thread default stream" OFF)
option(RMM_ASSERTIONS "Check the library's own logic in tests and benchmarks in every build type" OFF)
option(RMM_EXPENSIVE_ASSERTIONS "Check the library's invariants after every change, in tests and benchmarks" OFF)
set(RMM_BUILD_TESTS ${BUILD_TESTS})
set(RMM_BUILD_BENCHMARKS ${BUILD_BENCHMARKS})
set(RMM_BUILD_EXAMPLES ${BUILD_EXAMPLES})

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Type of the build" FORCE)
  set_property(CACHE CMAKE_BUILD_TYPE PROPERTY STRINGS Debug Release RelWithDebInfo MinSizeRel)
endif()

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  find_program(RMM_CCACHE ccache)
  mark_as_advanced(RMM_CCACHE)
  if(RMM_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${RMM_CCACHE}")
  endif()
endif()

set(RMM_SANITIZE "" CACHE STRING "Sanitizers of the simulator and the tests: address,undefined or thread")
set_property(CACHE RMM_SANITIZE PROPERTY STRINGS "" "address,undefined" "address" "undefined" "thread")
if(NOT RMM_SANITIZE MATCHES "^(|address|undefined|address,undefined|thread)$")
  message(FATAL_ERROR "RMM_SANITIZE is '${RMM_SANITIZE}'; it takes address, undefined, address,undefined or thread.")
endif()

# The CUDA runtime that our own programs link: the real one where there is a GPU, else the simulator.
set(RMM_CUDA_BACKEND auto CACHE STRING "CUDA runtime of tests, benchmarks and examples: auto, cuda or sim")
set_property(CACHE RMM_CUDA_BACKEND PROPERTY STRINGS auto cuda sim)
if(RMM_CUDA_BACKEND STREQUAL "auto")
  find_program(RMM_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(RMM_NVIDIA_SMI)
  set(gpus "")
  if(RMM_NVIDIA_SMI)
    execute_process(COMMAND "${RMM_NVIDIA_SMI}" -L OUTPUT_VARIABLE gpus ERROR_QUIET)
  endif()
  if(EXISTS /dev/nvidiactl OR gpus MATCHES "GPU 0")
    set(RMM_BACKEND cuda)
  else()
    set(RMM_BACKEND sim)
  endif()
elseif(RMM_CUDA_BACKEND MATCHES "^(cuda|sim)$")
  set(RMM_BACKEND ${RMM_CUDA_BACKEND})
else()
  message(FATAL_ERROR "RMM_CUDA_BACKEND is '${RMM_CUDA_BACKEND}'; it takes auto, cuda or sim.")
endif()

# To test with other releases of CUDA than the toolkit's; CCCL_ROOT names the CCCL that goes with it.
set(RMM_CUDA_INCLUDE_DIR "" CACHE PATH "Headers of the CUDA runtime that come before the toolkit's, on the simulator")
mark_as_advanced(RMM_CUDA_INCLUDE_DIR)
if(RMM_CUDA_INCLUDE_DIR AND NOT (RMM_BACKEND STREQUAL "sim" AND EXISTS "${RMM_CUDA_INCLUDE_DIR}/cuda_runtime_api.h"))
  message(FATAL_ERROR "RMM_CUDA_INCLUDE_DIR is '${RMM_CUDA_INCLUDE_DIR}'; it takes a folder with cuda_runtime_api.h, and needs "
                      "RMM_CUDA_BACKEND=sim: nothing is linked that goes with these headers but the simulator.")
endif()

if(RMM_BUILD_TRACE_TOOL AND NOT RMM_BUILD_SIMULATOR)
  message(FATAL_ERROR "RMM_BUILD_TRACE_TOOL is ON, but the simulator, which rmm-trace replays on, is not built.")
endif()
if(RMM_BUILD_TESTS OR RMM_BUILD_BENCHMARKS OR RMM_BUILD_EXAMPLES)
  if(RMM_BACKEND STREQUAL "sim" AND NOT RMM_BUILD_SIMULATOR)
    message(FATAL_ERROR "Tests, benchmarks and examples would run on the simulated CUDA runtime "
                        "(RMM_CUDA_BACKEND=${RMM_CUDA_BACKEND}), but RMM_BUILD_SIMULATOR is OFF.")
  endif()
  message(STATUS "RMM: tests, benchmarks and examples link the CUDA runtime '${RMM_BACKEND}'")
endif()
