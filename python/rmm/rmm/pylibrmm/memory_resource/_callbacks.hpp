// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/_run_python.hpp"
#include "pylibrmm/memory_resource/_failure_callback.hpp"
#include "pylibrmm/memory_resource/_immediate_adaptors.hpp"
#include "pylibrmm/memory_resource/_lent_callables.hpp"
#include "pylibrmm/memory_resource/_owned_resources.hpp"
#include "pylibrmm/memory_resource/_python_exception.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/spill_resource_adaptor.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

namespace rmm_python {

/// Adaptors that are compiled in _makers.cpp.
extern template resource_ptr make_resource_over<rmm::mr::failure_callback_resource_adaptor>(
  resource_ptr const&, rmm::mr::failure_callback_t const&, void* const&);
extern template resource_ptr make_immediate_over<rmm::mr::spill_resource_adaptor>(resource_ptr const&,
                                                                                  rmm::mr::detail::immediate_resource*,
                                                                                  rmm::mr::detail::immediate_resource*&,
                                                                                  rmm::mr::spill_hook_t const&,
                                                                                  rmm::mr::spill_options const&);

/// Functions that take the GIL, call Python, and do not throw.
using python_allocate   = void* (*)(lent_callables& lent, std::size_t bytes, cudaStream_t stream, python_error& error);
using python_deallocate = void (*)(lent_callables& lent, void* ptr, std::size_t bytes, cudaStream_t stream);
using python_spill_hook = std::size_t (*)(lent_callables& lent, std::size_t bytes, python_error& error);
using python_watermark  = void (*)(lent_callables& lent, std::size_t index, std::size_t bytes, python_error& error);

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

/// Makes an adaptor that calls a Python function when `upstream` runs out of memory.
[[nodiscard]] inline resource_ptr make_failure_callback_resource(resource_ptr const& upstream,
                                                                 python_failure_callback callback,
                                                                 lent_ptr const& lent)
{
  void* const no_argument = nullptr;
  return make_resource_over<rmm::mr::failure_callback_resource_adaptor>(
    upstream, make_failure_callback(callback, lent), no_argument);
}

/// The shares of a watermark, whose callback is the element of the same index in the second object that Python lends.
struct watermark_shares {
  double above;
  double below;
};

/// Makes an adaptor that calls Python functions to free memory, and at watermarks. `hook` is null if there is none to free memory. Sets
/// `at_once` as make_immediate_over() does.
[[nodiscard]] inline resource_ptr make_spill_resource(resource_ptr const& upstream,
                                                      rmm::mr::detail::immediate_resource* upstream_at_once,
                                                      rmm::mr::detail::immediate_resource*& at_once,
                                                      python_spill_hook hook,
                                                      python_watermark tell,
                                                      lent_ptr const& lent,
                                                      std::optional<std::size_t> maximum,
                                                      double spill_above,
                                                      std::vector<watermark_shares> const& watermarks)
{
  rmm::mr::spill_options options;
  options.maximum_bytes = maximum;
  options.spill_above   = spill_above;
  for (std::size_t index = 0; index < watermarks.size(); ++index) {
    options.watermarks.push_back(
      {watermarks[index].above, watermarks[index].below, [tell, lent, index](std::size_t bytes) {
         if (!can_run_python()) { return; }
         python_error error{};
         run_python([&] { tell(*lent, index, bytes, error); });
         error.throw_if_noted();
       }});
  }
  rmm::mr::spill_hook_t spill;
  if (hook != nullptr) {
    spill = [hook, lent](std::size_t bytes) -> std::size_t {
      if (!can_run_python()) { return 0; }
      python_error error{};
      auto const freed = run_python([&] { return hook(*lent, bytes, error); });
      error.throw_if_noted();
      return freed;
    };
  }
  return make_immediate_over<rmm::mr::spill_resource_adaptor>(upstream, upstream_at_once, at_once, spill, options);
}

/// Returns figures() of an adaptor of make_spill_resource().
[[nodiscard]] inline rmm::mr::spill_figures spill_figures_of(rmm::mr::device_memory_resource* resource)
{
  return static_cast<rmm::mr::spill_resource_adaptor<rmm::mr::device_memory_resource>*>(resource)->figures();
}

}  // namespace rmm_python
