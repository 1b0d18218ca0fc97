# SPDX-License-Identifier: Apache-2.0

# Builds for 64-bit Arm on another machine, and runs what was built in an emulator. On Debian and Ubuntu:
# apt-get install g++-aarch64-linux-gnu qemu-user googletest

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)

# Programs name the C library of the processor themselves. qemu-aarch64 -L would look for all files that they open in its folder first.
set(CMAKE_EXE_LINKER_FLAGS_INIT
    "-Wl,--dynamic-linker=/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1 -Wl,-rpath,/usr/aarch64-linux-gnu/lib")
set(CMAKE_SHARED_LINKER_FLAGS_INIT -Wl,-rpath,/usr/aarch64-linux-gnu/lib)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -Wl,-rpath,/usr/aarch64-linux-gnu/lib)

# Tools come from the build machine. So do the headers of the CUDA toolkit, which are the same for all processors; the simulator stands
# for its libraries. CMake looks for libraries of the processor in folders named after it, so none of the build machine are found.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
