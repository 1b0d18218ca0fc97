# SPDX-License-Identifier: Apache-2.0

include("${CMAKE_CURRENT_LIST_DIR}/rmm_gpu_share.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/rmm_unite_tests.cmake")

# Options of all sources of test programs. The suite takes longer to compile than to run. -O1 compiles in a quarter less time than -O2.
# Headers of other libraries, mostly GoogleTest's, are precompiled.
add_library(rmm_test_compilation INTERFACE)
target_link_libraries(rmm_test_compilation INTERFACE rmm_program GTest::gmock GTest::gtest)
target_compile_options(
  rmm_test_compilation INTERFACE $<$<AND:$<CONFIG:RelWithDebInfo>,$<COMPILE_LANGUAGE:CXX>>:-O1>
                                 $<$<BOOL:${CODE_COVERAGE}>:--coverage;-O0>)
target_compile_features(rmm_test_compilation INTERFACE cxx_std_17)
set(rmm_precompiled_headers gmock/gmock.h gtest/gtest.h map random thread)

# rmm_precompile_headers(<target> <header>...)
function(rmm_precompile_headers target)
  target_compile_options(${target} PRIVATE -fPIE) # the option of programs, which a precompiled header has to share
  list(TRANSFORM ARGN REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
  target_precompile_headers(${target} PRIVATE ${ARGN})
endfunction()

add_library(rmm_death_test_style OBJECT "${PROJECT_SOURCE_DIR}/tests/support/death_test_style.cpp")
target_link_libraries(rmm_death_test_style PRIVATE rmm_test_compilation)
rmm_precompile_headers(rmm_death_test_style ${rmm_precompiled_headers})

# Libraries that all test programs link.
add_library(rmm_test_options INTERFACE)
target_link_libraries(rmm_test_options INTERFACE rmm_test_compilation GTest::gmock_main)
target_link_options(rmm_test_options INTERFACE $<$<BOOL:${CODE_COVERAGE}>:--coverage>)
target_sources(rmm_test_options INTERFACE $<TARGET_OBJECTS:rmm_death_test_style>)

# RMM_QUICK_TESTS: the headers of the library are precompiled, too, and clang++ compiles their functions once, into an optimized object that
# programs link. That takes half a minute for each meaning of the default stream. The files of tests then take half the time.
set(rmm_library_is_precompiled OFF)
if(RMM_QUICK_TESTS AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_GENERATOR STREQUAL "Ninja" AND NOT RMM_SANITIZE AND NOT CODE_COVERAGE)
  set(rmm_library_is_precompiled ON)
endif()

# rmm_precompile_library(<target> [<definition>...])
function(rmm_precompile_library target)
  add_library(${target} OBJECT "${PROJECT_SOURCE_DIR}/tests/support/death_test_style.cpp") # which no program links
  rmm_use_backend(${target})
  target_link_libraries(${target} PRIVATE rmm_test_compilation)
  target_compile_definitions(${target} PRIVATE ${ARGN})
  target_compile_options(${target} PRIVATE -fpch-codegen -Wno-unused-command-line-argument)
  rmm_precompile_headers(
    ${target}
    ${rmm_precompiled_headers}
    condition_variable
    future
    cudasim/cudasim.h
    rmm/capture_scope.hpp
    rmm/device_scalar.hpp
    rmm/device_uvector.hpp
    rmm/mr/arena_memory_resource.hpp
    rmm/mr/cached_memory_resource.hpp
    rmm/mr/cuda_async_memory_resource.hpp
    rmm/mr/cuda_memory_resource.hpp
    rmm/mr/elastic_pool_memory_resource.hpp
    rmm/mr/fixed_size_memory_resource.hpp
    rmm/mr/limiting_resource_adaptor.hpp
    rmm/mr/managed_memory_resource.hpp
    rmm/mr/per_device_resource.hpp
    rmm/mr/pinned_host_memory_resource.hpp
    rmm/mr/pool_memory_resource.hpp
    rmm/mr/statistics_resource_adaptor.hpp
    rmm/tag_scope.hpp)
  set(header "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.pch")
  set(functions "${CMAKE_CURRENT_BINARY_DIR}/${target}.o")
  add_custom_command(
    OUTPUT "${functions}"
    COMMAND "${CMAKE_CXX_COMPILER}" -O1 -g0 -fPIE -c "${header}" -o "${functions}"
    DEPENDS "${header}"
    COMMENT "Compiling the functions of ${target}"
    VERBATIM)
  add_custom_target(${target}_functions DEPENDS "${functions}")
endfunction()

if(rmm_library_is_precompiled)
  rmm_precompile_library(rmm_library_precompiled)
  if(RMM_BUILD_PTDS_TESTS)
    rmm_precompile_library(rmm_library_precompiled_ptds CUDA_API_PER_THREAD_DEFAULT_STREAM)
  endif()
endif()

# rmm_changes_headers(<variable> <sources> <definitions>): sets the variable to whether one of the files, or a definition that is not only a
# text for tests, changes what the headers of the library declare.
function(rmm_changes_headers variable sources definitions)
  list(FILTER definitions EXCLUDE REGEX "=\"")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    if(source MATCHES "\\.cpp$" AND EXISTS "${source}")
      file(STRINGS "${source}" found REGEX "^#[ ]*((define|undef) (RMM|CUDA)_|include \"modelled_std\\.hpp\")")
      list(APPEND definitions ${found})
    endif()
  endforeach()
  set(${variable} FALSE PARENT_SCOPE)
  if(definitions)
    set(${variable} TRUE PARENT_SCOPE)
  endif()
endfunction()

# rmm_precompile(<program> <per thread> <busy> <sources> <definitions>)
function(rmm_precompile program per_thread busy sources definitions)
  set(precompiled rmm_death_test_style)
  rmm_changes_headers(changed "${sources}" "${definitions}")
  if(rmm_library_is_precompiled AND NOT changed)
    set(precompiled rmm_library_precompiled)
    if(per_thread)
      set(precompiled rmm_library_precompiled_ptds)
    endif()
    set(functions "${PROJECT_BINARY_DIR}/${precompiled}.o")
    target_link_options(${program} PRIVATE "${functions}" LINKER:--gc-sections) # before the program's objects, so that its functions win
    set_property(TARGET ${program} APPEND PROPERTY LINK_DEPENDS "${functions}")
    add_dependencies(${program} ${precompiled}_functions)
    if(busy)
      target_compile_definitions(${program} PRIVATE RMM_TEST_LIBRARY_IS_OPTIMIZED)
    endif()
  elseif(TARGET rmm_test_engine AND NOT changed)
    if(per_thread)
      rmm_use_compiled_engine(${program} _ptds)
    else()
      rmm_use_compiled_engine(${program})
    endif()
  elseif(busy AND RMM_QUICK_TESTS)
    target_compile_options(${program} PRIVATE -O1) # the precompiled header is not optimized
    return()
  endif()
  target_precompile_headers(${program} REUSE_FROM ${precompiled})
endfunction()

set(rmm_test_environment "")
if(RMM_SANITIZE)
  set(rmm_test_environment
      # A test may start a program without sanitizer that loads one of our libraries, which has it.
      ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1:verify_asan_link_order=0
      UBSAN_OPTIONS=print_stacktrace=1
      # Tests end hundreds of processes. Each would wait for a second at its end for reports of its other threads.
      TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1:atexit_sleep_ms=50)
endif()

# A program that a test starts runs in the emulator, too.
if(CMAKE_CROSSCOMPILING_EMULATOR)
  list(GET CMAKE_CROSSCOMPILING_EMULATOR 0 rmm_test_emulator)
  find_program(RMM_TEST_EMULATOR "${rmm_test_emulator}" REQUIRED)
  mark_as_advanced(RMM_TEST_EMULATOR)
  add_library(rmm_emulated_exec MODULE "${PROJECT_SOURCE_DIR}/tests/support/emulated_exec.cpp")
  target_compile_definitions(rmm_emulated_exec PRIVATE "RMM_TEST_EMULATOR=\"${RMM_TEST_EMULATOR}\"")
  target_link_libraries(rmm_emulated_exec PRIVATE ${CMAKE_DL_LIBS} rmm_warnings)
  target_compile_features(rmm_emulated_exec PRIVATE cxx_std_17)
  set_target_properties(rmm_emulated_exec PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
  # qemu-user keeps a record of each reserved page, and an elastic pool reserves as many as the device has.
  list(APPEND rmm_test_environment QEMU_SET_ENV=LD_PRELOAD=$<TARGET_FILE:rmm_emulated_exec> CUDASIM_MEMORY=4GiB)
endif()

# Adds one program of rmm_add_test().
function(rmm_add_test_program name per_thread)
  cmake_parse_arguments(PARSE_ARGV 2 arg "BUSY" "GPUS;PERCENT;TIMEOUT" "SOURCES;LABELS;LIBRARIES;DEFINITIONS")
  rmm_set_program_rpath()
  set(sources "${arg_SOURCES}")
  foreach(source IN LISTS arg_SOURCES)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_property(GLOBAL APPEND_STRING PROPERTY RMM_TEST_SOURCES "${name} ${source}\n")
  endforeach()
  if(RMM_UNITE_TESTS)
    rmm_unite_tests(${name} arg_SOURCES ${arg_SOURCES})
  endif()
  add_executable(${name} ${arg_SOURCES})
  rmm_use_backend(${name})
  target_link_libraries(${name} PRIVATE rmm_test_options ${arg_LIBRARIES})
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  rmm_precompile(${name} ${per_thread} "${arg_BUSY}" "${sources}" "${arg_DEFINITIONS}")
  if(per_thread)
    target_compile_definitions(${name} PRIVATE CUDA_API_PER_THREAD_DEFAULT_STREAM)
  endif()
  set_target_properties(
    ${name}
    PROPERTIES POSITION_INDEPENDENT_CODE ON
               RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/gtests")
  rmm_register_test(${name} ${arg_GPUS} ${arg_PERCENT})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${rmm_test_environment}" TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  if(arg_BUSY)
    set_tests_properties(${name} PROPERTIES COST 60) # the seconds that CTest assumes until it has measured them
  endif()
  set_property(GLOBAL APPEND PROPERTY RMM_TEST_PROGRAMS ${name})
  install(
    TARGETS ${name}
    COMPONENT testing
    DESTINATION bin/gtests/librmm
    EXCLUDE_FROM_ALL)
endfunction()

# rmm_add_test(NAME <X>_TEST SOURCES <file>... [GPUS <n>] [PERCENT <p>] [NO_PTDS | STREAMS] [VARIANT] [BUSY] [TIMEOUT <seconds>]
#              [LABELS <label>...] [LIBRARIES <library>...] [DEFINITIONS <definition>...])
#
# Adds a test program and its twin <X>_PTDS_TEST, compiled for the per-thread default stream; NO_PTDS leaves the twin out. Each is a
# CTest test of that name. If CTest is told what GPUs there are, a test takes <p> percent (5) of <n> GPUs (1).
#
# RMM_BUILD_PTDS_TESTS=STREAMS: only programs that test the order of streams (STREAMS) have a twin.
# RMM_QUICK_TESTS: programs that compile the sources of another one with other definitions (VARIANT) are left out. Programs that run
# longer than they compile (BUSY) are optimized, unless the library that they link is. CTest starts them first, so that none of them runs
# alone at the end.
function(rmm_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "NO_PTDS;STREAMS;VARIANT;BUSY" "NAME;GPUS;PERCENT;TIMEOUT" "SOURCES;LABELS;LIBRARIES;DEFINITIONS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_NAME MATCHES "_TEST$" OR NOT arg_SOURCES)
    message(FATAL_ERROR "rmm_add_test: needs NAME <X>_TEST and SOURCES, and knows no '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(RMM_QUICK_TESTS AND (arg_VARIANT OR "long" IN_LIST arg_LABELS))
    return()
  endif()
  foreach(default GPUS=1 PERCENT=5 TIMEOUT=1800)
    string(REPLACE "=" ";" default "${default}")
    list(GET default 0 option)
    list(GET default 1 value)
    if(NOT DEFINED arg_${option})
      set(arg_${option} ${value})
    endif()
  endforeach()
  set(arguments
      GPUS ${arg_GPUS}
      PERCENT ${arg_PERCENT}
      TIMEOUT ${arg_TIMEOUT}
      SOURCES ${arg_SOURCES}
      LABELS ${arg_LABELS}
      LIBRARIES ${arg_LIBRARIES}
      DEFINITIONS ${arg_DEFINITIONS})
  if(arg_BUSY)
    list(APPEND arguments BUSY)
  endif()
  rmm_add_test_program(${arg_NAME} OFF ${arguments})
  if(RMM_BUILD_PTDS_TESTS AND NOT arg_NO_PTDS AND (arg_STREAMS OR NOT RMM_BUILD_PTDS_TESTS STREQUAL "STREAMS"))
    string(REGEX REPLACE "_TEST$" "_PTDS_TEST" twin ${arg_NAME})
    rmm_add_test_program(${twin} ON ${arguments})
  endif()
endfunction()
