// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/_run_python.hpp"

#include <Python.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace rmm_python {

/// Python objects that a resource of C++ calls, and that the resource's object in Python holds.
///
/// As long as that object is there C++ has no references of its own, so the garbage collector sees them all: it can collect an
/// object that one of the functions refers to. It has them
///  - from own() on, which is called when the object of Python ends, or holds others, and the resource may not end with it;
///  - while something that was allocated is live: the garbage collector empties functions of a cycle before it ends the objects
///    that would call them to give their memory back.
///
/// All functions but the destructor need the GIL, and so are one at a time.
class lent_callables {
 public:
  explicit lent_callables(PyObject* first, PyObject* second = nullptr) noexcept : first_{first}, second_{second} {}

  lent_callables(lent_callables const&)            = delete;
  lent_callables& operator=(lent_callables const&) = delete;

  ~lent_callables()
  {
    if ((!owns_ && live_ == 0) || Py_IsInitialized() == 0) { return; }
    run_python([this] {
      auto const state = PyGILState_Ensure();
      if (std::exchange(owns_, false)) { drop(); }
      if (std::exchange(live_, 0) != 0) { drop(); }
      PyGILState_Release(state);
    });
  }

  [[nodiscard]] PyObject* first() const noexcept { return first_; }
  [[nodiscard]] PyObject* second() const noexcept { return second_; }

  void own() noexcept
  {
    if (!std::exchange(owns_, true)) { hold(); }
  }

  void note_allocated() noexcept
  {
    if (live_++ == 0) { hold(); }
  }

  /// May end what the functions refer to. Ignored if nothing is live.
  void note_deallocated() noexcept
  {
    if (live_ != 0 && --live_ == 0) { drop(); }
  }

 private:
  void hold() const noexcept
  {
    Py_INCREF(first_);
    Py_XINCREF(second_);
  }

  void drop() const noexcept
  {
    auto* const second = second_;  // the first one's end may be that of this
    Py_DECREF(first_);
    Py_XDECREF(second);
  }

  PyObject* first_;
  PyObject* second_;
  bool owns_{false};
  std::size_t live_{0};
};

using lent_ptr = std::shared_ptr<lent_callables>;

/// The functions of an object of Python, which holds them; `second` may be null.
[[nodiscard]] inline lent_ptr lend(PyObject* first, PyObject* second)
{
  return std::make_shared<lent_callables>(first, second);
}

}  // namespace rmm_python
