// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// How a function is compiled, spelled for each compiler, and what it is compiled for.

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

/// `RMM_COMPILED_ONCE(template)` says that rmm::rmm_compiled has the members of a class template, where the file that includes it is
/// compiled with RMM_COMPILED. With expensive assertions each file compiles its own: they may be on in one file alone.
#if defined(RMM_COMPILED) && !defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
#define RMM_COMPILED_ONCE(...) extern template class __VA_ARGS__
#else
#define RMM_COMPILED_ONCE(...) static_assert(true)
#endif

/// Whether the program is made for ThreadSanitizer: 0 or 1.
#if defined(__SANITIZE_THREAD__)
#define RMM_DETAIL_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RMM_DETAIL_THREAD_SANITIZER 1
#endif
#endif
#ifndef RMM_DETAIL_THREAD_SANITIZER
#define RMM_DETAIL_THREAD_SANITIZER 0
#endif
