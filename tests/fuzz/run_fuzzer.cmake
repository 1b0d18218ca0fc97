# SPDX-License-Identifier: Apache-2.0

# Runs a fuzzer: cmake -Dprogram=... -Dcorpus=<folder> -Druns=<n> -Dlongest=<bytes> -P run_fuzzer.cmake

cmake_minimum_required(VERSION 3.25)

set(found "${program}.found")
set(limit "-runs=${runs}")
set(time_limit 1500)
if(DEFINED ENV{RMM_FUZZ_SECONDS})
  set(limit "-max_total_time=$ENV{RMM_FUZZ_SECONDS}")
  math(EXPR time_limit "$ENV{RMM_FUZZ_SECONDS} + 300")
else()
  file(REMOVE_RECURSE "${found}") # the same runs every time
endif()
file(MAKE_DIRECTORY "${found}")
set(inputs "${found}")
if(EXISTS "${corpus}")
  list(APPEND inputs "${corpus}")
endif()
execute_process(
  COMMAND "${program}" ${limit} -seed=1 -max_len=${longest} -timeout=60 "-artifact_prefix=${program}.failed-" ${inputs}
  RESULT_VARIABLE result
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output
  TIMEOUT ${time_limit})
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${output}\n${program} failed (${result}). It repeats with: ${program} <the file that it names>")
endif()
string(REGEX MATCH "[^\n]*[0-9]+ runs[^\n]*" summary "${output}")
message(STATUS "${summary}")
