// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/text_sink.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/logger_sinks.hpp>
#include <rmm/detail/logger_spdlog.hpp>
#include <rmm/mr/detail/allocation_log.hpp>
#include <rmm/mr/detail/logging_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>  // IWYU pragma: export
#include <rmm/resource_ref.hpp>

#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// The destination of an allocation log: a file, a stream, or sinks of a logging library.
class log_destination {
 public:
  /// The file is created, or emptied, when the log is opened.
  template <class Filename, std::enable_if_t<std::is_convertible_v<Filename const&, std::string>, int> = 0>
  log_destination(Filename const& filename) : filename_{filename}
  {}

  /// The stream has to outlive the log.
  log_destination(std::ostream& stream) : sinks_{std::make_shared<rmm::detail::stream_sink>(stream)} {}

  log_destination(std::initializer_list<rapids_logger::sink_ptr> sinks)
  {
    using text_sink = rmm::detail::rapids_logger_text_sink<rapids_logger::logger>;
    for (auto const& sink : sinks) { sinks_.push_back(std::make_shared<text_sink>(sink)); }
  }

#if RMM_HAS_SPDLOG
  log_destination(std::initializer_list<spdlog::sink_ptr> sinks)
  {
    for (auto const& sink : sinks) { sinks_.push_back(std::make_shared<rmm::detail::spdlog_text_sink>(sink)); }
  }
#endif

  [[nodiscard]] std::unique_ptr<allocation_log> open(bool auto_flush) &&
  {
    if (filename_) {
      using rmm::detail::file_sink;
      sinks_.push_back(std::make_shared<file_sink>(*filename_, file_sink::mode::truncate));
    }
    return std::make_unique<allocation_log>(std::move(sinks_), auto_flush);
  }

 private:
  std::optional<std::string> filename_;
  allocation_log::sink_list sinks_;
};

}  // namespace detail

/// An adaptor that writes each allocation, failed allocation and deallocation to a CSV file. Use it to see what a program allocates, and
/// to replay it. trace_resource_adaptor is faster and records more.
///
/// Columns: number of the thread, local time of day, action, pointer, size, stream. Lines are in the order of the calls.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::logging_resource_adaptor logged{&cuda, "example_allocations.csv"};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, logged};
/// @endcode
/// Threads  thread-safe if upstream is.
template <class Upstream>
class logging_resource_adaptor final : public detail::logging_adaptor<logging_resource_adaptor<Upstream>, Upstream> {
 public:
  /// `destination`  the name of a file, a `std::ostream`, or `{sink, ...}` with sinks of rapids_logger or spdlog. The adaptor creates or
  ///                empties the file, and changes the pattern of the sinks. Default: the file that RMM_LOG_FILE names.
  /// `auto_flush`   with true, each line is flushed immediately; with false, flush() and the destructor flush.
  /// Throws logic_error if `upstream` is null, or if there is no destination and RMM_LOG_FILE is not set. Throws std::runtime_error if
  /// the file cannot be opened.
  logging_resource_adaptor(Upstream* upstream,
                           detail::log_destination destination = get_default_filename(),
                           bool auto_flush                     = false)
    : logging_resource_adaptor::logging_adaptor{upstream, [&] { return std::move(destination).open(auto_flush); }}
  {}

  logging_resource_adaptor(device_async_resource_ref upstream,
                           detail::log_destination destination = get_default_filename(),
                           bool auto_flush                     = false)
    : logging_resource_adaptor::logging_adaptor{upstream, [&] { return std::move(destination).open(auto_flush); }}
  {}

  /// Returns the value of the environment variable RMM_LOG_FILE. Throws logic_error if it is not set or empty.
  static std::string get_default_filename()
  {
    auto const* const name = std::getenv("RMM_LOG_FILE");
    RMM_EXPECTS(name != nullptr && *name != '\0',
                "The allocation log file name is missing: pass one, or set RMM_LOG_FILE.");
    return name;
  }
};

logging_resource_adaptor(device_async_resource_ref, detail::log_destination = "", bool = false)
  ->logging_resource_adaptor<device_memory_resource>;

/// Returns a logging_resource_adaptor that writes to a file. For code that does not deduce class template arguments.
template <class Upstream>
logging_resource_adaptor<Upstream> make_logging_adaptor(
  Upstream* upstream,
  std::string const& filename = logging_resource_adaptor<Upstream>::get_default_filename(),
  bool auto_flush             = false)
{
  return {upstream, filename, auto_flush};
}

/// Returns a logging_resource_adaptor that writes to a stream.
template <class Upstream>
logging_resource_adaptor<Upstream> make_logging_adaptor(Upstream* upstream,
                                                        std::ostream& stream,
                                                        bool auto_flush = false)
{
  return {upstream, stream, auto_flush};
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
