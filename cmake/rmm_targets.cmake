# SPDX-License-Identifier: Apache-2.0

# Interface libraries and functions for the programs of this project. None of them is exported.

# g++ up to 12 warns of its own strings and shared pointers in C++20 with -O3.
set(warnings_about_the_standard_library "")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(warnings_about_the_standard_library $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=restrict;-Wno-error=stringop-overflow>)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12 OR CMAKE_CXX_STANDARD GREATER 17)
    list(APPEND warnings_about_the_standard_library $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=array-bounds>)
  endif()
endif()
# Warnings are errors only in this project itself: a later compiler may warn of more, which must not end another project's build.
set(warnings_are_errors "")
if(PROJECT_IS_TOP_LEVEL)
  set(warnings_are_errors -Werror)
endif()
add_library(rmm_warnings INTERFACE)
target_compile_options(
  rmm_warnings
  INTERFACE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-Wall;-Wextra;-Wconversion;-Wshadow;${warnings_are_errors};-Wno-error=deprecated-declarations>
    $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Xcompiler=-Wall,-Wno-error=deprecated-declarations>
    $<$<AND:$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>,$<BOOL:${warnings_are_errors}>>:-Xcompiler=-Werror>
    ${warnings_about_the_standard_library}
    $<$<BOOL:${DISABLE_DEPRECATION_WARNING}>:$<$<COMPILE_LANGUAGE:CXX>:-Wno-deprecated-declarations>>
    $<$<BOOL:${DISABLE_DEPRECATION_WARNING}>:$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Xcompiler=-Wno-deprecated-declarations>>)

add_library(rmm_sanitizers INTERFACE)
if(RMM_SANITIZE)
  set(sanitizer_flags -fsanitize=${RMM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  set(sanitizer_libraries -fsanitize=${RMM_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    list(APPEND sanitizer_flags -fno-sanitize=function) # the driver's functions are called through types of the runtime, which are the same under other names
    if(RMM_SANITIZE MATCHES "address" OR CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 19)
      # The sanitizer's library is linked as a shared one, as g++ does: tests replace some forms of operator new, and programs without
      # sanitizer load the simulator. ThreadSanitizer's shared library of clang++ 14 does not start.
      string(REGEX REPLACE "^(.).*" "\\1san" sanitizer_name "${RMM_SANITIZE}")
      execute_process(
        COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=libclang_rt.${sanitizer_name}-${CMAKE_SYSTEM_PROCESSOR}.so
        OUTPUT_VARIABLE sanitizer_library
        OUTPUT_STRIP_TRAILING_WHITESPACE)
      get_filename_component(sanitizer_folder "${sanitizer_library}" DIRECTORY)
      list(APPEND sanitizer_libraries -shared-libsan "LINKER:-rpath,${sanitizer_folder}")
    endif()
  endif()
  target_compile_options(rmm_sanitizers INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${sanitizer_flags}>)
  target_link_options(rmm_sanitizers INTERFACE ${sanitizer_libraries})
endif()

# RMM_UNITE_TESTS: leaves out passes of g++ over machine instructions, after all that warn. With -O3 they take a sixth of the time, and nobody
# installs what a suite compiles. Releases have them, but not the Python package that is tested.
add_library(rmm_late_passes INTERFACE)
if(RMM_UNITE_TESTS AND NOT (PROJECT_IS_TOP_LEVEL AND CMAKE_BUILD_TYPE STREQUAL "Release"))
  set(late_passes branch-count-reg caller-saves combine-stack-adjustments compare-elim cprop-registers crossjumping cse-follow-jumps dse
                  forward-propagate gcse if-conversion if-conversion2 lra-remat move-loop-invariants peephole2 ree reorder-blocks
                  rerun-cse-after-loop schedule-insns2 shrink-wrap split-wide-types)
  list(TRANSFORM late_passes PREPEND -fno-)
  target_compile_options(rmm_late_passes INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:${late_passes}>")
endif()

# Definitions and options of all test, benchmark and example programs.
add_library(rmm_program INTERFACE)
target_compile_definitions(
  rmm_program
  INTERFACE SPDLOG_ACTIVE_LEVEL=SPDLOG_LEVEL_${RMM_LOGGING_LEVEL}
            $<$<BOOL:${RMM_ASSERTIONS}>:RMM_ENABLE_ASSERTIONS>
            $<$<BOOL:${RMM_EXPENSIVE_ASSERTIONS}>:RMM_ENABLE_EXPENSIVE_ASSERTIONS>)
if(RMM_UNITE_TESTS) # as the tests are: with few processors, the suite takes longer to compile than to run
  target_compile_options(rmm_program INTERFACE $<$<AND:$<CONFIG:RelWithDebInfo>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endif()
target_include_directories(rmm_program INTERFACE "${PROJECT_SOURCE_DIR}")
target_link_libraries(rmm_program INTERFACE rmm_warnings rmm_sanitizers rmm_late_passes)

# Searches the headers of RMM_CUDA_INCLUDE_DIR before those of the toolkit.
function(rmm_use_cuda_headers target)
  if(RMM_CUDA_INCLUDE_DIR)
    target_include_directories(${target} SYSTEM BEFORE PRIVATE "${RMM_CUDA_INCLUDE_DIR}")
  endif()
endfunction()

# rmm_use_backend(<target>): links the library, and the CUDA runtime that RMM_CUDA_BACKEND names, to a target of this project.
# With the simulator, the real runtime is not linked, so that no call can reach it.
function(rmm_use_backend target)
  if(RMM_BACKEND STREQUAL "sim")
    set_target_properties(${target} PROPERTIES RMM_LINK_SIMULATOR ON CUDA_RUNTIME_LIBRARY None)
    rmm_use_cuda_headers(${target})
    target_link_libraries(${target} PRIVATE rmm_cudart_sim)
  elseif(CUDA_STATIC_RUNTIME)
    set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY Static)
  else()
    set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY Shared)
  endif()
  target_link_libraries(${target} PRIVATE rmm)
endfunction()

# RMM_UNITE_TESTS: the engine of the pools is compiled once for each meaning of the default stream, as users do with rmm::rmm_compiled. Files
# of tests of pools then take two thirds of the time, with sanitizers half. Programs that change the headers, releases, and programs for a
# GPU compile it anew.
if(RMM_BUILD_TESTS AND RMM_UNITE_TESTS AND RMM_BACKEND STREQUAL "sim" AND NOT RMM_QUICK_TESTS AND NOT CODE_COVERAGE
   AND NOT CMAKE_BUILD_TYPE STREQUAL "Release")
  foreach(engine IN ITEMS rmm_test_engine rmm_test_engine_ptds)
    add_library(${engine} STATIC EXCLUDE_FROM_ALL)
    rmm_use_cuda_headers(${engine})
    target_link_libraries(${engine} PRIVATE rmm_compiled rmm_program)
    if(RMM_SANITIZE)
      target_compile_options(${engine} PRIVATE -O1) # also in a Debug build: random tests then take two thirds of the time
    endif()
    set_target_properties(${engine} PROPERTIES POSITION_INDEPENDENT_CODE ON RMM_LINK_SIMULATOR ON)
  endforeach()
  target_compile_definitions(rmm_test_engine_ptds PRIVATE CUDA_API_PER_THREAD_DEFAULT_STREAM)
endif()

# rmm_use_compiled_engine(<target> [_ptds]): the target, which links rmm_program, shares that engine if there is one.
function(rmm_use_compiled_engine target)
  if(TARGET rmm_test_engine)
    target_compile_definitions(${target} PRIVATE RMM_COMPILED)
    target_link_libraries(${target} PRIVATE rmm_test_engine${ARGN})
  endif()
endfunction()

# rmm_unite_tool(<target>): with RMM_UNITE_TOOLS, compiles the target as one file, and releases of it with -Og.
function(rmm_unite_tool target)
  if(RMM_UNITE_TOOLS)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  endif()
endfunction()

# Programs and their modules are installed two folders below bin, and find the package's libraries from there. If
# CMAKE_INSTALL_RPATH is set, it is used instead.
macro(rmm_set_program_rpath)
  if(NOT DEFINED CMAKE_INSTALL_RPATH)
    set(CMAKE_INSTALL_RPATH "\$ORIGIN/../../../${CMAKE_INSTALL_LIBDIR}")
  endif()
endmacro()

# The target rmm_doc builds the documentation's site in docs/html of the build folder.
if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(
    rmm_doc
    COMMAND "${CMAKE_COMMAND}" -E env "LIBRMM_BUILD_DIR=${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}/build.sh" docs
    USES_TERMINAL VERBATIM)
endif()
