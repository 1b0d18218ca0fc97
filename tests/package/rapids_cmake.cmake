# SPDX-License-Identifier: Apache-2.0

# Configures a project that asks for RMM as rapids-cmake does. Nothing is downloaded, and nothing compiled.
#
# rmm        folder of the installed RMM
# source     repository of RMM
# cpm_file   CPM.cmake, or what stands for it
# scratch    folder for the build trees

file(REMOVE_RECURSE "${scratch}")
set(project "${CMAKE_CURRENT_LIST_DIR}/rapids_cmake")

# configure(<works or fails> <regular expression that matches the output> <argument of CMake>...)
function(configure expected pattern)
  execute_process(COMMAND "${CMAKE_COMMAND}" -G "${generator}" "-DCMAKE_CXX_COMPILER=${compiler}" "-DCPM_FILE=${cpm_file}"
                          --no-warn-unused-cli ${ARGN}
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " text "${output}") # CMake wraps the lines of warnings
  if(expected STREQUAL "works" AND NOT result EQUAL 0 OR expected STREQUAL "fails" AND result EQUAL 0)
    message(SEND_ERROR "cmake ${ARGN}\nwas expected to be one that ${expected}, but ended with ${result}:\n${output}")
  endif()
  if(NOT text MATCHES "${pattern}")
    message(SEND_ERROR "cmake ${ARGN}\nshould print ${pattern}, but prints:\n${output}")
  endif()
  set(text "${text}" PARENT_SCOPE)
endfunction()

# check_package(<folder>): rmm::rmm is usable from there.
function(check_package folder)
  configure(works "rmm 25.12 was found" -S "${project}" -B "${scratch}/asks" "-Drmm_ROOT=${folder}" -Drmm_DIR= -DREQUEST=25.12)
  if(text MATCHES "CMake (Warning|Error)")
    message(SEND_ERROR "A request that is accepted should go without a warning: ${text}")
  endif()
endfunction()

# The sources through the folder cpp: target, install rules and build tree are there.
configure(works "" -S "${project}" -B "${scratch}/sources" "-DCPM_rmm_SOURCE=${source}" -DREQUEST=25.12)
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${scratch}/sources" --prefix "${scratch}/installed" OUTPUT_QUIET
                COMMAND_ERROR_IS_FATAL ANY)
foreach(file IN ITEMS include/rmm/version_config.hpp "lib*/cmake/rmm/rmm-config.cmake" "lib*/cmake/user/user-targets.cmake")
  file(GLOB_RECURSE found "${scratch}/installed/${file}")
  if(NOT found)
    message(SEND_ERROR "The installation lacks ${file}")
  endif()
endforeach()
check_package("${scratch}/installed")
check_package("${scratch}/sources/_deps/rmm-build")

# The folder cpp by itself.
configure(works "the library alone" -S "${source}/cpp" -B "${scratch}/cpp")
check_package("${scratch}/cpp")

# Requests that are refused say why.
set(reason "refuses the request for version VERSION\\. It is release [0-9.]+ and accepts requests from 24\\.08 to 25\\.12\\. .*docs/migration\\.md")
foreach(version IN ITEMS 26.02 26.06.01 26.02...26.04 26.02...<26.04)
  string(REPLACE "." "\\." escaped "${version}")
  string(REPLACE "VERSION" "${escaped}" pattern "${reason}")
  configure(works "CMake Warning.*${pattern}.*rmm ${escaped} would be downloaded" -S "${project}" -B "${scratch}/asks" "-Drmm_ROOT=${rmm}"
            -Drmm_DIR= "-DREQUEST=${version}")
  if(NOT text MATCHES "Programs for later releases.*keep their memory resource alive")
    message(SEND_ERROR "Nothing says what differs from ${version}: ${text}")
  endif()
endforeach()
configure(works "CMake Warning.*Earlier releases have other names.*rmm 24\\.06 would be downloaded" -S "${project}" -B "${scratch}/asks"
          "-Drmm_ROOT=${rmm}" -Drmm_DIR= -DREQUEST=24.06)

# So does find_package() that requires such a release.
file(WRITE "${scratch}/requires/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)
project(requires LANGUAGES NONE)
find_package(rmm 26.02 REQUIRED)
")
string(REPLACE "VERSION" "26\\.02" pattern "${reason}")
configure(fails "${pattern}.*CMake Error" -S "${scratch}/requires" -B "${scratch}/requires/build" "-Drmm_ROOT=${rmm}")
