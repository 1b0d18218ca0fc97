# SPDX-License-Identifier: Apache-2.0

# cmake -Dprogram=<file> -P rmm_run_on_shared_gpus.cmake: runs a test program on the GPUs that CTest has given it.

if(DEFINED ENV{CTEST_RESOURCE_GROUP_COUNT})
  set(gpus "")
  math(EXPR last "$ENV{CTEST_RESOURCE_GROUP_COUNT} - 1")
  foreach(group RANGE ${last})
    if("$ENV{CTEST_RESOURCE_GROUP_${group}_GPUS}" MATCHES "id:([0-9]+)")
      list(APPEND gpus ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES gpus)
  list(JOIN gpus "," gpus)
  set(ENV{CUDA_VISIBLE_DEVICES} "${gpus}")
endif()

execute_process(COMMAND "${program}" RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${program}: ${result}")
endif()
