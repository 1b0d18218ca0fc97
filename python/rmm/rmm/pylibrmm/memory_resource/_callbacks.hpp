// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/_run_python.hpp"
#include "pylibrmm/memory_resource/_lent_callables.hpp"
#include "pylibrmm/memory_resource/_owned_resources.hpp"
#include "pylibrmm/memory_resource/_python_exception.hpp"

#include <Python.h>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>

namespace rmm_python {

/// Functions that take the GIL, call Python, and do not throw.
using python_allocate   = void* (*)(lent_callables& lent, std::size_t bytes, cudaStream_t stream, python_error& error);
using python_deallocate = void (*)(lent_callables& lent, void* ptr, std::size_t bytes, cudaStream_t stream);
using python_failure_callback = bool (*)(lent_callables& lent, std::size_t bytes, python_error& error);

/// Makes a resource that calls Python functions to allocate and free.
[[nodiscard]] inline resource_ptr make_callback_resource(python_allocate allocate,
                                                         python_deallocate deallocate,
                                                         lent_ptr const& lent)
{
  return std::make_shared<rmm::mr::callback_memory_resource>(
    [allocate, lent](std::size_t bytes, rmm::cuda_stream_view stream, void*) {
      if (!can_run_python()) { throw std::runtime_error{"the Python interpreter has ended"}; }
      python_error error{};
      void* const ptr = run_python([&] { return allocate(*lent, bytes, stream.value(), error); });
      error.throw_if_noted();
      return ptr;
    },
    [deallocate, lent](void* ptr, std::size_t bytes, rmm::cuda_stream_view stream, void*) {
      if (can_run_python()) {
        run_python([&] { deallocate(*lent, ptr, bytes, stream.value()); });
      }
    });
}

/// Makes a failure callback that calls a Python function.
[[nodiscard]] inline rmm::mr::failure_callback_t make_failure_callback(python_failure_callback callback,
                                                                       lent_ptr const& lent)
{
  return [callback, lent](std::size_t bytes, void*) {
    if (!can_run_python()) { return false; }
    python_error error{};
    bool const retry = run_python([&] { return callback(*lent, bytes, error); });
    error.throw_if_noted();
    return retry;
  };
}

/// Makes an adaptor that calls a Python function when `upstream` runs out of memory.
[[nodiscard]] inline resource_ptr make_failure_callback_resource(resource_ptr const& upstream,
                                                                 python_failure_callback callback,
                                                                 lent_ptr const& lent)
{
  void* const no_argument = nullptr;
  return make_resource_over<rmm::mr::failure_callback_resource_adaptor>(
    upstream, make_failure_callback(callback, lent), no_argument);
}

/// Sets the failure callback of a pool to a Python function, or removes it if `lent` is null. The caller holds the GIL; it is released
/// while the function waits for locks.
inline void set_failure_callback(rmm::mr::detail::growing_pool* pool,
                                 python_failure_callback callback,
                                 lent_ptr const& lent)
{
  rmm::mr::failure_callback_t function;
  if (lent != nullptr) { function = make_failure_callback(callback, lent); }
  auto* const state = PyEval_SaveThread();
  rmm::detail::scope_guard const restore{[&]() noexcept { run_python([&] { PyEval_RestoreThread(state); }); }};
  pool->set_failure_callback(std::move(function));
}

}  // namespace rmm_python
