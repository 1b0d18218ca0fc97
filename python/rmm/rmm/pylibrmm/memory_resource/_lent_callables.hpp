// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/_run_python.hpp"

#include <Python.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace rmm_python {

/// Python functions that a C++ resource calls, and that the Python object of the resource holds.
///
/// While the Python object exists, C++ has no references of its own. So the garbage collector sees all references, and can collect cycles
/// through the functions. C++ has a reference
///  - after own(), which is called when the Python object ends or gets other functions, and the resource may live longer;
///  - after finalize(), while an allocation is live. The garbage collector finalizes all objects of a cycle, then looks which of them are
///    referred to from outside, and clears the others before it destroys them. What is cleared cannot free memory any more. So a pool gives
///    unused memory back when it is finalized, and if anything is live even so, the reference keeps the cycle.
///
/// All functions except the destructor require the GIL.
class lent_callables {
 public:
  explicit lent_callables(PyObject* first, PyObject* second = nullptr) noexcept : first_{first}, second_{second} {}

  lent_callables(lent_callables const&)            = delete;
  lent_callables& operator=(lent_callables const&) = delete;

  ~lent_callables()
  {
    if ((!owns_ && !holds_for_live()) || Py_IsInitialized() == 0) { return; }
    run_python([this] {
      auto const state = PyGILState_Ensure();
      if (std::exchange(owns_, false)) { drop(); }
      if (std::exchange(is_finalized_, false) && live_ != 0) { drop(); }
      PyGILState_Release(state);
    });
  }

  [[nodiscard]] PyObject* first() const noexcept { return first_; }
  [[nodiscard]] PyObject* second() const noexcept { return second_; }

  void own() noexcept
  {
    if (!std::exchange(owns_, true)) { hold(); }
  }

  /// Called when the Python object is finalized. It may live on, but is not finalized again.
  void finalize() noexcept
  {
    if (!std::exchange(is_finalized_, true) && live_ != 0) { hold(); }
  }

  [[nodiscard]] bool has_live() const noexcept { return live_ != 0; }

  void note_allocated() noexcept
  {
    if (live_++ == 0 && is_finalized_) { hold(); }
  }

  /// Counts a deallocation. The last one may destroy the functions and what they refer to. Ignored if nothing is live.
  void note_deallocated() noexcept
  {
    if (live_ != 0 && --live_ == 0 && is_finalized_) { drop(); }
  }

 private:
  [[nodiscard]] bool holds_for_live() const noexcept { return is_finalized_ && live_ != 0; }

  void hold() const noexcept
  {
    Py_INCREF(first_);
    Py_XINCREF(second_);
  }

  void drop() const noexcept
  {
    auto* const second = second_;  // destroying the first function may destroy this object
    Py_DECREF(first_);
    Py_XDECREF(second);
  }

  PyObject* first_;
  PyObject* second_;
  bool owns_{false};
  bool is_finalized_{false};
  std::size_t live_{0};
};

using lent_ptr = std::shared_ptr<lent_callables>;

/// Lends the functions of a Python object, which holds them. `second` may be null.
[[nodiscard]] inline lent_ptr lend(PyObject* first, PyObject* second)
{
  return std::make_shared<lent_callables>(first, second);
}

}  // namespace rmm_python
