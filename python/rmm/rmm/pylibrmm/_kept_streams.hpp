// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

namespace rmm_python {

/// Objects of Python, by the handle of their stream. At most 32, and none twice.
///
/// Requires the GIL. It never releases the objects by itself, because it may be destroyed after the interpreter has ended.
class kept_streams {
 public:
  /// Returns the object for a handle, a borrowed reference; null if there is none.
  [[nodiscard]] PyObject* find(cudaStream_t handle) const noexcept
  {
    for (std::size_t i = 0; i != count_; ++i) {
      if (handles_[i] == handle) { return objects_[i]; }
    }
    return nullptr;
  }

  /// Adds an object, and owns a reference to it. Returns false if the handle is there, or if there is no room.
  [[nodiscard]] bool try_add(cudaStream_t handle, PyObject* object) noexcept
  {
    if (count_ == handles_.size() || find(handle) != nullptr) { return false; }
    Py_INCREF(object);
    handles_[count_] = handle;
    objects_[count_] = object;
    ++count_;
    return true;
  }

  /// Removes an object to which nothing else refers, and whose owner of the stream has no other reference either. `owner_of` returns that
  /// owner, a borrowed reference. Returns the object, whose reference goes to the caller; null if there is none.
  template <class OwnerOf>
  [[nodiscard]] PyObject* take_unused(OwnerOf owner_of) noexcept
  {
    for (std::size_t i = 0; i != count_; ++i) {
      if (Py_REFCNT(objects_[i]) == 1 && Py_REFCNT(owner_of(objects_[i])) == 1) { return take(i); }
    }
    return nullptr;
  }

  /// Removes an object. Returns it, whose reference goes to the caller; null if there is none.
  [[nodiscard]] PyObject* take_any() noexcept { return count_ == 0 ? nullptr : take(0); }

 private:
  [[nodiscard]] PyObject* take(std::size_t i) noexcept
  {
    auto* const taken = objects_[i];
    --count_;
    handles_[i] = handles_[count_];
    objects_[i] = objects_[count_];
    return taken;
  }

  std::array<cudaStream_t, 32> handles_{};
  std::array<PyObject*, 32> objects_{};
  std::size_t count_{};
};

}  // namespace rmm_python
