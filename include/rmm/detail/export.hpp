// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Visibility of symbols. Types and process-wide state have default visibility, whatever the
/// including project says, so that all shared objects of a process agree on them: one registry, and
/// exceptions that one throws and another catches.

#if defined(__GNUC__)
#define RMM_EXPORT __attribute__((visibility("default")))
#define RMM_HIDDEN __attribute__((visibility("hidden")))
#else
#define RMM_EXPORT
#define RMM_HIDDEN
#endif

/// Opens the library's namespace: `namespace RMM_NAMESPACE { ... }`. All that is declared in it is
/// exported, nested namespaces included as long as they are opened inside it.
#if defined(__clang__) && __clang_major__ < 16  // does not take the GNU spelling of an attribute in this place
#define RMM_NAMESPACE [[gnu::visibility("default")]] rmm
#else
#define RMM_NAMESPACE RMM_EXPORT rmm
#endif

/// Begins the declaration of a constexpr friend in the order of specifiers that the compiler
/// accepts.
#if defined(_MSC_VER) && !defined(__clang__)
#define RMM_CONSTEXPR_FRIEND friend constexpr
#else
#define RMM_CONSTEXPR_FRIEND constexpr friend
#endif
