# SPDX-License-Identifier: Apache-2.0

# Installs the build tree `build` and moves the result to `prefix`: a package must not remember where it was installed.
# `include` is the folder of the headers in the source tree.

file(REMOVE_RECURSE "${scratch}/installed" "${prefix}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${build}" --prefix "${scratch}/installed" OUTPUT_QUIET
                COMMAND_ERROR_IS_FATAL ANY)
file(RENAME "${scratch}/installed" "${prefix}")

file(GLOB found RELATIVE "${prefix}" "${prefix}/*" "${prefix}/lib*/*" "${prefix}/lib*/cmake/*" "${prefix}/include/*"
     "${prefix}/include/rmm/version_config.hpp" "${prefix}/include/rmm/c/rmm.h" "${prefix}/lib*/cmake/rmm/rmm-*.cmake"
     "${prefix}/lib*/pkgconfig/*.pc" "${prefix}/share/rmm/gdb/*")
foreach(file include/rmm/version_config.hpp include/rmm/c/rmm.h include/cudasim lib[^/]*/libcudart_sim.so lib[^/]*/librmm_c.so.1 lib[^/]*/librmm_audit.so lib[^/]*/cmake/rmm/rmm-config.cmake
             lib[^/]*/cmake/rmm/rmm-config-version.cmake lib[^/]*/cmake/rmm/rmm-targets.cmake
             lib[^/]*/pkgconfig/rmm.pc lib[^/]*/pkgconfig/rmm-c.pc lib[^/]*/pkgconfig/rmm-cudart-sim.pc share/rmm/gdb/rmm_printers.py)
  if(NOT ";${found};" MATCHES ";${file};")
    message(SEND_ERROR "The installation lacks ${file}; it has ${found}")
  endif()
endforeach()
file(GLOB programs RELATIVE "${prefix}/bin" "${prefix}/bin/*")
if(NOT programs STREQUAL "rmm-trace")
  message(SEND_ERROR "The default installation contains, instead of rmm-trace alone, these programs: ${programs}")
endif()

# Every header of the source tree is there.
file(GLOB_RECURSE headers RELATIVE "${include}" "${include}/*")
foreach(header IN LISTS headers)
  if(NOT EXISTS "${prefix}/include/${header}")
    message(SEND_ERROR "The installation lacks the header ${header}")
  endif()
endforeach()

# What was installed names no folder of the machine that built it.
file(GLOB_RECURSE texts "${prefix}/*.cmake" "${prefix}/*.pc" "${prefix}/*.hpp" "${prefix}/*.h")
foreach(text IN LISTS texts)
  file(READ "${text}" content)
  string(FIND "${content}" "${build}" at)
  if(NOT at EQUAL -1)
    message(SEND_ERROR "${text} contains the path ${build}")
  endif()
endforeach()

# Beside the library rapids_logger, whose header has the name of one of ours.
set(beside "${scratch}/beside rapids_logger")
file(REMOVE_RECURSE "${beside}")
file(WRITE "${beside}/include/rapids_logger/logger.hpp" "// of another project\n")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${build}" --prefix "${beside}" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(READ "${beside}/include/rapids_logger/logger.hpp" kept)
if(NOT kept STREQUAL "// of another project\n" OR NOT EXISTS "${beside}/include/rmm/logger.hpp")
  message(SEND_ERROR "The installation replaced the header of rapids_logger, or went no further")
endif()
file(REMOVE_RECURSE "${beside}")

# An installation without that header, as packagers may want it for a prefix that others share.
set(without "${scratch}/without rapids_logger")
file(REMOVE_RECURSE "${without}")
execute_process(COMMAND "${CMAKE_COMMAND}" -S "${include}/.." -B "${without}/build" -DRMM_INSTALL_RAPIDS_LOGGER=OFF -DBUILD_TESTS=OFF
                        -DBUILD_EXAMPLES=OFF -DRMM_BUILD_C_LIBRARY=OFF -DRMM_BUILD_SIMULATOR=OFF
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${without}/build" --prefix "${without}/installed" OUTPUT_QUIET
                COMMAND_ERROR_IS_FATAL ANY)
if(EXISTS "${without}/installed/include/rapids_logger" OR NOT EXISTS "${without}/installed/include/rmm/logger.hpp")
  message(SEND_ERROR "With RMM_INSTALL_RAPIDS_LOGGER=OFF the header of rapids_logger is installed, or others are not")
endif()
file(REMOVE_RECURSE "${without}")
