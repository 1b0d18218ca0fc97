// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// <rapids_logger/logger.hpp>, also where an installation of RMM leaves that file out.

#if __has_include(<rapids_logger/logger.hpp>)
#include <rapids_logger/logger.hpp>  // IWYU pragma: export
#else
#include <rmm/detail/rapids_logger_names.hpp>  // IWYU pragma: export
#endif
