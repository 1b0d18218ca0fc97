# SPDX-License-Identifier: Apache-2.0

# Configures, builds and tests the project `source` in the new folder `binary`; with `build_only`, does not test it.

file(REMOVE_RECURSE "${binary}")
execute_process(COMMAND "${CMAKE_COMMAND}" -S "${source}" -B "${binary}" -G "${generator}" ${arguments} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${binary}" COMMAND_ERROR_IS_FATAL ANY)
if(NOT build_only)
  execute_process(COMMAND "${ctest}" --output-on-failure --no-tests=error WORKING_DIRECTORY "${binary}"
                  COMMAND_ERROR_IS_FATAL ANY)
endif()
