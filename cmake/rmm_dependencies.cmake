# SPDX-License-Identifier: Apache-2.0

# How other projects' packages are found. A package on the system is used. Only a missing one is downloaded, by CPM, and CPM is
# downloaded only if there is no copy of it. If all packages are installed, configuring needs no network.
#
#   CPM_<name>_SOURCE       (variable)    build this copy of the package's sources, whatever is installed
#   CPM_SOURCE_CACHE        (environment) folder of sources, and of CPM itself, that several builds share
#   RMM_DOWNLOAD_MISSING    (variable)    OFF: download nothing; stop with a message that names what is missing

include("${CMAKE_CURRENT_LIST_DIR}/rmm_find_package.cmake")

option(RMM_DOWNLOAD_MISSING "Download the sources of packages that are not on the system" ON)
mark_as_advanced(RMM_DOWNLOAD_MISSING)

set(rmm_cpm_version 0.40.2)

# Defines the command CPMAddPackage(), if possible. A macro, so that the variables that CPM sets are not lost at the end of a function.
macro(rmm_load_cpm)
  if(NOT COMMAND CPMAddPackage)
    set(rmm_cpm_cached "$ENV{CPM_SOURCE_CACHE}/cpm")
    if(NOT DEFINED ENV{CPM_SOURCE_CACHE})
      set(rmm_cpm_cached "${CMAKE_BINARY_DIR}/cmake")
    endif()
    file(GLOB rmm_cpm_files "${rmm_cpm_cached}/CPM_*.cmake")
    list(SORT rmm_cpm_files COMPARE NATURAL ORDER DESCENDING)
    if(NOT rmm_cpm_files AND RMM_DOWNLOAD_MISSING)
      set(rmm_cpm_files "${rmm_cpm_cached}/CPM_${rmm_cpm_version}.cmake")
      file(
        DOWNLOAD https://github.com/cpm-cmake/CPM.cmake/releases/download/v${rmm_cpm_version}/CPM.cmake
        "${rmm_cpm_files}"
        TLS_VERIFY ON
        INACTIVITY_TIMEOUT 15
        STATUS rmm_cpm_status)
      if(NOT rmm_cpm_status MATCHES "^0;")
        file(REMOVE "${rmm_cpm_files}")
        set(rmm_cpm_files "")
      endif()
    endif()
    if(rmm_cpm_files)
      list(GET rmm_cpm_files 0 rmm_cpm_file)
      include("${rmm_cpm_file}")
    endif()
  endif()
endmacro()

# rmm_dependency(<name> TARGETS <target>... INSTALL <words> [FIND_ARGS <argument>...] CPM_ARGS <argument>...)
#
# Provides the targets of package <name>. If that fails, configuring ends with a message that names the package and says how to get it
# (<words>, without a semicolon). With FIND_ARGS the package is looked for by find_package(<name> <argument>...), else by
# rmm_find_package(<name>).
macro(rmm_dependency name)
  cmake_parse_arguments(rmm_dependency "" "INSTALL" "TARGETS;FIND_ARGS;CPM_ARGS" ${ARGN})
  list(GET rmm_dependency_TARGETS 0 rmm_dependency_target)
  if(NOT TARGET ${rmm_dependency_target} AND NOT CPM_${name}_SOURCE)
    if(rmm_dependency_FIND_ARGS)
      find_package(${name} ${rmm_dependency_FIND_ARGS} QUIET GLOBAL)
    else()
      rmm_find_package(${name})
    endif()
  endif()
  if(NOT TARGET ${rmm_dependency_target} AND rmm_dependency_CPM_ARGS)
    if(CPM_${name}_SOURCE OR RMM_DOWNLOAD_MISSING)
      rmm_load_cpm()
      if(COMMAND CPMAddPackage)
        cpmaddpackage(NAME ${name} ${rmm_dependency_CPM_ARGS})
      endif()
    endif()
  endif()
  set(rmm_dependency_copy "")
  if(rmm_dependency_CPM_ARGS)
    set(rmm_dependency_copy
        " To build a copy of its sources, set CPM_${name}_SOURCE and have CPM.cmake in \$CPM_SOURCE_CACHE/cpm.")
  endif()
  foreach(rmm_dependency_target IN LISTS rmm_dependency_TARGETS)
    if(NOT TARGET ${rmm_dependency_target})
      message(
        FATAL_ERROR
          "RMM needs ${name} (target ${rmm_dependency_target}), which was neither found on this system nor downloaded.\n"
          "  Install it: ${rmm_dependency_INSTALL}.\n"
          "  If it is installed where CMake does not look, set ${name}_ROOT or CMAKE_PREFIX_PATH."
          "${rmm_dependency_copy}")
    endif()
  endforeach()
endmacro()

rmm_dependency(
  CUDAToolkit
  TARGETS CUDA::cudart CUDA::toolkit
  INSTALL "the CUDA toolkit 12 or newer, from NVIDIA, with its nvcc on PATH or its folder named by CUDAToolkit_ROOT")
rmm_dependency(
  CCCL
  TARGETS CCCL::CCCL
  INSTALL "it comes with the CUDA toolkit 12.2 and newer (package cuda-cccl)"
  CPM_ARGS GITHUB_REPOSITORY NVIDIA/cccl GIT_TAG v3.0.3)
rmm_dependency(
  nvtx3
  TARGETS nvtx3::nvtx3-cpp
  INSTALL "it comes with the CUDA toolkit (package cuda-nvtx)"
  CPM_ARGS GITHUB_REPOSITORY NVIDIA/NVTX GIT_TAG v3.2.0 SOURCE_SUBDIR c)

# Only <rmm/logger.hpp> needs spdlog, and reports it if it is missing. All other headers work without.
set(RMM_USES_SPDLOG FALSE)
if(RMM_USE_SPDLOG)
  rmm_find_package(spdlog)
  set(RMM_USES_SPDLOG ${rmm_found_spdlog})
endif()

rmm_promote_to_global(CUDA::toolkit CUDA::cudart CUDA::cudart_static CUDA::cudart_static_deps Threads::Threads
                      spdlog::spdlog spdlog::spdlog_header_only)
rmm_define_thrust()

if(RMM_BUILD_TESTS)
  # The installed libraries are for another processor, so Debian's copy of the sources is compiled.
  if(CMAKE_CROSSCOMPILING AND NOT CPM_GTest_SOURCE AND EXISTS /usr/src/googletest/CMakeLists.txt)
    find_package(GTest 1.12 QUIET GLOBAL)
    if(NOT TARGET GTest::gmock)
      add_subdirectory(/usr/src/googletest "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL SYSTEM)
    endif()
  endif()
  rmm_dependency(
    GTest
    TARGETS GTest::gtest GTest::gmock GTest::gmock_main
    INSTALL "Debian and Ubuntu: apt-get install libgtest-dev libgmock-dev, Fedora: dnf install gtest-devel gmock-devel"
    FIND_ARGS 1.12
    CPM_ARGS GITHUB_REPOSITORY google/googletest GIT_TAG v1.14.0 OPTIONS "INSTALL_GTEST OFF")
endif()
if(RMM_BUILD_BENCHMARKS)
  rmm_dependency(
    benchmark
    TARGETS benchmark::benchmark
    INSTALL "Debian and Ubuntu: apt-get install libbenchmark-dev, Fedora: dnf install google-benchmark-devel"
    FIND_ARGS CONFIG
    CPM_ARGS GITHUB_REPOSITORY google/benchmark GIT_TAG v1.8.5
      OPTIONS "BENCHMARK_ENABLE_TESTING OFF" "BENCHMARK_ENABLE_INSTALL OFF" "BUILD_SHARED_LIBS OFF")
endif()
