// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/_direct_calls.hpp"

#include <Python.h>

#include <cstddef>
#include <string>

namespace rmm_python {

/// A function of Python that is called without a tuple of its argument. There is one, which lives as long as the process.
///
/// Cython writes functions that take a tuple, as long as the package supports Python 3.11 by the stable ABI. Requires the GIL.
class direct_function {
 public:
  using of_one_argument = PyObject* (*)(PyObject*);

  /// Makes a function with the name, docstring and module of `function`. Calls of it with one argument, which has no name, call
  /// `shortcut`, and all others `function`.
  ///
  /// Returns  a new reference; null, with an exception set, on failure.
  /// Throws   std::bad_alloc.
  [[nodiscard]] static PyObject* make(PyObject* function, of_one_argument shortcut)
  {
    auto& self              = *new direct_function{};
    PyObject* const module  = PyObject_GetAttrString(function, "__module__");
    bool const is_described = module != nullptr && set_text(self.name_, function, "__name__") &&
                              set_text(self.signature_, function, "__text_signature__") &&
                              set_text(self.docstring_, function, "__doc__");
    self.docstring_.insert(0, self.name_ + self.signature_ + "\n--\n\n");  // as `inspect.signature` reads it
    auto* const code = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call));
    self.definition_ = {self.name_.c_str(), code, METH_FASTCALL | METH_KEYWORDS, self.docstring_.c_str()};
    self.shortcut_   = shortcut;
    self.function_   = function;
    Py_INCREF(function);
    made_                = &self;
    PyObject* const made = is_described ? PyCFunction_NewEx(&self.definition_, nullptr, module) : nullptr;
    Py_XDECREF(module);
    return made;
  }

 private:
  /// Sets `text` to an attribute of `object` that is a string. Returns false, with an exception set, on failure.
  [[nodiscard]] static bool set_text(std::string& text, PyObject* object, char const* attribute)
  {
    Py_ssize_t size{};
    PyObject* const value  = PyObject_GetAttrString(object, attribute);
    char const* const utf8 = value == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(value, &size);
    if (utf8 != nullptr) { text.assign(utf8, static_cast<std::size_t>(size)); }
    Py_XDECREF(value);
    return utf8 != nullptr;
  }

  static PyObject* call(PyObject* /* module */, PyObject* const* arguments, Py_ssize_t count, PyObject* names)
  {
    if (count == 1 && names == nullptr) { return made_->shortcut_(arguments[0]); }
    return call_by(&PyObject_Call, made_->function_, arguments, static_cast<std::size_t>(count), names);
  }

  static inline direct_function* made_{};

  std::string name_;
  std::string signature_;
  std::string docstring_;
  PyMethodDef definition_{};
  PyObject* function_{};
  of_one_argument shortcut_{};
};

}  // namespace rmm_python
