// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/_gil.hpp"

#include <Python.h>

#include <rmm/detail/cuda/event.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace rmm_python {

/// The handle of a stream; null if it is not known. The identity, as of rmm::detail::stream_identity(); 0 if it is not known.
struct known_stream {
  cudaStream_t handle{};
  std::uint64_t identity{};
};

/// A table of Python objects that are streams, with what does not change while such an object lives: its handle, and the identity of the
/// stream if the object owns it.
///
/// The table does not keep the objects alive. A record has a weak reference: a new object at the same address is another one. Records of
/// objects that have ended are replaced, and those of others rarely.
///
/// Requires the GIL, and has no records where Python has none. It never releases the last weak references, because it may be destroyed
/// after the interpreter has ended.
class stream_records {
 public:
  /// Returns what is recorded of a stream, to which the caller has a reference.
  [[nodiscard]] known_stream find(PyObject* stream) const noexcept
  {
    if (!has_gil()) { return {}; }
    auto const* const first = &records_[first_of(stream)];
    for (auto const* each = first; each != first + ways; ++each) {
      if (each->stream == stream && is_alive(*each)) { return each->known; }
    }
    return {};
  }

  /// Whether add() may record a stream that find() has not found. At times it may even if that displaces another one that lives.
  [[nodiscard]] bool has_place_for(PyObject* stream) noexcept
  {
    return has_gil() && (free_record(stream) != nullptr || ++misses_ % misses_a_displacement == 0);
  }

  /// Records a stream. Asks CUDA for its identity if `owns_handle` is set: then no other stream gets the handle while the object lives.
  /// Returns what is known of the stream now. A stream that captures is not recorded, because CUDA does not tell its identity.
  [[nodiscard]] known_stream add(PyObject* stream, cudaStream_t handle, bool owns_handle) noexcept
  {
    bool const is_owned = owns_handle && !rmm::detail::is_default_stream(handle);
    known_stream const known{handle, is_owned ? rmm::detail::stream_identity(handle) : 0};
    if (is_owned && known.identity == 0) { return known; }
    auto* const reference = PyWeakref_NewRef(stream, nullptr);  // may run Python code, which may add a stream
    if (reference == nullptr) {
      PyErr_Clear();
      return known;
    }
    auto* const free = free_record(stream);
    auto& record     = free != nullptr ? *free : records_[first_of(stream) + (misses_ / misses_a_displacement) % ways];
    auto* const replaced = record.reference;
    record               = {stream, reference, known};
    Py_XDECREF(replaced);
    return known;
  }

 private:
  static constexpr std::size_t ways                  = 2;  // records in which a stream can lie
  static constexpr unsigned set_bits                 = 5;
  static constexpr std::size_t misses_a_displacement = 256;

  struct record {
    PyObject* stream{};     // only to be compared
    PyObject* reference{};  // a weak reference to it
    known_stream known;
  };

  [[nodiscard]] static std::size_t first_of(PyObject* stream) noexcept
  {
    constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15;
    auto const address                   = std::uint64_t{reinterpret_cast<std::uintptr_t>(stream)};
    return ways * static_cast<std::size_t>((address * golden_ratio) >> (64 - set_bits));
  }

  /// Whether the object still lives for which the record was made.
  [[nodiscard]] static bool is_alive(record const& each) noexcept
  {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored \
  "-Wdeprecated-declarations"  // the stable ABI of Python 3.11 lacks its successor, PyWeakref_GetRef
    return each.reference != nullptr && PyWeakref_GetObject(each.reference) == each.stream;
#pragma GCC diagnostic pop
  }

  /// Returns a record for the stream that is unused or whose object has ended; null if there is none.
  [[nodiscard]] record* free_record(PyObject* stream) noexcept
  {
    auto* const first = &records_[first_of(stream)];
    for (auto* each = first; each != first + ways; ++each) {
      if (!is_alive(*each)) { return each; }
    }
    return nullptr;
  }

  std::array<record, ways << set_bits> records_{};
  std::size_t misses_{};
};

}  // namespace rmm_python
