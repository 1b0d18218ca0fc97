// SPDX-License-Identifier: Apache-2.0
#include "module.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/process_is_exiting.hpp>
#include <rmm/resource_ref.hpp>
#include <rmm/tag_scope.hpp>

#include <cstddef>
#include <cstdlib>

namespace two_objects {

/// Not a device_memory_resource: it can be registered by reference only.
struct own_resource {
  std::size_t live{0};

  void* allocate(std::size_t bytes, std::size_t)
  {
    ++live;
    return std::malloc(bytes);
  }
  void deallocate(void* ptr, std::size_t, std::size_t)
  {
    --live;
    std::free(ptr);
  }
  void* allocate_async(std::size_t bytes, std::size_t alignment, rmm::cuda_stream_view)
  {
    return allocate(bytes, alignment);
  }
  void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, rmm::cuda_stream_view)
  {
    deallocate(ptr, bytes, alignment);
  }
  bool operator==(own_resource const& other) const { return this == &other; }
  bool operator!=(own_resource const& other) const { return this != &other; }
  friend void get_property(own_resource const&, cuda::mr::device_accessible) noexcept {}
};

}  // namespace two_objects

namespace {

two_objects::own_resource& own()
{
  static two_objects::own_resource resource;
  return resource;
}

void call_with_tag(char const* name, void (*body)(void*), void* argument)
{
  rmm::tag_scope const scope{name};
  body(argument);
}

void fail_to_allocate(std::size_t bytes)
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 0, 0};
  static_cast<void>(pool.allocate(bytes));
}

std::size_t size_that_arrives(std::size_t bytes)
{
  struct : rmm::mr::device_memory_resource {
    std::size_t allocated{};
    std::size_t deallocated{};

    void* do_allocate(std::size_t size, rmm::cuda_stream_view) override
    {
      allocated = size;
      return this;
    }
    void do_deallocate(void*, std::size_t size, rmm::cuda_stream_view) override { deallocated = size; }
  } resource;
  rmm::device_async_resource_ref const ref{resource};
  ref.deallocate_async(ref.allocate_async(bytes, rmm::cuda_stream_view{}), bytes, rmm::cuda_stream_view{});
  return resource.allocated == resource.deallocated ? resource.allocated : 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) two_objects_module_functions const two_objects_module{
  []() -> void* { return &rmm::mr::detail::process_registry(); },
  [] { return rmm::mr::detail::initial_resource(); },
  [](int device) { return rmm::mr::get_per_device_resource(rmm::cuda_device_id{device}); },
  [](int device, rmm::mr::device_memory_resource* resource) {
    rmm::mr::set_per_device_resource(rmm::cuda_device_id{device}, resource);
  },
  [](int device) { rmm::mr::set_per_device_resource_ref(rmm::cuda_device_id{device}, own()); },
  [](int device) {
    return rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{device}) == rmm::device_async_resource_ref{own()};
  },
  [] { return own().live; },
  [](int device, std::size_t bytes) {
    return rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{device})
      .allocate_async(bytes, rmm::cuda_stream_view{});
  },
  [](int device, void* ptr, std::size_t bytes) {
    rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{device})
      .deallocate_async(ptr, bytes, rmm::cuda_stream_view{});
  },
  [](rmm::mr::device_memory_resource const* resource) { return resource->is_equal(rmm::mr::cuda_memory_resource{}); },
  call_with_tag,
  [] { return rmm::tag::current().name(); },
  fail_to_allocate,
  [] { return rmm::process_is_exiting(); },
  [] { rmm::mr::use_unrounded_sizes(); },
  size_that_arrives,
};
