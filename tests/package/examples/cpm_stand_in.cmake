# SPDX-License-Identifier: Apache-2.0

# Stands for CPM.cmake where there is no copy of it: does what that documents for a package with CPM_<name>_SOURCE, no more.

include(FetchContent)

function(CPMAddPackage)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;VERSION;GIT_REPOSITORY;GIT_TAG;SOURCE_SUBDIR;SYSTEM;EXCLUDE_FROM_ALL" "OPTIONS")
  if(NOT CPM_${arg_NAME}_SOURCE)
    message(FATAL_ERROR "This is not CPM: set CPM_${arg_NAME}_SOURCE")
  endif()
  foreach(option IN LISTS arg_OPTIONS)
    string(REGEX MATCH "^([^ ]+) +(.+)$" matched "${option}")
    set(${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
  endforeach()
  set(subfolder "")
  if(arg_SOURCE_SUBDIR) # where this folder has no CMakeLists.txt, FetchContent adds nothing and says nothing, as CPM
    set(subfolder SOURCE_SUBDIR "${arg_SOURCE_SUBDIR}")
  endif()
  FetchContent_Declare(${arg_NAME} SOURCE_DIR "${CPM_${arg_NAME}_SOURCE}" ${subfolder})
  FetchContent_MakeAvailable(${arg_NAME})
endfunction()
