# SPDX-License-Identifier: Apache-2.0

# Configures, builds and runs the projects that the pages of the documentation show, as they are printed, against the package in
# `prefix`. What the start page says that its program prints is what it prints.

execute_process(COMMAND "${python}" "${source}/tools/doc_code.py" cmake "${scratch}" OUTPUT_VARIABLE projects
                        OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" projects "${projects}")
file(READ "${source}/README.md" start_page)
file(GLOB simulator "${prefix}/lib*/libcudart_sim.so")
cmake_path(GET simulator PARENT_PATH libraries) # preloaded by its name alone, for the folder may have spaces

foreach(project IN LISTS projects)
  get_filename_component(name "${project}" NAME)
  file(REMOVE_RECURSE "${project}/build")
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${project}" -B "${project}/build" -G "${generator}" "-DCMAKE_PREFIX_PATH=${prefix}"
                          "-DCMAKE_CXX_COMPILER=${compiler}" "-DCMAKE_RUNTIME_OUTPUT_DIRECTORY=${project}/build" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${CMAKE_COMMAND}" --build "${project}/build" COMMAND_ERROR_IS_FATAL ANY)
  file(STRINGS "${project}/CMakeLists.txt" programs REGEX "^add_executable")
  foreach(line IN LISTS programs)
    string(REGEX REPLACE "^add_executable\\(([^ ]+).*" "\\1" program "${line}")
    execute_process(COMMAND "${CMAKE_COMMAND}" -E env "LD_LIBRARY_PATH=${libraries}" LD_PRELOAD=libcudart_sim.so
                            "${project}/build/${program}"
                    OUTPUT_VARIABLE printed OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    message(STATUS "${name}: ${program}: ${printed}")
    string(FIND "${start_page}" "`${printed}`" at)
    if(name MATCHES "^readme_" AND at EQUAL -1)
      message(SEND_ERROR "README.md does not say that its program prints: ${printed}")
    endif()
  endforeach()
endforeach()
