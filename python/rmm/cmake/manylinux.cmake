# SPDX-License-Identifier: Apache-2.0

# RMM_MANYLINUX: whatever is linked from here on loads on every machine of manylinux_2_28, that is, with glibc 2.28 and the libstdc++ of
# GCC 8. The build itself can use g++ and libraries of any later release (see manylinux/link_stubs.py).

option(RMM_MANYLINUX "Link for manylinux_2_28, as wheels for others are" OFF)
if(RMM_MANYLINUX)
  set(rmm_manylinux "${CMAKE_CURRENT_BINARY_DIR}/manylinux")
  execute_process(COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/manylinux/link_stubs.py" "${CMAKE_CXX_COMPILER}"
                          "${rmm_manylinux}" COMMAND_ERROR_IS_FATAL ANY)
  # Since glibc 2.34, libc has the functions of these libraries. Machines with an older glibc still have to load them.
  set(CMAKE_CXX_STANDARD_LIBRARIES
      "-L\"${rmm_manylinux}\" \"${rmm_manylinux}/libnewer_functions.a\" -Wl,--push-state,--no-as-needed -lpthread -ldl -lrt -Wl,--pop-state")
endif()
