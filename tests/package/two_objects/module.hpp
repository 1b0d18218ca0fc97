// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>

/// What each module of this test offers under the symbol `two_objects_module`.
///
/// A module is a shared object that uses the headers of the library like any plug-in, compiled and linked in its own
/// way.
struct two_objects_module_functions {
  void* (*registry)();
  rmm::mr::device_memory_resource* (*initial)();
  rmm::mr::device_memory_resource* (*pointer)(int device);
  void (*set_pointer)(int device, rmm::mr::device_memory_resource* resource);
  void (*register_own_ref)(int device);  ///< a reference to a resource of the module, of a class that only it knows
  bool (*ref_is_own)(int device);        ///< whether the registered reference equals one to that resource
  std::size_t (*own_allocations)();      ///< live allocations of that resource
  void* (*allocate)(int device, std::size_t bytes);  ///< through the registered reference
  void (*deallocate)(int device, void* ptr, std::size_t bytes);
  bool (*is_initial)(rmm::mr::device_memory_resource const* resource);      ///< by type
  void (*with_tag)(char const* name, void (*body)(void*), void* argument);  ///< calls `body(argument)` under the tag
  char const* (*current_tag)();
  void (*fail_to_allocate)(std::size_t bytes);  ///< throws what a pool with no memory throws
  bool (*process_is_exiting)();
  void (*use_unrounded_sizes)();
  std::size_t (*size_that_arrives)(
    std::size_t bytes);  ///< at a resource, when `bytes` are allocated through a reference
};
