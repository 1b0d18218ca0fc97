// SPDX-License-Identifier: Apache-2.0
#pragma once
#pragma GCC system_header  // for #include_next

/// @file
/// The header of the library rapids_logger where that is installed, whatever the order of include folders; else a small logger of
/// RMM's under its names, which programs written against RMM 25.02 and later use. RMM_PROVIDES_RAPIDS_LOGGER is defined then.

#if defined(__has_include_next)
#if __has_include_next(<rapids_logger/logger.hpp>)
#define RMM_DETAIL_HAS_RAPIDS_LOGGER
#endif
#endif

#if defined(RMM_DETAIL_HAS_RAPIDS_LOGGER)
#include_next <rapids_logger/logger.hpp>
#else
#include <rmm/detail/rapids_logger_names.hpp>
#endif
