// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "environment_trace.hpp"
#include "pylibrmm/_run_python.hpp"
#include "pylibrmm/memory_resource/_immediate_adaptors.hpp"
#include "pylibrmm/memory_resource/_owned_resources.hpp"
#include "pylibrmm/memory_resource/_python_exception.hpp"

#include <Python.h>

#include <rmm/mr/aligned_resource_adaptor.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/guard_resource_adaptor.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/prefetch_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/trace_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace rmm_python {

/// make_resource_over() and make_immediate_over() for the adaptors that are compiled in _makers.cpp.
extern template resource_ptr make_resource_over<rmm::mr::aligned_resource_adaptor>(resource_ptr const&,
                                                                                   std::size_t const&,
                                                                                   std::size_t const&);
extern template resource_ptr make_resource_over<rmm::mr::guard_resource_adaptor>(resource_ptr const&,
                                                                                 rmm::mr::guard_options const&);
extern template resource_ptr make_resource_over<rmm::mr::logging_resource_adaptor>(resource_ptr const&,
                                                                                   std::string const&);
extern template resource_ptr make_resource_over<rmm::mr::prefetch_resource_adaptor>(resource_ptr const&);
extern template resource_ptr make_resource_over<rmm::mr::thread_safe_resource_adaptor>(resource_ptr const&);
extern template resource_ptr make_resource_over<rmm::mr::trace_resource_adaptor>(resource_ptr const&,
                                                                                 rmm::mr::trace_options const&);
extern template resource_ptr make_resource_over<rmm::mr::tracking_resource_adaptor>(resource_ptr const&,
                                                                                    bool const&,
                                                                                    rmm::mr::leak_report const&);
extern template resource_ptr make_immediate_over<rmm::mr::limiting_resource_adaptor>(
  resource_ptr const&, rmm::mr::detail::immediate_resource*, rmm::mr::detail::immediate_resource*&, std::size_t const&);
extern template resource_ptr make_immediate_over<rmm::mr::statistics_resource_adaptor>(
  resource_ptr const&, rmm::mr::detail::immediate_resource*, rmm::mr::detail::immediate_resource*&);

/// Makes a trace adaptor with the options of the environment, and with `file` if that is not empty.
[[nodiscard]] inline resource_ptr make_trace(resource_ptr const& upstream, std::string const& file)
{
  auto options = rmm::mr::trace_options::from_environment();
  if (!file.empty()) { options.file = file; }
  return make_resource_over<rmm::mr::trace_resource_adaptor>(upstream, options);
}

/// A function that takes the GIL, calls Python, and does not throw.
using python_guard_handler = void (*)(void* callable, rmm::mr::guard_violation const& found);

/// Makes a guard adaptor that reports violations to Python, or aborts if `callable` is None. The caller holds the GIL.
///
/// The adaptor owns the handler. It cannot be lent (lent_callables): destructors call it while they check the quarantine, and the garbage
/// collector clears functions in a cycle before it runs those.
[[nodiscard]] inline resource_ptr make_guard(resource_ptr const& upstream,
                                             std::size_t red_zone_bytes,
                                             std::size_t quarantine_bytes,
                                             bool capture_stacks,
                                             python_guard_handler handler,
                                             PyObject* callable)
{
  rmm::mr::guard_options options;
  options.red_zone_bytes   = red_zone_bytes;
  options.quarantine_bytes = quarantine_bytes;
  options.capture_stacks   = capture_stacks;
  if (callable != Py_None) {
    options.handler = [handler, owned = share_python_object(callable)](rmm::mr::guard_violation const& found) {
      if (can_run_python()) {
        run_python([&] { handler(owned.get(), found); });
      }
    };
  }
  return make_resource_over<rmm::mr::guard_resource_adaptor>(upstream, options);
}

/// Returns the name of the kind of violation, as in the enumeration.
[[nodiscard]] inline char const* name_of(rmm::mr::guard_violation const& found) noexcept
{
  using kind = rmm::mr::guard_violation::kind;
  switch (found.what) {
    case kind::double_free:
      return "double_free";
    case kind::unknown_pointer:
      return "unknown_pointer";
    case kind::wrong_size:
      return "wrong_size";
    case kind::overrun:
      return "overrun";
    case kind::underrun:
      return "underrun";
    case kind::write_after_free:
      return "write_after_free";
  }
  return "unknown";
}

/// Makes a resource that writes to the trace of the environment, and keeps its upstream alive.
[[nodiscard]] inline resource_ptr make_environment_trace(resource_ptr const& upstream, int device)
{
  struct layer {
    resource_ptr upstream;
    rmm::tools::environment_trace resource;
  };
  std::shared_ptr<layer> const made{new layer{upstream, {upstream.get(), device}}};
  return {made, &made->resource};
}

inline void flush_environment_trace(rmm::mr::device_memory_resource* resource) noexcept
{
  static_cast<rmm::tools::environment_trace*>(resource)->flush();
}

[[nodiscard]] inline std::string file_of_environment_trace(rmm::mr::device_memory_resource* resource)
{
  return static_cast<rmm::tools::environment_trace*>(resource)->file_name();
}

}  // namespace rmm_python
