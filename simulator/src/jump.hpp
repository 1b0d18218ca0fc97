// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Symbols that jump, with any arguments, to a function that is found when the library is loaded. The libraries with
/// NVIDIA's names (libcuda.so.1, libcudart.so.N) consist of them.

// A jump through `slot`. The argument registers stay as the caller has set them.
#if defined(__x86_64__)
#define CUDASIM_JUMP(slot) "jmp *" #slot "(%rip)\n"
#elif defined(__aarch64__)
#define CUDASIM_JUMP(slot) "adrp x16, " #slot "\nldr x16, [x16, :lo12:" #slot "]\nbr x16\n"
#else
#error "The simulator's libcuda.so.1 and libcudart.so are written for x86-64 and 64-bit Arm."
#endif

/// Defines `symbol`, given as text, as a jump to the address in `slot`. The caller pastes and quotes the names because
/// headers of CUDA define some of them as macros.
#define CUDASIM_DEFINE_JUMP(slot, symbol)                                                           \
  extern "C" {                                                                                      \
  [[gnu::visibility("hidden"), gnu::used]] void* slot = nullptr;                                    \
  }                                                                                                 \
  __asm__(".pushsection .text\n.p2align 4\n.globl " symbol "\n.type " symbol ", @function\n" symbol \
          ":\n" CUDASIM_JUMP(slot) ".size " symbol ", .-" symbol "\n.popsection");
