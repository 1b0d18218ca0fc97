// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace rmm_python {

/// Gives the class of `object` a reference, if it is or derives from a static type. Each root of a hierarchy of classes that others can
/// cimport calls this once for an object.
///
/// A class that another project derives in Cython is a static type, whose objects hold no reference to it; and CPython gives back that to
/// a Python class which derives from it. But as the classes of this package are heap types, as the stable ABI demands, the code of Cython
/// gives back another one at the end of each object.
inline void reference_static_type(PyObject* object)
{
#if CYTHON_USE_TYPE_SPECS
  auto* const kind = Py_TYPE(object);
  for (auto* each = kind; each != nullptr && each != &PyBaseObject_Type;) {
    if ((PyType_GetFlags(each) & Py_TPFLAGS_HEAPTYPE) == 0) {
      Py_INCREF(reinterpret_cast<PyObject*>(kind));
      return;
    }
    each = static_cast<PyTypeObject*>(PyType_GetSlot(each, Py_tp_base));
  }
#endif
}

}  // namespace rmm_python
