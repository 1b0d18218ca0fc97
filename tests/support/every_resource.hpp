// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sanitizers.hpp"
#include "temporary_folder.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/aligned_resource_adaptor.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/cuda_async_managed_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_async_view_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/detail/configuration_rules.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/guard_resource_adaptor.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/owning_wrapper.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/prefetch_resource_adaptor.hpp>
#include <rmm/mr/registered_host_memory_resource.hpp>
#include <rmm/mr/sam_headroom_memory_resource.hpp>
#include <rmm/mr/scrub_resource_adaptor.hpp>
#include <rmm/mr/spill_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/system_memory_resource.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/trace_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace rmm::test {

/// A kind of resource, as the parameter of a test.
struct named_resource {
  std::string name;
  std::function<std::shared_ptr<mr::device_memory_resource>()> make;

  friend std::ostream& operator<<(std::ostream& out, named_resource const& self) { return out << self.name; }
};

/// Makes an Adaptor or suballocator over cudaMalloc that owns its upstream.
template <template <class> class Adaptor, class... Args>
std::function<std::shared_ptr<mr::device_memory_resource>()> over_cuda(Args... args)
{
  return [=]() -> std::shared_ptr<mr::device_memory_resource> {
    return mr::make_owning_wrapper<Adaptor>(std::make_shared<mr::cuda_memory_resource>(), args...);
  };
}

template <class Upstream>
using failure_callback = mr::failure_callback_resource_adaptor<Upstream>;

/// The resources and adaptors that every device supports, with enough memory for the tests of containers.
inline std::vector<named_resource> tested_resources()
{
  static mr::cuda_memory_resource cuda;
  static std::ostream no_output{nullptr};
  return {
    {"cuda", [] { return std::make_shared<mr::cuda_memory_resource>(); }},
    {"managed", [] { return std::make_shared<mr::managed_memory_resource>(); }},
    {"pinned_host", [] { return std::make_shared<mr::pinned_host_memory_resource>(); }},
    {"registered_host", [] { return std::make_shared<mr::registered_host_memory_resource>(); }},
    {"cuda_async", [] { return std::make_shared<mr::cuda_async_memory_resource>(); }},
    {"cuda_async_view",
     [] {
       cudaMemPool_t pool{};
       cudaDeviceGetDefaultMemPool(&pool, get_current_cuda_device().value());
       return std::make_shared<mr::cuda_async_view_memory_resource>(pool);
     }},
    {"cached", over_cuda<mr::cached_memory_resource>(0, std::nullopt, 1 << 16)},
    {"pool", over_cuda<mr::pool_memory_resource>(0)},
    {"bounded_pool", over_cuda<mr::pool_memory_resource>(1 << 16, 1 << 20)},
    {"pinned_pool", [] { return std::make_shared<mr::pinned_pool_memory_resource>(0); }},
    {"elastic", [] { return std::make_shared<mr::elastic_pool_memory_resource>(); }},
    {"arena", over_cuda<mr::arena_memory_resource>(1 << 20)},
    {"fixed_size", over_cuda<mr::fixed_size_memory_resource>(1 << 14, 1)},
    {"binning", over_cuda<mr::binning_memory_resource>(8, 9)},
    {"aligned", over_cuda<mr::aligned_resource_adaptor>(4096)},
    {"guard", over_cuda<mr::guard_resource_adaptor>()},
    {"limiting", over_cuda<mr::limiting_resource_adaptor>(1 << 20)},
    {"prefetch", over_cuda<mr::prefetch_resource_adaptor>()},
    {"scrub", over_cuda<mr::scrub_resource_adaptor>()},
    {"statistics", over_cuda<mr::statistics_resource_adaptor>()},
    {"thread_safe", over_cuda<mr::thread_safe_resource_adaptor>()},
    {"tracking", over_cuda<mr::tracking_resource_adaptor>(true)},
    {"failure_callback",
     over_cuda<failure_callback>([](std::size_t, void*) { return false; }, static_cast<void*>(nullptr))},
    {"spill", over_cuda<mr::spill_resource_adaptor>([](std::size_t) { return std::size_t{0}; })},
    {"logging",
     [] { return std::make_shared<mr::logging_resource_adaptor<mr::cuda_memory_resource>>(&cuda, no_output); }},
    {"trace",
     [] {
       static temporary_folder const folder;
       mr::trace_options options;
       options.file = folder / "trace.bin";
       return std::make_shared<mr::trace_resource_adaptor<mr::cuda_memory_resource>>(&cuda, options);
     }},
    {"callback",
     [] {
       return std::make_shared<mr::callback_memory_resource>(
         [](std::size_t bytes, cuda_stream_view stream, void*) { return cuda.allocate(bytes, stream); },
         [](void* ptr, std::size_t bytes, cuda_stream_view stream, void*) { cuda.deallocate(ptr, bytes, stream); });
     }},
  };
}

/// A configuration of a resource with its required options only.
inline std::string shortest_configuration(mr::detail::resource_rule const& rule)
{
  std::string text{rule.name};
  for (std::size_t i = 0; i < rule.number_of_options; ++i) {
    auto const& option = rule.options[i];
    if (!option.is_required) { continue; }
    text += std::string{","} + option.name;
    if (option.form == mr::detail::value_form::number) { text += "=" + std::to_string(option.least); }
    if (option.form == mr::detail::value_form::amount) { text += "=1MiB"; }
  }
  return text;
}

/// Returns a new `Resource`, or null if the current device or this build does not support it.
template <class Resource, class... Args>
std::shared_ptr<mr::device_memory_resource> make_if_supported(Args... args)
{
  try {
    return std::make_shared<Resource>(args...);
  } catch (rmm::logic_error const&) {
    return nullptr;
  }
}

/// The resources that only some devices support. `make()` returns null if the device does not.
inline std::vector<named_resource> resources_of_some_devices()
{
  return {
    {"cuda_async_managed", make_if_supported<mr::cuda_async_managed_memory_resource>},
    {"system",
     []() -> std::shared_ptr<mr::device_memory_resource> {
       if (exhaustion_ends_program) { return nullptr; }
       return make_if_supported<mr::system_memory_resource>();
     }},
    {"sam_headroom",
     []() -> std::shared_ptr<mr::device_memory_resource> {
       if (exhaustion_ends_program) { return nullptr; }
       return make_if_supported<mr::sam_headroom_memory_resource>(std::size_t{1} << 20U);
     }},
  };
}

/// tested_resources(), and the table's other resources without options.
inline std::vector<named_resource> every_resource()
{
  auto found          = tested_resources();
  auto const some     = resources_of_some_devices();
  auto const is_among = [](auto const& resources, char const* name) {
    return std::any_of(resources.begin(), resources.end(), [&](auto const& each) { return each.name == name; });
  };
  for (auto const& rule : mr::detail::resource_rules) {
    if (is_among(found, rule.name) || is_among(some, rule.name)) { continue; }
    auto const text = shortest_configuration(rule);
    found.push_back({rule.name, [text] { return mr::configured_resource{text}.share(); }});
  }
  return found;
}

}  // namespace rmm::test
