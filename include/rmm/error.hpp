// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <new>
#include <stdexcept>
#include <string>

namespace RMM_NAMESPACE {

/// The caller broke a precondition: an argument or the order of calls is wrong.
struct logic_error : public std::logic_error {
  using std::logic_error::logic_error;
};

/// A call of the CUDA runtime failed; the message names the error.
struct cuda_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Memory could not be had, for whatever reason.
class bad_alloc : public std::bad_alloc {
 public:
  /// what() is `std::bad_alloc: ` and `message`.
  bad_alloc(char const* message) : bad_alloc{std::string{message}} {}
  bad_alloc(std::string const& message) : text_{std::string{std::bad_alloc::what()} + ": " + message} {}

  /// `std::bad_alloc: ` and the message.
  [[nodiscard]] char const* what() const noexcept override { return text_.what(); }

 private:
  std::runtime_error text_;  // for its shared string: copying an exception must not throw
};

struct memory_report;

namespace detail {

/// A memory_report that is counted, in a form that this header need not know.
class shared_report {
 public:
  virtual void acquire() const noexcept                           = 0;
  virtual void release() const noexcept                           = 0;  ///< the last one destroys it
  [[nodiscard]] virtual memory_report const& get() const noexcept = 0;

 protected:
  ~shared_report() = default;
};

}  // namespace detail

/// Memory could not be had because there is not enough of it.
class out_of_memory : public bad_alloc {
 public:
  /// what() is `std::bad_alloc: out_of_memory: ` and `message`. report() is null.
  out_of_memory(char const* message) : out_of_memory{std::string{message}} {}
  out_of_memory(std::string const& message) : bad_alloc{"out_of_memory: " + message} {}
  /// Shares `report`.
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

  /// What there was and what was tried, if a pool threw this; else null. Valid as long as any copy of the exception. The text
  /// of what() has it too. rmm/memory_report.hpp defines it.
  [[nodiscard]] memory_report const* report() const noexcept { return report_ != nullptr ? &report_->get() : nullptr; }

 private:
  detail::shared_report const* report_{nullptr};
};

/// An argument has a value that the call does not accept.
class invalid_argument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// An index or a key is not in the range that the call accepts.
class out_of_range : public std::out_of_range {
 public:
  using std::out_of_range::out_of_range;
};

}  // namespace RMM_NAMESPACE
