// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Includes <rapids_logger/logger.hpp>, or RMM's own logger if the installation does not have that file.

#if __has_include(<rapids_logger/logger.hpp>)
#include <rapids_logger/logger.hpp>  // IWYU pragma: export
#else
#include <rmm/detail/rapids_logger_names.hpp>  // IWYU pragma: export
#endif
