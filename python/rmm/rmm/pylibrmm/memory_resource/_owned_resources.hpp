// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_innermost_resource.hpp"
#include "librmm/_registered_owners.hpp"
#include "pylibrmm/_run_python.hpp"
#include "pylibrmm/memory_resource/_immediate_adaptors.hpp"
#include "pylibrmm/memory_resource/_lent_callables.hpp"
#include "pylibrmm/memory_resource/_python_exception.hpp"
#include "pylibrmm/memory_resource/_reserved_resource.hpp"

#include <Python.h>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/error.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/guard_resource_adaptor.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/registered_host_memory_resource.hpp>
#include <rmm/mr/trace_resource_adaptor.hpp>
#include <rmm/mr/trimmable_resource.hpp>
#include <rmm/recovery.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// @file
/// Resources with shared owners: one made over another keeps that one alive, without the help of Python objects.

namespace rmm_python {

using binning = rmm::mr::binning_memory_resource<rmm::mr::device_memory_resource>;

/// Number of the current device. Throws cuda_error where there is none.
[[nodiscard]] inline int current_device()
{
  int device{};
  if (!rmm::detail::sees_one_device()) { RMM_CUDA_TRY(cudaGetDevice(&device)); }
  return device;
}

/// The pool that a resource is, or has in it; null if there is none.
[[nodiscard]] inline rmm::mr::detail::growing_pool* pool_in(rmm::mr::device_memory_resource& resource) noexcept
{
  auto* const pinned = dynamic_cast<rmm::mr::pinned_pool_memory_resource*>(&resource);
  return pinned != nullptr ? &pinned->pool() : dynamic_cast<rmm::mr::detail::growing_pool*>(&resource);
}

/// Lets a pool that Python has made find captures of CUDA graphs that nobody announces: programs in Python cannot see which
/// calls allocate.
inline void check_captures(rmm::mr::device_memory_resource& resource) noexcept
{
  if (auto* const pool = pool_in(resource)) { pool->set_check_capture(true); }
}

/// A resource that takes memory from the runtime.
template <class Resource, class... Args>
[[nodiscard]] resource_ptr make_resource(Args const&... args)
{
  return std::make_shared<Resource>(args...);
}

/// A resource over another, which ends after it.
template <template <class...> class Resource, class... Args>
[[nodiscard]] resource_ptr make_resource_over(resource_ptr const& upstream, Args const&... args)
{
  struct layer {
    layer(resource_ptr const& below, Args const&... rest) : upstream{below}, resource{upstream.get(), rest...} {}
    resource_ptr upstream;
    Resource<rmm::mr::device_memory_resource> resource;
  };
  auto const made = std::make_shared<layer>(upstream, args...);
  check_captures(made->resource);
  return {made, &made->resource};
}

/// The same for an adaptor with a face for calls that wait for nothing, which `at_once` becomes: null if upstream has none.
template <template <class...> class Resource, class... Args>
[[nodiscard]] resource_ptr make_immediate_over(resource_ptr const& upstream,
                                               rmm::mr::detail::immediate_resource* upstream_at_once,
                                               rmm::mr::detail::immediate_resource*& at_once,
                                               Args const&... args)
{
  using adaptor = Resource<rmm::mr::device_memory_resource>;
  struct layer {
    layer(resource_ptr const& below, rmm::mr::detail::immediate_resource* below_at_once, Args const&... rest)
      : upstream{below}, resource{upstream.get(), rest...}, face{resource, below_at_once}
    {}
    resource_ptr upstream;
    adaptor resource;
    immediate_adaptor<adaptor> face;
  };
  auto const made = std::make_shared<layer>(upstream, upstream_at_once, args...);
  at_once         = upstream_at_once != nullptr ? &made->face : nullptr;
  return {made, &made->resource};
}

/// `decay_ms` below 0 stands for none.
[[nodiscard]] inline resource_ptr make_elastic_pool(std::size_t initial_bytes,
                                                    std::optional<std::size_t> maximum_bytes,
                                                    std::size_t chunk_bytes,
                                                    std::int64_t decay_ms,
                                                    bool peer_access,
                                                    bool share_descriptors,
                                                    bool share_fabric,
                                                    bool gpu_direct_rdma)
{
  rmm::mr::elastic_pool_options options;
  options.initial_bytes     = initial_bytes;
  options.maximum_bytes     = maximum_bytes;
  options.chunk_bytes       = chunk_bytes;
  options.peer_access       = peer_access;
  options.share_descriptors = share_descriptors;
  options.share_fabric      = share_fabric;
  options.gpu_direct_rdma   = gpu_direct_rdma;
  if (decay_ms >= 0) { options.decay = std::chrono::milliseconds{decay_ms}; }
  auto const made = std::make_shared<rmm::mr::elastic_pool_memory_resource>(options);
  check_captures(*made);
  return made;
}

/// A block of an elastic pool as Python gets it, which closes the descriptors.
struct exported_block {
  std::size_t offset_bytes{};
  std::size_t bytes{};
  std::size_t chunk_bytes{};
  std::vector<int> descriptors{};
  std::vector<std::string> fabric_handles{};
};

[[nodiscard]] inline exported_block export_descriptors(rmm::mr::elastic_pool_memory_resource const& pool,
                                                       void const* ptr,
                                                       std::size_t bytes)
{
  auto exported = pool.export_descriptors(ptr, bytes);
  exported_block result{exported.block.offset_bytes, exported.block.bytes, exported.block.chunk_bytes};
  result.descriptors.reserve(exported.chunks.size());
  for (auto& each : exported.chunks) { result.descriptors.push_back(each.release()); }
  return result;
}

[[nodiscard]] inline exported_block export_fabric(rmm::mr::elastic_pool_memory_resource const& pool,
                                                  void const* ptr,
                                                  std::size_t bytes)
{
  auto const exported = pool.export_fabric(ptr, bytes);
  exported_block result{exported.block.offset_bytes, exported.block.bytes, exported.block.chunk_bytes};
  for (auto const& each : exported.chunks) { result.fabric_handles.emplace_back(each.begin(), each.end()); }
  return result;
}

/// `numa_node` below 0 stands for none.
[[nodiscard]] inline rmm::mr::pinned_memory_options pinned_options(bool near_device, int numa_node, unsigned threads)
{
  rmm::mr::pinned_memory_options options;
  options.near_device = near_device;
  options.threads     = threads;
  if (numa_node >= 0) { options.numa_node = numa_node; }
  return options;
}

[[nodiscard]] inline resource_ptr make_pinned_pool(
  std::size_t initial_size, std::optional<std::size_t> maximum_size, bool near_device, int numa_node, unsigned threads)
{
  auto const made = std::make_shared<rmm::mr::pinned_pool_memory_resource>(
    initial_size, maximum_size, pinned_options(near_device, numa_node, threads));
  check_captures(*made);
  return made;
}

[[nodiscard]] inline resource_ptr make_registered_host(bool near_device, int numa_node, unsigned threads)
{
  return std::make_shared<rmm::mr::registered_host_memory_resource>(pinned_options(near_device, numa_node, threads));
}

/// What the environment says holds for all but the file, if that is given.
[[nodiscard]] inline resource_ptr make_trace(resource_ptr const& upstream, std::string const& file)
{
  auto options = rmm::mr::trace_options::from_environment();
  if (!file.empty()) { options.file = file; }
  return make_resource_over<rmm::mr::trace_resource_adaptor>(upstream, options);
}

/// The resource behind all adaptors, those of a configuration too.
[[nodiscard]] inline rmm::mr::device_memory_resource& behind_adaptors(rmm::mr::device_memory_resource& resource)
{
  return innermost<rmm::mr::detail::csv_log_adaptor>(resource);
}

/// The pool of a resource, or of the one behind its adaptors; null if there is none.
[[nodiscard]] inline rmm::mr::detail::growing_pool* pool_behind(rmm::mr::device_memory_resource* resource)
{
  return pool_in(behind_adaptors(*resource));
}

/// The resource that a configuration describes, and its explanation.
[[nodiscard]] inline resource_ptr make_configured(std::string const& configuration, std::string& explanation)
{
  rmm::mr::configured_resource const made{configuration};
  explanation = made.explanation();
  check_captures(behind_adaptors(*made));
  return made.share();
}

/// trim_to() of a resource that has it, or of the one behind its adaptors; 0 for another.
[[nodiscard]] inline std::size_t trim_to(rmm::mr::device_memory_resource* resource, std::size_t bytes)
{
  auto* const trimmable = dynamic_cast<rmm::mr::trimmable_resource*>(&behind_adaptors(*resource));
  return trimmable != nullptr ? trimmable->trim_to(bytes) : 0;
}

/// figures() of a resource that has them, or of the one behind its adaptors; zeros for another.
[[nodiscard]] inline rmm::heap_figures figures_of(rmm::mr::device_memory_resource* outermost)
{
  using rmm::mr::device_memory_resource;
  auto* const resource = &behind_adaptors(*outermost);
  if (auto* const found = dynamic_cast<reserved_resource*>(resource)) { return found->reservation()->figures(); }
  if (auto* const found = dynamic_cast<rmm::mr::elastic_pool_memory_resource*>(resource)) { return found->figures(); }
  if (auto* const found = dynamic_cast<rmm::mr::pinned_pool_memory_resource*>(resource)) { return found->figures(); }
  if (auto* const found = dynamic_cast<rmm::mr::detail::growing_pool*>(resource)) { return found->figures(); }
  if (auto* const found = dynamic_cast<rmm::mr::arena_memory_resource<device_memory_resource>*>(resource)) {
    return found->figures();
  }
  if (auto* const found = dynamic_cast<rmm::mr::fixed_size_memory_resource<device_memory_resource>*>(resource)) {
    return found->figures();
  }
  if (auto* const found = dynamic_cast<binning*>(resource)) { return found->figures(); }
  return {};
}

/// The figures of each rung, in the order of the enumerators.
[[nodiscard]] inline std::vector<rmm::rung_figures> rung_figures_of(rmm::heap_figures const& figures)
{
  return {std::begin(figures.recovery.rungs), std::end(figures.recovery.rungs)};
}

/// Throws std::invalid_argument for a name that is none, or is there twice, and what the pool throws.
inline void set_recovery_order(rmm::mr::detail::growing_pool* pool, std::vector<std::string> const& names)
{
  rmm::recovery_order order;
  for (auto const& name : names) {
    std::size_t index = 0;
    while (index != rmm::recovery_rung_count && name != rmm::name_of(static_cast<rmm::recovery_rung>(index))) {
      ++index;
    }
    if (index == rmm::recovery_rung_count) { throw std::invalid_argument{"a pool tries no such thing: " + name}; }
    if (!order.try_add(static_cast<rmm::recovery_rung>(index))) {
      throw std::invalid_argument{"twice in the order of recovery: " + name};
    }
  }
  pool->set_recovery_order(order);
}

/// Memory set aside in a pool, or in what is set aside; null if `only_try` and there is not so much. The source is one of them.
[[nodiscard]] inline resource_ptr reserve(resource_ptr const& source,
                                          std::size_t bytes,
                                          rmm::cuda_stream_view stream,
                                          bool only_try)
{
  auto const reserve_in = [&](auto& memory) -> resource_ptr {
    if (!only_try) { return std::make_shared<reserved_resource>(source, memory.reserve(bytes, stream)); }
    auto made = memory.try_reserve(bytes, stream);
    return made ? std::make_shared<reserved_resource>(source, std::move(*made)) : nullptr;
  };
  auto* const outer = dynamic_cast<reserved_resource*>(source.get());
  return outer != nullptr ? reserve_in(*outer->reservation()) : reserve_in(*pool_behind(source.get()));
}

/// Ends a binning_memory_resource, and after it the resources that it takes memory from.
struct end_of_binning {
  resource_ptr upstream;
  std::vector<resource_ptr> bins;

  void operator()(binning* resource) const { delete resource; }
};

/// Without bins if one of the exponents is -1.
[[nodiscard]] inline resource_ptr make_binning(resource_ptr const& upstream,
                                               int min_size_exponent,
                                               int max_size_exponent)
{
  auto made =
    min_size_exponent == -1 || max_size_exponent == -1
      ? std::make_unique<binning>(upstream.get())
      : std::make_unique<binning>(
          upstream.get(), static_cast<std::int8_t>(min_size_exponent), static_cast<std::int8_t>(max_size_exponent));
  return resource_ptr{made.release(), end_of_binning{upstream, {}}};
}

/// Adds a bin to what make_binning() returned; one of its own if `bin` is null.
inline void add_bin_to(resource_ptr const& resource, std::size_t allocation_size, resource_ptr const& bin)
{
  auto& bins = std::get_deleter<end_of_binning>(resource)->bins;
  bins.push_back(bin);
  static_cast<binning*>(resource.get())->add_bin(allocation_size, bin.get());
}

/// Functions that take the GIL, call Python, and do not throw.
using python_allocate   = void* (*)(lent_callables& lent, std::size_t bytes, cudaStream_t stream, python_error& error);
using python_deallocate = void (*)(lent_callables& lent, void* ptr, std::size_t bytes, cudaStream_t stream);
using python_failure_callback = bool (*)(lent_callables& lent, std::size_t bytes, python_error& error);
using python_guard_handler    = void (*)(void* callable, rmm::mr::guard_violation const& found);

/// A resource that calls Python.
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

/// A function that asks Python what to do where memory is missing.
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

/// A resource that asks Python what to do where `upstream` is out of memory.
[[nodiscard]] inline resource_ptr make_failure_callback_resource(resource_ptr const& upstream,
                                                                 python_failure_callback callback,
                                                                 lent_ptr const& lent)
{
  void* const no_argument = nullptr;
  return make_resource_over<rmm::mr::failure_callback_resource_adaptor>(
    upstream, make_failure_callback(callback, lent), no_argument);
}

/// Has the pool ask Python; nobody if `lent` is null. The caller holds the GIL, which is free while others are waited for.
inline void set_failure_callback(rmm::mr::detail::growing_pool* pool,
                                 python_failure_callback callback,
                                 lent_ptr const& lent)
{
  rmm::mr::failure_callback_t function;
  if (lent != nullptr) { function = make_failure_callback(callback, lent); }
  auto* const state = PyEval_SaveThread();
  rmm::detail::scope_guard const restore{[&]() noexcept { PyEval_RestoreThread(state); }};
  pool->set_failure_callback(std::move(function));
}

/// A resource that tells Python what it finds; that aborts if `callable` is None. The caller holds the GIL.
///
/// The handler is not lent: it may be called until the last of the quarantine has been looked at, by destructors too, and the
/// garbage collector empties functions of a cycle before those run.
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

/// As it is written in Python: the name of the enumerator.
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

/// Registers the resource of a Python object, which lives as long as anybody has memory from it. The caller holds the GIL.
inline void register_resource(int device, rmm::mr::device_memory_resource* resource, PyObject* object)
{
  owners().set(device, resource_ptr{share_python_object(object), resource});
}

/// Registers the initial resource again.
inline void unregister_resource(int device) { owners().set(device, nullptr); }

}  // namespace rmm_python
