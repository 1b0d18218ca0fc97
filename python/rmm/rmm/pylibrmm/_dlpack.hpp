// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/_run_python.hpp"

#include <Python.h>

#include <cstddef>
#include <cstdint>

/// @file
/// DLPack, the protocol by which array libraries share memory. It defines the layout of these structures.

namespace rmm_python {

struct dl_device {
  std::int32_t type;
  std::int32_t id;
};

struct dl_type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct dl_tensor {
  void* data;
  dl_device device;
  std::int32_t ndim;
  dl_type type;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

/// The content of capsules named "dltensor".
struct dl_managed {
  dl_tensor tensor;
  void* owner;
  void (*deleter)(dl_managed*);
};

/// The content of capsules named "dltensor_versioned".
struct dl_managed_versioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* owner;
  void (*deleter)(dl_managed_versioned*);
  std::uint64_t flags;
  dl_tensor tensor;
};

inline constexpr std::int32_t dl_cpu      = 1;
inline constexpr std::int32_t dl_cuda     = 2;
inline constexpr std::uint8_t dl_unsigned = 1;
inline constexpr std::uint64_t dl_is_copied =
  2;  // a flag: the memory is a copy that the producer made for the consumer
inline constexpr char const* dl_name         = "dltensor";
inline constexpr char const* dl_used_name    = "used_dltensor";
inline constexpr char const* dl_v1_name      = "dltensor_versioned";
inline constexpr char const* dl_v1_used_name = "used_dltensor_versioned";

/// A managed tensor of bytes, with its shape and strides. It keeps the Python object alive that owns the memory.
template <class Managed>
struct exported_bytes {
  Managed managed{};
  std::int64_t size{};
  std::int64_t stride{1};

  exported_bytes(PyObject* owner, void* data, std::size_t bytes, int device) : size{static_cast<std::int64_t>(bytes)}
  {
    managed.tensor  = {data, {dl_cuda, device}, 1, {dl_unsigned, 8, 1}, &size, &stride, 0};
    managed.owner   = Py_NewRef(owner);
    managed.deleter = [](Managed* self) {
      auto* const exported = reinterpret_cast<exported_bytes*>(self);  // `managed` is the first member
      if (Py_IsInitialized() != 0) {
        run_python([&] {
          auto const state = PyGILState_Ensure();
          Py_DECREF(static_cast<PyObject*>(self->owner));
          PyGILState_Release(state);
        });
      }
      delete exported;
    };
  }
};

/// Destroys the tensor of a capsule, unless a consumer took it.
template <class Managed>
void end_capsule(PyObject* capsule, char const* name)
{
  if (PyCapsule_IsValid(capsule, name) == 0) { return; }
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter != nullptr) { managed->deleter(managed); }
}

/// Returns a new capsule that owns a tensor. On failure, destroys the tensor and returns null with an exception set.
template <class Managed>
[[nodiscard]] PyObject* make_capsule(Managed& managed, char const* name, PyCapsule_Destructor destructor)
{
  auto* const capsule = PyCapsule_New(&managed, name, destructor);
  if (capsule == nullptr) { managed.deleter(&managed); }
  return capsule;
}

/// Returns a new capsule with `bytes` bytes of device memory that `owner` keeps alive; null, with an exception set, on failure. Only a
/// versioned capsule tells whether the memory is a copy. Throws std::bad_alloc.
[[nodiscard]] inline PyObject* export_bytes(
  PyObject* owner, void* data, std::size_t bytes, int device, bool versioned, bool is_copy)
{
  if (versioned) {
    auto& managed = (new exported_bytes<dl_managed_versioned>{owner, data, bytes, device})->managed;
    managed.major = 1;
    managed.flags = is_copy ? dl_is_copied : 0;
    return make_capsule(
      managed, dl_v1_name, [](PyObject* capsule) { end_capsule<dl_managed_versioned>(capsule, dl_v1_name); });
  }
  auto& managed = (new exported_bytes<dl_managed>{owner, data, bytes, device})->managed;
  return make_capsule(managed, dl_name, [](PyObject* capsule) { end_capsule<dl_managed>(capsule, dl_name); });
}

/// Returns the tensor in a capsule of either kind; null if the object is not such a capsule, or a consumer took the tensor.
[[nodiscard]] inline dl_tensor const* tensor_in(PyObject* capsule)
{
  if (PyCapsule_IsValid(capsule, dl_v1_name) != 0) {
    auto* const managed = static_cast<dl_managed_versioned*>(PyCapsule_GetPointer(capsule, dl_v1_name));
    return managed->major == 1 ? &managed->tensor : nullptr;
  }
  if (PyCapsule_IsValid(capsule, dl_name) != 0) {
    return &static_cast<dl_managed*>(PyCapsule_GetPointer(capsule, dl_name))->tensor;
  }
  return nullptr;
}

/// Returns the size of a tensor in bytes; -1 if it is not contiguous in row-major order.
[[nodiscard]] inline std::int64_t contiguous_bytes(dl_tensor const& tensor)
{
  std::int64_t elements = 1;
  bool is_contiguous    = true;
  for (std::int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.strides != nullptr && tensor.shape[i] != 1 && tensor.strides[i] != elements) { is_contiguous = false; }
    elements *= tensor.shape[i];
  }
  auto const bits = std::int64_t{tensor.type.bits} * tensor.type.lanes;
  return is_contiguous || elements == 0 ? (elements * bits + 7) / 8 : -1;
}

}  // namespace rmm_python
