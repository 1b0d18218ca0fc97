// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/plain_logger.hpp>

/// @file
/// The small logger under the names of the library rapids_logger, which is not installed.

/// Defined if these names are RMM's and not the library's.
#define RMM_PROVIDES_RAPIDS_LOGGER

namespace rapids_logger {

using ::rmm::detail::plain_logger::basic_file_sink_mt;
using ::rmm::detail::plain_logger::callback_sink_mt;
using ::rmm::detail::plain_logger::flush_callback_t;
using ::rmm::detail::plain_logger::level_enum;
using ::rmm::detail::plain_logger::log_callback_t;
using ::rmm::detail::plain_logger::log_level_setter;
using ::rmm::detail::plain_logger::logger;
using ::rmm::detail::plain_logger::null_sink_mt;
using ::rmm::detail::plain_logger::ostream_sink_mt;
using ::rmm::detail::plain_logger::sink;
using ::rmm::detail::plain_logger::sink_ptr;
using ::rmm::detail::plain_logger::sink_vector;
using ::rmm::detail::plain_logger::stderr_sink_mt;

}  // namespace rapids_logger
