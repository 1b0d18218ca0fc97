// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Symbols that jump to a function which is found when the library is loaded, whatever its arguments are: for the libraries that have the
/// names of NVIDIA's (libcuda.so.1, libcudart.so.N).

// A jump through `slot`. The argument registers stay as the caller has set them.
#if defined(__x86_64__)
#define CUDASIM_JUMP(slot) "jmp *" #slot "(%rip)\n"
#elif defined(__aarch64__)
#define CUDASIM_JUMP(slot) "adrp x16, " #slot "\nldr x16, [x16, :lo12:" #slot "]\nbr x16\n"
#else
#error "The simulator's libcuda.so.1 and libcudart.so are written for x86-64 and 64-bit Arm."
#endif

/// Defines `symbol`, a text, which jumps to the function whose address is in `slot`. Whoever expands this pastes and quotes the names itself:
/// headers of CUDA define some of them as macros.
#define CUDASIM_DEFINE_JUMP(slot, symbol)                                                           \
  extern "C" {                                                                                      \
  [[gnu::visibility("hidden"), gnu::used]] void* slot = nullptr;                                    \
  }                                                                                                 \
  __asm__(".pushsection .text\n.p2align 4\n.globl " symbol "\n.type " symbol ", @function\n" symbol \
          ":\n" CUDASIM_JUMP(slot) ".size " symbol ", .-" symbol "\n.popsection");
