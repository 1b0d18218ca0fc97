// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <new>
#include <stdexcept>
#include <string>

namespace RMM_NAMESPACE {

/// Thrown when the caller broke a precondition: an argument or the order of calls is wrong.
struct logic_error : public std::logic_error {
  using std::logic_error::logic_error;
};

/// Thrown when a call of the CUDA runtime or driver failed. The message names the error.
struct cuda_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown when an allocation failed. Catch out_of_memory instead where only missing memory is handled.
///
/// Two kinds of failures are other exceptions: plain std::bad_alloc if host memory runs out, and logic_error if the caller broke a
/// precondition, such as an allocation from a paused pool.
class bad_alloc : public std::bad_alloc {
 public:
  /// what() is `std::bad_alloc: ` and `message`.
  bad_alloc(char const* message) : bad_alloc{std::string{message}} {}
  bad_alloc(std::string const& message) : text_{std::string{std::bad_alloc::what()} + ": " + message} {}

  /// `std::bad_alloc: ` and the message.
  [[nodiscard]] char const* what() const noexcept override { return text_.what(); }

 private:
  std::runtime_error text_;  // copies of it share one string: copying an exception must not throw
};

struct memory_report;

namespace detail {

/// A reference-counted memory_report. An interface, so that this header need not include the report.
class shared_report {
 public:
  virtual void acquire() const noexcept                           = 0;
  virtual void release() const noexcept                           = 0;  ///< the last call destroys the report
  [[nodiscard]] virtual memory_report const& get() const noexcept = 0;

 protected:
  ~shared_report() = default;
};

}  // namespace detail

/// Thrown when an allocation failed because there is not enough memory. A pool also throws it if its upstream failed for another reason:
/// report()->cause is then the exception of upstream. But if CUDA failed because the process can use no device, a pool throws another
/// bad_alloc.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::limiting_resource_adaptor small{&cuda, 1024};
/// try {
///   rmm::device_buffer const buffer{1 << 20, rmm::cuda_stream_default, small};
/// } catch (rmm::out_of_memory const& e) {
///   std::puts(e.what());
/// }
/// @endcode
class out_of_memory : public bad_alloc {
 public:
  /// what() is `std::bad_alloc: out_of_memory: ` and `message`. report() is null.
  out_of_memory(char const* message) : out_of_memory{std::string{message}} {}
  out_of_memory(std::string const& message) : bad_alloc{"out_of_memory: " + message} {}
  /// Acquires `report`, and the destructor releases it. report() then returns its memory_report.
  out_of_memory(std::string const& message, detail::shared_report const& report)
    : bad_alloc{"out_of_memory: " + message}, report_{&report}
  {
    report_->acquire();
  }

  out_of_memory(out_of_memory const& other) noexcept : bad_alloc{other}, report_{other.report_}
  {
    if (report_ != nullptr) { report_->acquire(); }
  }
  out_of_memory& operator=(out_of_memory const& other) noexcept
  {
    if (other.report_ != nullptr) { other.report_->acquire(); }
    if (report_ != nullptr) { report_->release(); }
    bad_alloc::operator=(other);
    report_ = other.report_;
    return *this;
  }
  ~out_of_memory() override
  {
    if (report_ != nullptr) { report_->release(); }
  }

  /// Returns the report of the failure: how much memory there was, and what was tried. Null unless a pool, a cache, an arena, a fixed-size
  /// resource or a reservation threw this. Also null if host memory ran out while the report was made.
  ///
  /// Valid as long as any copy of the exception exists. what() includes its text. rmm/memory_report.hpp defines the type.
  [[nodiscard]] memory_report const* report() const noexcept { return report_ != nullptr ? &report_->get() : nullptr; }

 private:
  detail::shared_report const* report_{nullptr};
};

/// For programs that throw or catch an exception of this name. The library never throws it. For a wrong argument it throws logic_error, and
/// for a wrong text, such as a configuration or an amount of memory, std::invalid_argument.
class invalid_argument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Thrown when an index is outside the range that the call accepts.
class out_of_range : public std::out_of_range {
 public:
  using std::out_of_range::out_of_range;
};

}  // namespace RMM_NAMESPACE
