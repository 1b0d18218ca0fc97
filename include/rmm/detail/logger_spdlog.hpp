// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// RMM_HAS_SPDLOG: whether headers use spdlog. Define RMM_WITHOUT_SPDLOG to ignore an installed spdlog.

#if defined(RMM_WITHOUT_SPDLOG)
#define RMM_HAS_SPDLOG 0
#elif __has_include(<spdlog/spdlog.h>)
#define RMM_HAS_SPDLOG 1
#else
#define RMM_HAS_SPDLOG 0
#endif
