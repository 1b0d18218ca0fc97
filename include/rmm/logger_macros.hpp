// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// RMM_LOG_TRACE to RMM_LOG_CRITICAL: macros that write to the debug log. Without spdlog they discard their messages.

#include <rmm/detail/logger_frontend.hpp>  // IWYU pragma: export
#include <rmm/detail/logger_spdlog.hpp>

#if RMM_HAS_SPDLOG
#include <rmm/logger.hpp>  // IWYU pragma: export
#endif
