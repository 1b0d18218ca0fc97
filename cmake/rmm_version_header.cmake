# SPDX-License-Identifier: Apache-2.0

# include/rmm/version_config.hpp is in the source tree, because the headers have to work without this build. Configuring ends
# with an error if its version is not that of the file VERSION.

set(rmm_version_header "${PROJECT_SOURCE_DIR}/include/rmm/version_config.hpp")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${rmm_version_header}")
file(READ "${rmm_version_header}" rmm_version_text)

foreach(part MAJOR MINOR PATCH)
  string(REGEX REPLACE "^0+([0-9])" "\\1" number "${PROJECT_VERSION_${part}}")
  if(NOT rmm_version_text MATCHES "#define RMM_VERSION_${part} ${number}\n")
    message(FATAL_ERROR "VERSION is ${PROJECT_VERSION}, so ${rmm_version_header} has to contain the line\n"
                        "#define RMM_VERSION_${part} ${number}")
  endif()
endforeach()
