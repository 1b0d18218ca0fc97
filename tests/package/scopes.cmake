# SPDX-License-Identifier: Apache-2.0

# Configures projects that find a package before, and again after, they use RMM in another folder: every combination of
# package, folder and kind of use. CMake allows only the folder that imported a target to make it visible everywhere.
#
# cmake      the CMake that configures; without it the newest that PyPI has, installed in the folder `newest`
# rmm        folder of the installed RMM
# source     repository of RMM
# packages   packages that RMM looks for and that this machine has, between commas
# CCCL_DIR   where RMM found the package CCCL
# cpm_file   CPM.cmake, or what stands for it
# scratch    folder for the build trees

include("${CMAKE_CURRENT_LIST_DIR}/chosen_cmake.cmake")
if(NOT cmake)
  return()
endif()

string(REPLACE "," ";" packages "${packages}")
file(REMOVE_RECURSE "${scratch}")
set(project "${CMAKE_CURRENT_LIST_DIR}/scopes")
set(preset -G "${generator}" "-DCMAKE_CXX_COMPILER=${compiler}" "-DCCCL_DIR=${CCCL_DIR}" --no-warn-unused-cli)

set(tried 0)
set(failed 0)

# configure(<name> <source> <build tree> <argument of CMake>...): counts a configuration, and shows it where it fails.
macro(configure name folder binary)
  math(EXPR tried "${tried} + 1")
  execute_process(COMMAND "${cmake}" -S "${folder}" -B "${binary}" ${preset} ${ARGN}
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0 OR output MATCHES "CMake (Warning|Error|Deprecation)")
    math(EXPR failed "${failed} + 1")
    string(REGEX MATCH "CMake (Warning|Error|Deprecation).*" output "${output}")
    message("FAILED with CMake ${version}: ${name}\n${output}\n")
  endif()
endmacro()

# Every program of the project, also one that names rmm::rmm alone, gets the library that rmm::rmm needs.
macro(check_programs name binary)
  if(generator STREQUAL "Ninja")
    file(STRINGS "${binary}/build.ninja" linked REGEX "LINK_LIBRARIES = .*libcudart")
    file(STRINGS "${binary}/build.ninja" programs REGEX "^build [^ ]*_links_[a-z_]*: CXX_EXECUTABLE_LINKER")
    list(LENGTH linked linked)
    list(LENGTH programs programs)
    if(NOT programs EQUAL 9 OR NOT linked EQUAL programs)
      math(EXPR failed "${failed} + 1")
      message("FAILED with CMake ${version}: ${name}\n${linked} of ${programs} programs, of which there should be 9, link the CUDA runtime\n")
    endif()
  endif()
endmacro()

# Packages that use RMM themselves: one finds it installed, the other contains it and installs it along.
foreach(rmm_of_middle IN ITEMS "" "${source}")
  set(folder middle)
  if(rmm_of_middle)
    set(folder middle_and_rmm)
  endif()
  configure("${folder}, a package that uses RMM" "${project}/middle" "${scratch}/middle" "-Drmm_ROOT=${rmm}" "-DRMM_SOURCE=${rmm_of_middle}")
  execute_process(COMMAND "${cmake}" --install "${scratch}/middle" --prefix "${scratch}/${folder}_installed" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()

# Most of the time of a configuration is the search for libraries that the toolkit lacks. A file in place of each ends it.
file(TOUCH "${scratch}/lacking.so")
file(STRINGS "${scratch}/middle/CMakeCache.txt" lacking REGEX "^CUDA_[A-Za-z0-9_]+_LIBRARY:FILEPATH=.*NOTFOUND$")
foreach(line IN LISTS lacking)
  string(REGEX REPLACE ":.*" "" variable "${line}")
  list(APPEND preset "-D${variable}=${scratch}/lacking.so")
endforeach()

set(binary "${scratch}/scopes") # one for all cases: what CMake remembers is the compiler and where the dependencies are
foreach(kind IN ITEMS installed subdirectory cpm exported exported_with_rmm)
  set(prefixes "${rmm}")
  if(kind STREQUAL "exported")
    set(prefixes "${rmm}\;${scratch}/middle_installed")
  elseif(kind STREQUAL "exported_with_rmm")
    set(prefixes "${scratch}/middle_and_rmm_installed")
  endif()
  string(REGEX REPLACE "_.*" "" word "${kind}")
  foreach(case IN ITEMS nothing ${packages} all)
    set(folders beside holder user below)
    set(found ${case})
    if(case STREQUAL "nothing")
      set(folders nowhere)
      set(found "")
    elseif(case STREQUAL "all")
      string(REPLACE ";" "\;" found "${packages}")
    endif()
    string(REPLACE ";" "\;" all_packages "${packages}")
    foreach(folder IN LISTS folders)
      set(name "${kind}, ${case} found before in ${folder}")
      configure("${name}" "${project}" "${binary}" "-DRMM_SOURCE=${source}" "-DKIND=${word}" "-DFOUND_IN=${folder}" "-DPACKAGES=${found}"
                "-DALL_PACKAGES=${all_packages}" "-DCMAKE_PREFIX_PATH=${prefixes}" "-DCPM_FILE=${cpm_file}" -Drmm_DIR= -Dmiddle_DIR=)
      if(result EQUAL 0)
        check_programs("${name}" "${binary}")
      endif()
    endforeach()
  endforeach()
endforeach()

# The CCCL that a project has chosen comes before that of the toolkit, whose folders contain one from CMake 4.1 on.
configure("a CCCL of the project" "${CMAKE_CURRENT_LIST_DIR}/other_cccl" "${scratch}/other_cccl" "-Drmm_ROOT=${rmm}")
execute_process(COMMAND "${cmake}" --build "${scratch}/other_cccl" RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  math(EXPR failed "${failed} + 1")
  message("FAILED with CMake ${version}: a CCCL of the project\n${output}\n")
endif()

message(STATUS "CMake ${version}: ${tried} projects configured, ${failed} failures")
if(failed)
  message(FATAL_ERROR "${failed} failures with CMake ${version}")
endif()
