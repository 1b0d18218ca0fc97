# SPDX-License-Identifier: Apache-2.0

# Compiles the program `source` with what `pkg_config` says of the package in `prefix`, without CMake, and runs it on the
# simulator; and `c_source` with the C interface. `compiler` compiles, `scratch` is a folder for the result.

file(GLOB folder "${prefix}/lib*/pkgconfig" "${prefix}/lib/*/pkgconfig")
set(ENV{PKG_CONFIG_PATH} "${folder}")
unset(ENV{PKG_CONFIG_SYSROOT_DIR})
file(MAKE_DIRECTORY "${scratch}")

# try(<name> <package>...): builds the program as <name>.
function(try name)
  execute_process(COMMAND "${pkg_config}" --cflags --libs ${ARGN} OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  set(program -std=c++17 "${source}")
  if(name STREQUAL "c")
    set(program -x c -std=c11 "${c_source}" -x none)
  endif()
  execute_process(COMMAND "${compiler}" ${program} ${flags} -pthread -o "${scratch}/${name}"
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()

execute_process(COMMAND "${pkg_config}" --modversion rmm OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT found STREQUAL version)
  message(SEND_ERROR "rmm.pc says ${found}, not ${version}")
endif()

try(simulated rmm-cudart-sim rmm)
# Where the libraries of the package and of the CUDA toolkit are, which the loader need not know.
execute_process(COMMAND "${pkg_config}" --libs-only-L rmm-cudart-sim rmm OUTPUT_VARIABLE folders COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(folders UNIX_COMMAND "${folders}")
list(TRANSFORM folders REPLACE "^-L" "")
list(JOIN folders ":" folders)
set(ENV{LD_LIBRARY_PATH} "${folders}:$ENV{LD_LIBRARY_PATH}")
execute_process(COMMAND "${scratch}/simulated" COMMAND_ERROR_IS_FATAL ANY)

# The C interface asks for nothing but its own library.
try(c rmm-cudart-sim rmm-c)
execute_process(COMMAND "${scratch}/c" COMMAND_ERROR_IS_FATAL ANY)

execute_process(COMMAND readelf --dynamic "${scratch}/simulated" OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
if(NOT needed MATCHES "NEEDED[^\n]*libcudart_sim[^\n]*\n.*NEEDED[^\n]*libcudart\\.so")
  message(SEND_ERROR "the simulator does not come before the real runtime:\n${needed}")
endif()
