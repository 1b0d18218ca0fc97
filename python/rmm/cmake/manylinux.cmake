# SPDX-License-Identifier: Apache-2.0

# RMM_MANYLINUX: whatever is linked from here on loads on every machine that manylinux_2_28 means: glibc 2.28, libstdc++ of GCC 8. It takes g++
# and libraries of any later release (see manylinux/link_stubs.py).

option(RMM_MANYLINUX "Link for manylinux_2_28, as wheels for others are" OFF)
if(RMM_MANYLINUX)
  set(rmm_manylinux "${CMAKE_CURRENT_BINARY_DIR}/manylinux")
  execute_process(COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/manylinux/link_stubs.py" "${CMAKE_CXX_COMPILER}"
                          "${rmm_manylinux}" COMMAND_ERROR_IS_FATAL ANY)
  # What was in these libraries is in that of C since glibc 2.34; older machines still have to load them.
  set(CMAKE_CXX_STANDARD_LIBRARIES
      "-L\"${rmm_manylinux}\" \"${rmm_manylinux}/libnewer_functions.a\" -Wl,--push-state,--no-as-needed -lpthread -ldl -lrt -Wl,--pop-state")
endif()
