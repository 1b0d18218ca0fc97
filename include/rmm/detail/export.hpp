// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Visibility of symbols. Types and process-wide state have default visibility, whatever the options of the including project, so that
/// shared objects of a process can catch each other's exceptions. detail/base/process_wide.hpp says how they find the one registry.

#if defined(__GNUC__)
#define RMM_EXPORT __attribute__((visibility("default")))
#define RMM_HIDDEN __attribute__((visibility("hidden")))
#else
#define RMM_EXPORT
#define RMM_HIDDEN
#endif

/// Opens the library's namespace: `namespace RMM_NAMESPACE { ... }`. Exports all declarations in it and in nested namespaces, except those
/// marked RMM_HIDDEN.
#if defined(__clang__) && __clang_major__ < 16  // rejects the GNU spelling of an attribute here
#define RMM_NAMESPACE [[gnu::visibility("default")]] rmm
#else
#define RMM_NAMESPACE RMM_EXPORT rmm
#endif

/// Begins the declaration of a constexpr friend, with the order of specifiers that the compiler accepts.
#if defined(_MSC_VER) && !defined(__clang__)
#define RMM_CONSTEXPR_FRIEND friend constexpr
#else
#define RMM_CONSTEXPR_FRIEND constexpr friend
#endif
