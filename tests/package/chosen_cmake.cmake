# SPDX-License-Identifier: Apache-2.0

# For scripts of tests. Sets cmake, unless it names a CMake already, to the newest that PyPI has, installed by `python` in the folder `newest`. Where
# that fails it says that the test is skipped, and cmake stays empty. Sets version to the version of that CMake.

if(NOT cmake)
  # A copy of an earlier run stays where PyPI is not reachable.
  execute_process(COMMAND "${python}" -m pip install --quiet --disable-pip-version-check --retries 0 --timeout 10 --upgrade
                          --target "${newest}" cmake
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(cmake "${newest}/cmake/data/bin/cmake")
  if(NOT EXISTS "${cmake}")
    message(STATUS "Skipped: pip cannot install the newest CMake from PyPI (${result}): ${output}")
    set(cmake "")
  endif()
endif()
if(cmake)
  execute_process(COMMAND "${cmake}" --version OUTPUT_VARIABLE version COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "[0-9][^\n]*" version "${version}")
endif()
