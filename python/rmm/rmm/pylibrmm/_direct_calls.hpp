// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstring>

/// @file
/// Calls of a class without a tuple and a dict of the arguments, which take longer than to allocate.
///
/// A class has a field for a function that is called directly, as CPython's own classes do. In the stable ABI it can be set from Python
/// 3.14 on (`Py_tp_vectorcall`), and this package supports older ones. So the place of the field is found by what the interpreter reads
/// from it. Where it is not found, calls do what they did.

namespace rmm_python {

/// As `vectorcallfunc` of CPython: the names of the last arguments are in `names`, or `names` is null.
using direct_call = PyObject* (*)(PyObject* cls, PyObject* const* arguments, std::size_t count, PyObject* names);

/// Returns the number of arguments without names, of the `count` that CPython passes.
constexpr std::size_t positional_arguments(std::size_t count)
{
  return count & (~std::size_t{} >> 1U);  // the highest bit tells whether arguments[-1] may be changed
}

/// Fills `tuple` and `dict` with the arguments of a direct call. Returns false, with an exception set, on failure.
inline bool sort_arguments(PyObject* tuple, PyObject* dict, PyObject* const* arguments, PyObject* names)
{
  auto const positional = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < positional; ++i) {
    Py_INCREF(arguments[i]);
    PyTuple_SetItem(tuple, i, arguments[i]);
  }
  for (Py_ssize_t i = 0; dict != nullptr && i < PyTuple_Size(names); ++i) {
    if (PyDict_SetItem(dict, PyTuple_GetItem(names, i), arguments[positional + i]) != 0) { return false; }
  }
  return true;
}

/// Calls `function` of CPython with `callable` and the arguments of a direct call in a tuple and a dict.
///
/// No destructor releases objects here: if the interpreter ends meanwhile, it ends this thread inside the call, and destructors run
/// without the GIL.
inline PyObject* call_by(
  ternaryfunc function, PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names)
{
  PyObject* result{};
  auto* const tuple = PyTuple_New(static_cast<Py_ssize_t>(positional_arguments(count)));
  auto* const dict  = names != nullptr ? PyDict_New() : nullptr;
  if (tuple != nullptr && (dict != nullptr || names == nullptr) && sort_arguments(tuple, dict, arguments, names)) {
    result = function(callable, tuple, dict);
  }
  Py_XDECREF(dict);
  Py_XDECREF(tuple);
  return result;
}

/// Calls a class as CPython does without a direct call.
inline PyObject* call_with_dict(PyObject* cls, PyObject* const* arguments, std::size_t count, PyObject* names)
{
  return call_by(reinterpret_cast<ternaryfunc>(PyType_GetSlot(&PyType_Type, Py_tp_call)), cls, arguments, count, names);
}

/// CPython's PyVectorcall_Function(), which the stable ABI has from Python 3.12 on: the function that it calls for an object, or null.
using direct_call_reader = direct_call (*)(PyObject*);

[[nodiscard]] inline direct_call direct_call_at(PyTypeObject const* cls, std::size_t offset) noexcept
{
  direct_call function{};
  std::memcpy(&function, reinterpret_cast<char const*>(cls) + offset, sizeof function);
  return function;
}

/// Returns the offset in a class at which four of CPython's classes have the function that `read` returns for them; 0 if there is none.
[[nodiscard]] inline std::size_t find_direct_call(direct_call_reader read) noexcept
{
  constexpr std::size_t least_bytes_of_a_class = 408;  // of all releases from 3.11 on
  PyTypeObject* const classes[]                = {&PyList_Type, &PyTuple_Type, &PyDict_Type, &PySet_Type};
  for (std::size_t offset = 0; offset < least_bytes_of_a_class; offset += sizeof(direct_call)) {
    bool is_found = true;
    for (auto* const each : classes) {
      auto const function = read(reinterpret_cast<PyObject*>(each));
      is_found            = is_found && function != nullptr && direct_call_at(each, offset) == function;
    }
    if (is_found) { return offset; }
  }
  return 0;
}

/// The functions that make objects of a class.
struct object_makers {
  void* new_;
  void* init;
};

[[nodiscard]] inline object_makers makers_of(PyObject* cls)
{
  auto* const type = reinterpret_cast<PyTypeObject*>(cls);
  return {PyType_GetSlot(type, Py_tp_new), PyType_GetSlot(type, Py_tp_init)};
}

/// Those of the class that was given a direct call, at that time.
inline object_makers first_makers{};

/// Whether `__new__` or `__init__` of that class have been replaced, as by a mock. A direct call would pass them over.
[[nodiscard]] inline bool is_changed(PyObject* cls)
{
  auto const now = makers_of(cls);
  return now.new_ != first_makers.new_ || now.init != first_makers.init;
}

/// Makes calls of `cls` call `function`. Calls of derived classes stay as they are. Returns whether calls are direct now. Requires the GIL.
/// Without the stable ABI Cython may have set a direct call of its own, which passes over replaced functions; it is replaced.
inline bool set_direct_call(PyObject* cls, direct_call function) noexcept
{
  auto const read = reinterpret_cast<direct_call_reader>(dlsym(RTLD_DEFAULT, "PyVectorcall_Function"));
  if (read == nullptr) { return false; }
#ifdef Py_LIMITED_API
  if (read(cls) != nullptr) { return true; }
  auto const offset = find_direct_call(read);
  if (offset == 0 || direct_call_at(reinterpret_cast<PyTypeObject*>(cls), offset) != nullptr) { return false; }
#else
  constexpr auto offset = offsetof(PyTypeObject, tp_vectorcall);
#endif
  first_makers      = makers_of(cls);
  auto* const field = reinterpret_cast<char*>(cls) + offset;
  std::memcpy(field, &function, sizeof function);
  if (read(cls) == function) { return true; }
  std::memset(field, 0, sizeof function);
  return false;
}

}  // namespace rmm_python
