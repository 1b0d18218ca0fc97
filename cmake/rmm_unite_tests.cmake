# SPDX-License-Identifier: Apache-2.0

# Builds test programs from a few large files. Most of the compile time goes into headers and templates, again for each file. A unit
# is one file that includes several files of tests, so that it pays for them once.
#
# The names of two files of tests cannot clash: a unit includes all headers first, and then each file in a namespace of its own.
# This file is also the script that writes a unit: cmake -Dunit=<file> "-Dsources=<file>;..." -P rmm_unite_tests.cmake

# rmm_includes_of(<file> <variable>): the headers that the file includes, as a unit in another folder has to name them.
function(rmm_includes_of source variable)
  cmake_path(GET source PARENT_PATH folder)
  file(STRINGS "${source}" lines REGEX "^#include ")
  list(FILTER lines EXCLUDE REGEX "\\.inc\"") # these are parts of the file
  set(includes "")
  foreach(line IN LISTS lines)
    if(line MATCHES "^#include \"(.*)\"")
      cmake_path(ABSOLUTE_PATH CMAKE_MATCH_1 BASE_DIRECTORY "${folder}" NORMALIZE OUTPUT_VARIABLE header)
      if(EXISTS "${header}") # else the compiler finds it in its include folders
        set(line "#include \"${header}\"")
      endif()
    endif()
    list(APPEND includes "${line}")
  endforeach()
  set(${variable} "${includes}" PARENT_SCOPE)
endfunction()

# rmm_write_unit(<unit> <source>...)
function(rmm_write_unit unit)
  set(present "")
  set(headers "")
  set(files "")
  set(number 0)
  foreach(source IN LISTS ARGN)
    rmm_includes_of("${source}" includes)
    list(APPEND headers ${includes})
    # Namespaces that are global in headers of fixtures, and in which a file declares names.
    set(opens "")
    file(STRINGS "${source}" opened REGEX "^namespace [a-z_:]+ {$")
    if(opened MATCHES "namespace cudasim_tests {")
      set(opens "namespace cudasim_tests {\nusing namespace ::cudasim_tests;\n}\n")
    elseif(opened MATCHES "namespace rmm::test {")
      set(opens "namespace rmm {\nusing namespace ::rmm;\nnamespace test {\nusing namespace ::rmm::test;\n}\n}\n")
    endif()
    math(EXPR number "${number} + 1")
    string(APPEND files "\nnamespace unit_${number} {\n${opens}#include \"${source}\"\n}\n")
  endforeach()
  list(REMOVE_DUPLICATES headers)
  # The library's headers come first, because a name of a header of tests or tools may hide one that another library looks up.
  set(headers_of_others ${headers})
  list(FILTER headers_of_others EXCLUDE REGEX "^#include <rmm/")
  list(FILTER headers INCLUDE REGEX "^#include <rmm/")
  list(APPEND headers ${headers_of_others})
  list(JOIN headers "\n" headers)
  set(text "${headers}\n${files}")
  if(EXISTS "${unit}")
    file(READ "${unit}" present)
  endif()
  if(NOT text STREQUAL "${present}") # an unchanged unit is not compiled again
    file(WRITE "${unit}" "${text}")
  endif()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  rmm_write_unit("${unit}" ${sources})
  return()
endif()

# A unit has about that many lines at most. A compiler takes half a minute for them.
set(rmm_unit_lines 3400)

# rmm_can_be_united(<file> <variable>): sets the variable to whether a file can be part of a unit. It cannot if it defines a macro
# before it includes a header, or declares or instantiates something in a namespace that is not its own.
function(rmm_can_be_united source variable)
  set(${variable} FALSE PARENT_SCOPE)
  if(NOT source MATCHES "_tests\\.cpp$" OR NOT EXISTS "${source}")
    return()
  endif()
  file(READ "${source}" text)
  string(REPLACE ";" " " text "\n${text}")
  string(REPLACE "\nnamespace rmm::test {" "" text "${text}") # which a unit opens for it
  string(REGEX MATCH ".*\n#include " before_last_include "${text}")
  if(before_last_include MATCHES "\n#[ ]*(define|undef|if)"
     OR text MATCHES "\nnamespace (rmm|std|cuda|RMM_NAMESPACE)[: ]|void\\*? operator (new|delete)|[\n ]extern |\ntemplate class |\n[a-z_:]+ rmm::[a-z_:]+\\(")
    return()
  endif()
  set(${variable} TRUE PARENT_SCOPE)
endfunction()

# rmm_unite_tests(<target> <variable> <source>...): sets the variable to the sources that replace these in the target.
function(rmm_unite_tests target variable)
  set(result "")
  set(units 0)
  set(unit "")
  set(lines 0)
  foreach(source IN LISTS ARGN ITEMS end)
    set(united FALSE)
    if(NOT source STREQUAL "end")
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
      rmm_can_be_united("${source}" united)
    endif()
    if(united)
      list(APPEND unit "${source}")
      file(STRINGS "${source}" text)
      list(LENGTH text length)
      math(EXPR lines "${lines} + ${length}")
    elseif(NOT source STREQUAL "end")
      list(APPEND result "${source}")
    endif()
    if(unit AND (lines GREATER rmm_unit_lines OR source STREQUAL "end"))
      math(EXPR units "${units} + 1")
      set(file "${CMAKE_CURRENT_BINARY_DIR}/${target}_${units}.cpp")
      list(JOIN unit "$<SEMICOLON>" sources)
      add_custom_command(
        OUTPUT "${file}"
        COMMAND "${CMAKE_COMMAND}" "-Dunit=${file}" "-Dsources=${sources}" -P "${PROJECT_SOURCE_DIR}/cmake/rmm_unite_tests.cmake"
        DEPENDS ${unit} "${PROJECT_SOURCE_DIR}/cmake/rmm_unite_tests.cmake"
        COMMENT "Writing ${target}_${units}.cpp, of several files of tests"
        VERBATIM)
      list(APPEND result "${file}")
      set(unit "")
      set(lines 0)
    endif()
  endforeach()
  set(${variable} "${result}" PARENT_SCOPE)
endfunction()
