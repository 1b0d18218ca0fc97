// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/cccl_adaptors.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/detail/runtime_shutdown.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/detail/registry.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <pthread.h>

#include <atomic>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

/// @file
/// The registry of one resource for each device. Containers and allocators use the registered resource by default. All shared objects
/// of a process use one registry.
///
/// Initially one cuda_memory_resource is registered for all devices. The registry does not own resources: a resource has to outlive its
/// registration and the memory that it allocated. A new registration only affects later allocations. The device of a call need not be
/// current, or exist.
///
/// Each device has two entries, a pointer and a reference. Containers and allocators read the reference. set_per_device_resource() and
/// set_current_device_resource() set both. Setters whose names end in `_ref` set only the reference: getters without `_ref` then still
/// return the earlier pointer.
/// Threads  all functions are thread-safe; getters take no lock.

RMM_PROCESS_WIDE_ANCHOR(rmm_registry_v2, 6);

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

RMM_HIDDEN inline void begin_registry_in_child() noexcept
{
  if (void* const found = rmm_registry_v2.load(std::memory_order_acquire)) {
    static_cast<registry*>(found)->begin_in_child();
  }
}

/// When a shared object is loaded: a handler that the first use of the registry adds does not run in a child whose fork has begun.
RMM_HIDDEN inline bool const registry_begins_in_children{::pthread_atfork(nullptr, nullptr, begin_registry_in_child) ==
                                                         0};

/// Order: the update of `initial` releases the resource, and the load acquires it. Of several threads, one stores. process_wide.hpp says
/// how the registry itself is published: whoever finds its address has acquired what that leads to.
[[nodiscard]] RMM_HIDDEN RMM_COLD inline registry& find_process_registry()
{
  rmm::detail::register_process_exit_hook();  // registered now, so that it runs before handlers that exist already
  return rmm::detail::find_or_publish<registry>(rmm_registry_v2, 6, [] {
    // Constant-initialized: a forked child would wait for ever for a thread of its parent that initializes a static variable.
    static std::atomic<cuda_memory_resource*> initial{nullptr};
    cuda_memory_resource* none{nullptr};
    auto* const made = new cuda_memory_resource{};
    if (!initial.compare_exchange_strong(none, made, std::memory_order_acq_rel)) { delete made; }
    return new registry{initial.load(std::memory_order_acquire)};
  });
}

/// Returns the registry of the process. It is never destroyed, because static objects may use resources in their destructors.
[[nodiscard]] RMM_HIDDEN inline registry& process_registry()
{
  void* const found = rmm_registry_v2.load(std::memory_order_acquire);
  return found != nullptr ? *static_cast<registry*>(found) : find_process_registry();
}

/// Returns the resource of devices for which none was registered.
RMM_EXPORT inline device_memory_resource* initial_resource() { return process_registry().initial(); }

/// Returns the mutex that setters of pointers hold.
[[nodiscard]] RMM_EXPORT inline std::mutex& map_lock() { return process_registry().pointers_mutex(); }

// The two mirrors are templates, so that files that do not use them need not compile their maps.

/// Updates a copy of the registered pointers, and returns it. Requires map_lock(). Changes of the copy register nothing.
template <class = void>
[[nodiscard]] RMM_EXPORT std::map<int, device_memory_resource*>& get_map()
{
  static auto* const mirror = new std::map<int, device_memory_resource*>{};
  process_registry().for_each_pointer([](int device, device_memory_resource* pointer) { (*mirror)[device] = pointer; });
  return *mirror;
}

/// Returns the mutex that setters of references hold. Setters of pointers also hold it, and take it after map_lock().
[[nodiscard]] RMM_EXPORT inline std::mutex& ref_map_lock() { return process_registry().refs_mutex(); }

/// Returns a copy of the registered references, as get_map() does for pointers. The caller has to hold ref_map_lock(). Each shared
/// object has its own copy, because the class of references depends on its release of libcu++.
template <class = void>
[[nodiscard]] RMM_HIDDEN std::map<int, device_async_resource_ref>& get_ref_map()
{
  static auto* const mirror = new std::map<int, device_async_resource_ref>{};
  process_registry().for_each_ref(
    [](int device, device_async_resource_ref const& ref) { mirror->insert_or_assign(device, ref); });
  return *mirror;
}

/// Whether an argument of type `Object` is a resource (not a pointer to one) that can be copied, moved, or referred to.
template <class Object, class Resource = std::remove_cv_t<std::remove_reference_t<Object>>>
inline constexpr bool is_resource_object =
  rmm::detail::polyfill::async_resource_with<Resource, ::cuda::mr::device_accessible> &&
  (std::is_constructible_v<Resource, Object> ||
   (std::is_lvalue_reference_v<Object> && !std::is_const_v<std::remove_reference_t<Object>>));

/// Whether objects of a resource type have no data members, so that each of them can take the place of another.
template <class Resource>
inline constexpr bool is_stateless = std::is_empty_v<Resource> ||
                                     (std::is_base_of_v<device_memory_resource, Resource> &&
                                      sizeof(Resource) == sizeof(device_memory_resource));

/// Returns a resource that is never destroyed. Makes a new one from `object`, except for a stateless class: its first call makes the
/// resource, and later calls return the same one. Resources are not compared with those of earlier calls: equal resources may behave
/// differently, as adaptors with different callbacks do, and the upstream of an earlier one may be gone.
template <class Resource, class Object>
[[nodiscard]] Resource& lasting_copy(Object&& object)
{
  struct node {
    Resource resource;
    node* next;
  };
  static node* first{nullptr};  // so that tools that look for leaks find all
  if constexpr (is_stateless<Resource>) {
    static node* const only = first = new node{Resource(std::forward<Object>(object)), nullptr};
    return only->resource;
  } else {
    auto* const made =
      new node{Resource(std::forward<Object>(object)), nullptr};  // not under the lock: may run code of the user
    std::lock_guard<std::mutex> const refs{ref_map_lock()};
    made->next = first;
    first      = made;
    return made->resource;
  }
}

/// Returns the pointer to register for `resource`.
template <class Resource>
[[nodiscard]] device_memory_resource* pointer_to(Resource& resource)
{
  if constexpr (std::is_base_of_v<device_memory_resource, Resource>) {
    return &resource;
  } else {
    std::lock_guard<std::mutex> const refs{ref_map_lock()};
    return process_registry().resource_for(resource);
  }
}

/// set_per_device_resource_ref() for a caller that holds ref_map_lock().
inline device_async_resource_ref set_per_device_resource_ref_unsafe(cuda_device_id device,
                                                                    device_async_resource_ref new_resource)
{
  return process_registry().exchange_ref(device.value(), new_resource);
}

}  // namespace detail

/// Returns the pointer registered for `device`; never null. Containers use the reference.
inline device_memory_resource* get_per_device_resource(cuda_device_id device)
{
  return detail::process_registry().pointer(device.value());
}

/// Registers `*new_resource` for `device`; if it is null, registers the initial resource. Returns the previous resource.
inline device_memory_resource* set_per_device_resource(cuda_device_id device, device_memory_resource* new_resource)
{
  auto& registry       = detail::process_registry();
  auto* const resource = new_resource != nullptr ? new_resource : registry.initial();
  std::lock_guard<std::mutex> pointers{registry.pointers_mutex()};
  std::lock_guard<std::mutex> refs{registry.refs_mutex()};
  registry.exchange_ref(device.value(), resource);
  return registry.exchange_pointer(device.value(), resource);
}

namespace detail {

/// Registers `ref` for `device`, and a pointer to a resource that allocates through it. Returns the previous pointer.
inline device_memory_resource* set_per_device_resource_of(cuda_device_id device, device_async_resource_ref ref)
{
  auto& registry = process_registry();
  std::lock_guard<std::mutex> pointers{registry.pointers_mutex()};
  std::lock_guard<std::mutex> refs{registry.refs_mutex()};
  auto* const resource = registry.resource_for(ref);
  registry.exchange_ref(device.value(), ref);
  return registry.exchange_pointer(device.value(), resource);
}

}  // namespace detail

/// Registers a resource that is passed as an object. Returns the previous resource. The argument decides what is registered:
///
/// - A resource reference: the reference. The resource has to outlive its registration and all memory from it.
/// - An object that can be copied, or an rvalue that can be moved: a copy, which the registry keeps until the process ends. Later changes
///   of the object have no effect. Each call keeps one more copy, except for classes without data members: register by pointer in a loop.
/// - Any other lvalue, such as an object that can be moved but not copied: its address. It has to outlive its registration and all
///   memory from it.
template <class Object, std::enable_if_t<detail::is_resource_object<Object>, int> = 0>
device_memory_resource* set_per_device_resource(cuda_device_id device, Object&& object)
{
  using resource = std::remove_cv_t<std::remove_reference_t<Object>>;
  if constexpr (rmm::detail::is_resource_ref<resource>) {
    return detail::set_per_device_resource_of(device, object);
  } else if constexpr (std::is_constructible_v<resource, Object>) {
    auto& kept = detail::lasting_copy<resource>(std::forward<Object>(object));
    return set_per_device_resource(device, detail::pointer_to(kept));
  } else {
    return set_per_device_resource(device, detail::pointer_to(object));
  }
}

/// Returns the resource registered for the current device; never null.
inline device_memory_resource* get_current_device_resource()
{
  return get_per_device_resource(cuda_device_id{rmm::detail::current_device()});
}

/// Registers a resource for the current device: see set_per_device_resource().
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::pool_memory_resource pool{&cuda, std::size_t{1} << 20};
/// auto* const previous = rmm::mr::set_current_device_resource(&pool);
/// {
///   rmm::device_buffer const buffer{1000, rmm::cuda_stream_default};  // from the pool
/// }
/// rmm::mr::set_current_device_resource(previous);
/// @endcode
inline device_memory_resource* set_current_device_resource(device_memory_resource* new_resource)
{
  return set_per_device_resource(cuda_device_id{rmm::detail::current_device()}, new_resource);
}

/// Registers a resource that is passed as an object for the current device: see set_per_device_resource().
template <class Object, std::enable_if_t<detail::is_resource_object<Object>, int> = 0>
device_memory_resource* set_current_device_resource(Object&& object)
{
  return set_per_device_resource(cuda_device_id{rmm::detail::current_device()}, std::forward<Object>(object));
}

/// Registers the initial resource for `device` again. Returns the previous resource.
inline device_memory_resource* reset_per_device_resource(cuda_device_id device)
{
  return set_per_device_resource(device, nullptr);
}

/// Registers the initial resource for the current device again. Returns the previous resource.
inline device_memory_resource* reset_current_device_resource() { return set_current_device_resource(nullptr); }

/// Returns a reference to the resource registered for `device`.
inline device_async_resource_ref get_per_device_resource_ref(cuda_device_id device)
{
  return detail::process_registry().ref(device.value());
}

/// Registers a reference for `device`. Returns the previous reference.
inline device_async_resource_ref set_per_device_resource_ref(cuda_device_id device,
                                                             device_async_resource_ref new_resource)
{
  std::lock_guard<std::mutex> refs{detail::ref_map_lock()};
  return detail::set_per_device_resource_ref_unsafe(device, new_resource);
}

/// Returns a reference to the resource registered for the current device.
inline device_async_resource_ref get_current_device_resource_ref()
{
  return get_per_device_resource_ref(cuda_device_id{rmm::detail::current_device()});
}

/// Registers a reference for the current device. Returns the previous reference.
inline device_async_resource_ref set_current_device_resource_ref(device_async_resource_ref new_resource)
{
  return set_per_device_resource_ref(cuda_device_id{rmm::detail::current_device()}, new_resource);
}

/// Registers a reference to the initial resource for `device` again. Returns the previous reference.
inline device_async_resource_ref reset_per_device_resource_ref(cuda_device_id device)
{
  auto& registry = detail::process_registry();
  std::lock_guard<std::mutex> refs{registry.refs_mutex()};
  return registry.exchange_ref(device.value(), registry.initial());
}

/// Registers a reference to the initial resource for the current device again. Returns the previous reference.
inline device_async_resource_ref reset_current_device_resource_ref()
{
  return reset_per_device_resource_ref(cuda_device_id{rmm::detail::current_device()});
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
