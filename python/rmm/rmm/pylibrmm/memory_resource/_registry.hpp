// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_registered_owners.hpp"
#include "pylibrmm/_run_python.hpp"
#include "pylibrmm/memory_resource/_python_exception.hpp"

#include <Python.h>

#include <rmm/detail/cuda/context_device.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/mr/device_memory_resource.hpp>

namespace rmm_python {

/// Returns the number of the current device. Throws cuda_error if there is none.
[[nodiscard]] inline int current_device()
{
  int device{};
  if (rmm::detail::sees_one_device() || rmm::detail::find_device_of_current_context(device)) { return device; }
  return rmm::detail::known_current_device();
}

/// Registers the resource of a Python object. The object lives until its memory is freed. The caller holds the GIL.
inline void register_resource(int device, rmm::mr::device_memory_resource* resource, PyObject* object)
{
  owners().set(device, resource_ptr{share_python_object(object), resource});
}

/// Registers the initial resource.
inline void unregister_resource(int device) { owners().set(device, nullptr); }

}  // namespace rmm_python
