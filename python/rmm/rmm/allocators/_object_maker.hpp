// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace rmm_python {

/// Makes objects of a Python class as calling the class does, but faster for classes without a metaclass of their own.
///
/// Requires the GIL. It never releases the class, because it may be destroyed after the interpreter has ended.
class object_maker {
 public:
  /// Sets the class.
  void set(PyObject* cls)
  {
    Py_INCREF(cls);
    Py_XDECREF(class_);
    class_              = cls;
    bool const is_usual = Py_IS_TYPE(cls, &PyType_Type);  // another metaclass may change what a call does
    new_                = is_usual ? reinterpret_cast<newfunc>(PyType_GetSlot(type(), Py_tp_new)) : nullptr;
    init_               = is_usual ? reinterpret_cast<initproc>(PyType_GetSlot(type(), Py_tp_init)) : nullptr;
  }

  /// Returns class(*args), a new reference; null, with an exception set, on failure.
  [[nodiscard]] PyObject* make(PyObject* args) const
  {
    if (new_ == nullptr || init_ == nullptr) { return PyObject_Call(class_, args, nullptr); }
    auto* const made = new_(type(), args, nullptr);
    if (made != nullptr && PyObject_TypeCheck(made, type()) && init_(made, args, nullptr) < 0) {
      Py_DECREF(made);
      return nullptr;
    }
    return made;
  }

 private:
  [[nodiscard]] PyTypeObject* type() const noexcept { return reinterpret_cast<PyTypeObject*>(class_); }

  PyObject* class_{};
  newfunc new_{};
  initproc init_{};
};

}  // namespace rmm_python
