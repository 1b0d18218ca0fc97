// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rmm::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RMM_TEST_UNDER_SANITIZER true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RMM_TEST_UNDER_SANITIZER true
#endif
#endif
#ifndef RMM_TEST_UNDER_SANITIZER
#define RMM_TEST_UNDER_SANITIZER false
#endif

/// Whether operator new ends the program when host memory runs out, as under sanitizers, instead of throwing.
inline constexpr bool exhaustion_ends_program = RMM_TEST_UNDER_SANITIZER;

/// Whether times of calls mean anything in this build. Sanitizers, -O0 and expensive assertions make them slow. With
/// RMM_TEST_LIBRARY_IS_OPTIMIZED, -O0 applies to the tests, and not to the functions of the library.
#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS) || !(defined(__OPTIMIZE__) || defined(RMM_TEST_LIBRARY_IS_OPTIMIZED))
inline constexpr bool tells_costs = false;
#else
inline constexpr bool tells_costs = !RMM_TEST_UNDER_SANITIZER;
#endif

}  // namespace rmm::test
