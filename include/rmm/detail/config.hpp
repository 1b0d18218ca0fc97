// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Attributes that control how functions are compiled, and properties of the build.

#if defined(__GNUC__)
/// For functions that are rarely called: they stay out of line, away from hot code, and branches to them count as unlikely.
#define RMM_COLD __attribute__((cold, noinline))
/// Keeps a function out of line, so that the short path of its caller, the code for the usual case, needs no stack frame.
#define RMM_OUT_OF_LINE __attribute__((noinline))
/// Inlines a function into each caller. For functions on short paths, and for functions whose meaning depends on the default-stream mode of
/// the including file (CUDA_API_PER_THREAD_DEFAULT_STREAM). A program may have files of both modes: the linker would keep only one copy of
/// such a function, which would be wrong in files of the other mode.
#define RMM_ALWAYS_INLINE __attribute__((always_inline)) inline
/// Inlines all calls inside a function. For short hot functions, in which the compiler's choice would depend on the rest of the file.
#define RMM_FLATTEN __attribute__((flatten))
#else
#define RMM_COLD
#define RMM_OUT_OF_LINE
#define RMM_ALWAYS_INLINE inline
#define RMM_FLATTEN
#endif

/// `RMM_COMPILED_ONCE(specialization)`: in files compiled with RMM_COMPILED, leaves the members of a specialization of a class template to
/// cmake/rmm_compiled.cpp. The target rmm::rmm_compiled adds that file to the program. Files with expensive assertions compile the members
/// themselves, because other files may lack these assertions. Members that are defined in the class are compiled all the same, because g++
/// may inline them. Virtual ones are compiled even if nobody calls them. So define slow ones after the class.
#if defined(RMM_COMPILED) && !defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
#define RMM_COMPILED_ONCE(...) extern template class __VA_ARGS__
#else
#define RMM_COMPILED_ONCE(...) static_assert(true)
#endif

/// 1 if the file is compiled for ThreadSanitizer, else 0. A build may define the macro itself. Some models in tests/models define it as 0:
/// they use -fsanitize=thread only to make the compiler add a call at each memory access, and receive these calls themselves, without
/// ThreadSanitizer.
#if defined(RMM_DETAIL_THREAD_SANITIZER)
#elif defined(__SANITIZE_THREAD__)
#define RMM_DETAIL_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RMM_DETAIL_THREAD_SANITIZER 1
#endif
#endif
#ifndef RMM_DETAIL_THREAD_SANITIZER
#define RMM_DETAIL_THREAD_SANITIZER 0
#endif
