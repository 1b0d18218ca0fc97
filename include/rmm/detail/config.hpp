// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// How a function is compiled, spelled for each compiler.

#if defined(__GNUC__)
/// Rarely called: kept out of line, away from the hot code, and branches to it are taken to be
/// unlikely.
#define RMM_COLD __attribute__((cold, noinline))
/// Kept out of line: the short path of its caller then needs no stack frame.
#define RMM_OUT_OF_LINE __attribute__((noinline))
/// Compiled into each caller. For functions whose meaning depends on the default-stream mode of the
/// including file (CUDA_API_PER_THREAD_DEFAULT_STREAM): one program may hold files of both modes,
/// and the linker would merge them.
#define RMM_ALWAYS_INLINE __attribute__((always_inline)) inline
/// Has what it calls compiled into it. For short hot functions, where the compiler would decide by the size of all others.
#define RMM_FLATTEN __attribute__((flatten))
#else
#define RMM_COLD
#define RMM_OUT_OF_LINE
#define RMM_ALWAYS_INLINE inline
#define RMM_FLATTEN
#endif
