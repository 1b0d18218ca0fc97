# SPDX-License-Identifier: Apache-2.0

# Builds for 64-bit Arm on another machine, and runs the programs in an emulator. On Debian and Ubuntu:
# apt-get install g++-aarch64-linux-gnu qemu-user googletest

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)

# Programs contain the path of the Arm C library. With qemu-aarch64 -L, the emulator would look in that folder first for every file that
# a program opens.
set(CMAKE_EXE_LINKER_FLAGS_INIT
    "-Wl,--dynamic-linker=/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1 -Wl,-rpath,/usr/aarch64-linux-gnu/lib")
set(CMAKE_SHARED_LINKER_FLAGS_INIT -Wl,-rpath,/usr/aarch64-linux-gnu/lib)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -Wl,-rpath,/usr/aarch64-linux-gnu/lib)

# Tools are those of the build machine, and so are the headers of the CUDA toolkit, which are the same for all processors. The simulator
# takes the place of the toolkit's libraries. CMake looks for Arm libraries in folders named after the processor, so it finds none of
# the build machine's.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
