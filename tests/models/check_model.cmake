# SPDX-License-Identifier: Apache-2.0

# Checks that a model holds, and that Spin finds each of its planted bugs:
# cmake -Dmodel=<file> -Dfolder=<folder to work in> -Dspin=<program> -Dcc=<C compiler> -P check_model.cmake

cmake_minimum_required(VERSION 3.25)

if(NOT spin OR NOT cc)
  message("SKIPPED: ${model} is not checked without Spin and a C compiler (apt-get install spin gcc)")
  return()
endif()

# check(<variable> [<definition>]): sets the variable to the number of errors that Spin finds.
function(check variable)
  file(REMOVE_RECURSE "${folder}")
  file(MAKE_DIRECTORY "${folder}")
  foreach(command IN ITEMS "${spin};${ARGN};-a;${model}" "${cc};-w;-O0;-DSAFETY;-DMEMLIM=2048;-o;pan;pan.c" "./pan;-m100000")
    execute_process(
      COMMAND ${command}
      WORKING_DIRECTORY "${folder}"
      RESULT_VARIABLE result
      OUTPUT_VARIABLE output
      ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
      message(FATAL_ERROR "${command} ends with ${result}:\n${output}")
    endif()
  endforeach()
  if(NOT output MATCHES "errors: ([0-9]+)")
    message(FATAL_ERROR "Spin's output has no number of errors:\n${output}")
  endif()
  set(errors "${CMAKE_MATCH_1}")
  if(output MATCHES "max search depth too small|out of memory|Search not completed")
    if(errors EQUAL 0)
      message(FATAL_ERROR "Spin did not search all interleavings:\n${output}")
    endif()
  endif()
  string(REGEX MATCH "[0-9e.+]+ states, stored" states "${output}")
  string(REGEX MATCH "pan:1: [^\n]*" why "${output}")
  message("${ARGN}: ${states}, errors: ${errors} ${why}")
  set(${variable} "${errors}" PARENT_SCOPE)
endfunction()

get_filename_component(name "${model}" NAME_WE)
check(errors)
if(NOT errors EQUAL 0)
  execute_process(COMMAND "${spin}" -t -p -g "${model}" WORKING_DIRECTORY "${folder}")
  message(FATAL_ERROR "${name} does not hold")
endif()

file(READ "${model}" text)
string(REGEX MATCHALL "ifn?def BUG_[A-Z_]+" bugs "${text}")
list(TRANSFORM bugs REPLACE "ifn?def " "-D")
list(REMOVE_DUPLICATES bugs)
if(NOT bugs)
  message(FATAL_ERROR "${model} has no planted bug to show that its checks can fail")
endif()
foreach(bug IN LISTS bugs)
  check(errors ${bug})
  if(errors EQUAL 0)
    message(FATAL_ERROR "Spin does not find ${bug} of ${name}")
  endif()
endforeach()
