// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/_run_python.hpp"

#include <Python.h>

#include <rmm/error.hpp>
#include <rmm/memory_report.hpp>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

/// @file
/// C++ exceptions that carry a Python exception from a Python function, which C++ has called, back to Python.
///
/// The classes are visible in all modules, so that one module can throw and another can catch.

namespace rmm_python {

/// Returns a shared reference to a Python object. Any thread may drop it. The caller holds the GIL.
[[nodiscard]] inline std::shared_ptr<PyObject> share_python_object(PyObject* object)
{
  return {Py_NewRef(object), [](PyObject* owned) {
            if (Py_IsInitialized() == 0) { return; }
            run_python([&] {
              auto const state = PyGILState_Ensure();
              Py_DECREF(owned);
              PyGILState_Release(state);
            });
          }};
}

/// The base of C++ exceptions that carry a Python exception.
class [[gnu::visibility("default")]] carried_exception
{
 public:
  explicit carried_exception(std::shared_ptr<PyObject> object) noexcept : object_{std::move(object)} {}
  virtual ~carried_exception()                           = default;
  carried_exception(carried_exception const&)            = default;
  carried_exception& operator=(carried_exception const&) = default;

  [[nodiscard]] PyObject* object() const noexcept { return object_.get(); }

 private:
  std::shared_ptr<PyObject> object_;
};

/// Carries a MemoryError.
class [[gnu::visibility("default")]] carried_memory_error final : public rmm::out_of_memory, public carried_exception{
  public : carried_memory_error(std::string const& text, std::shared_ptr<PyObject> object) : rmm::out_of_memory{text},
  carried_exception{std::move(object)} {}
};

/// Carries any other exception.
class [[gnu::visibility("default")]] carried_failure final : public std::runtime_error, public carried_exception{
  public : carried_failure(std::string const& text, std::shared_ptr<PyObject> object) : std::runtime_error{text},
  carried_exception{std::move(object)} {}
};

/// The result of a Python function: success, or an exception.
class python_error {
 public:
  /// Stores the exception and its text; only the text if host memory runs out. Requires the GIL.
  void note(PyObject* exception, std::pair<int, std::string> kind_and_text) noexcept
  {
    is_noted_  = true;
    is_memory_ = kind_and_text.first == 1;
    text_      = std::move(kind_and_text.second);
    try {
      object_ = share_python_object(exception);
    } catch (std::bad_alloc const&) {}
  }

  /// Throws a C++ exception that carries the stored exception, if there is one.
  void throw_if_noted() const
  {
    if (!is_noted_) { return; }
    if (object_ == nullptr) { throw rmm::out_of_memory{text_}; }
    if (is_memory_) { throw carried_memory_error{text_, object_}; }
    throw carried_failure{text_, object_};
  }

 private:
  std::shared_ptr<PyObject> object_;
  bool is_noted_{false};
  bool is_memory_{false};
  std::string text_;
};

/// Returns a new reference to the Python exception that a C++ exception, or the cause in its report, carries; null if there is none.
/// Requires the GIL.
[[nodiscard]] inline PyObject* python_cause_of(std::exception_ptr const& thrown) noexcept;

/// Returns a new reference to the Python exception that made a pool throw `error`; null if there is none. Requires the GIL.
[[nodiscard]] inline PyObject* python_cause_of(rmm::out_of_memory const& error) noexcept
{
  auto const* const report = error.report();
  return report != nullptr && report->cause != nullptr ? python_cause_of(report->cause) : nullptr;
}

inline PyObject* python_cause_of(std::exception_ptr const& thrown) noexcept
{
  try {
    std::rethrow_exception(thrown);
  } catch (carried_exception const& error) {
    return Py_NewRef(error.object());
  } catch (rmm::out_of_memory const& error) {
    return python_cause_of(error);
  } catch (...) {
    return nullptr;
  }
}

}  // namespace rmm_python
