// SPDX-License-Identifier: Apache-2.0

// How programs use references, resources and buffers: forms that have to compile. Nothing here runs.

#include <rmm/detail/runtime_async_alloc.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/device_memory_resource.hpp>
#include <rmm/mr/device/managed_memory_resource.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/is_resource_adaptor.hpp>
#include <rmm/mr/polymorphic_allocator.hpp>
#include <rmm/resource_ref.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace client {

// What per_device_resource.hpp brings along.
static_assert(sizeof(rmm::cuda_stream_view) > 0 && sizeof(rmm::cuda_device_id) > 0);
static_assert(sizeof(rmm::mr::cuda_memory_resource) > 0);
static_assert(sizeof(rmm::out_of_memory) > 0 && rmm::CUDA_ALLOCATION_ALIGNMENT == 256);

// g++ asks this where -Wshadow looks at a variable of type T& that has the name of a reference to a resource.
static_assert(!rmm::detail::is_resource_ref<rmm::mr::device_memory_resource&>);

// A resource as a default argument, by reference and by pointer.
rmm::device_buffer by_reference(std::size_t size,
                                rmm::cuda_stream_view stream      = rmm::cuda_stream_default,
                                rmm::device_async_resource_ref mr = rmm::mr::get_current_device_resource());
rmm::device_buffer by_reference(std::size_t size, rmm::cuda_stream_view stream, rmm::device_async_resource_ref mr)
{
  return rmm::device_buffer{size, stream, mr};
}

rmm::device_buffer by_pointer(rmm::mr::device_memory_resource* mr)
{
  return rmm::device_buffer{100, rmm::cuda_stream_default, mr};
}

// The conversions of arguments.
void arguments()
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::managed_memory_resource managed;
  std::unique_ptr<rmm::mr::device_memory_resource> owned{new rmm::mr::cuda_memory_resource{}};
  auto shared = std::make_shared<rmm::mr::cuda_memory_resource>();
  by_reference(1);
  by_reference(1, rmm::cuda_stream_default, cuda);
  by_reference(1, rmm::cuda_stream_default, &cuda);
  by_reference(1, rmm::cuda_stream_default, *owned);
  by_reference(1, rmm::cuda_stream_default, owned.get());
  by_reference(1, rmm::cuda_stream_default, shared.get());
  by_reference(1, rmm::cuda_stream_default, rmm::host_device_async_resource_ref{managed});
  by_reference(1, rmm::cuda_stream_default, rmm::mr::get_current_device_resource_ref());
  by_pointer(&cuda);
  by_pointer(rmm::mr::get_current_device_resource());
}

// A reference as a member, with a default, in aggregates, optionals and closures.
struct options {
  rmm::device_async_resource_ref mr = rmm::mr::get_current_device_resource();
  std::optional<rmm::device_async_resource_ref> temporary{};
};

void members(options given)
{
  rmm::mr::cuda_memory_resource cuda;
  given.mr        = &cuda;
  given.temporary = given.mr;
  given.temporary = cuda;
  options const copy{given};
  static_cast<void>(copy.mr == *given.temporary);
  std::function<rmm::device_buffer()> const make = [mr = copy.mr] {
    return rmm::device_buffer{1, rmm::cuda_stream_default, mr};
  };
  std::thread{[](rmm::device_async_resource_ref mr) { mr.deallocate(mr.allocate(1), 1); }, copy.mr}.join();
  std::vector<rmm::device_async_resource_ref> const many{copy.mr, cuda, &cuda};
}

// A function template of a program that takes a reference of libcu++ and deduces the properties.
template <class... Properties>
void takes_libcudacxx(rmm::detail::cccl_async_ref<cuda::mr::host_accessible, Properties...> mr)
{
  auto copy = mr;
  static_cast<void>(copy == mr);
}

void deduces()
{
  rmm::mr::managed_memory_resource managed;
  takes_libcudacxx(rmm::host_async_resource_ref{managed});
  takes_libcudacxx(rmm::host_device_async_resource_ref{managed});
}

// A resource of a program, in the style of 24.08 and in that of 25.12, used without qualification in itself.
class older final : public rmm::mr::device_memory_resource {
 public:
  explicit older(device_memory_resource* upstream) : upstream_{upstream} {}
  rmm::device_async_resource_ref get_upstream_resource() const noexcept { return upstream_; }

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    return upstream_->allocate(bytes, stream);
  }
  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    upstream_->deallocate(ptr, bytes, stream);
  }
  bool do_is_equal(device_memory_resource const& other) const noexcept override { return this == &other; }

  device_memory_resource* upstream_;
};

class later final : public rmm::mr::device_memory_resource {
 public:
  explicit later(rmm::device_async_resource_ref upstream) : upstream_{upstream} {}

 protected:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    return upstream_.allocate(stream, bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
  }
  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) noexcept override
  {
    upstream_.deallocate(stream, ptr, bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
  }

 private:
  rmm::device_async_resource_ref upstream_;
};

void registers()
{
  rmm::mr::cuda_memory_resource cuda;
  older first{&cuda};
  later second{first};
  auto* const before = rmm::mr::set_current_device_resource(&first);
  rmm::mr::set_current_device_resource_ref(second);
  rmm::mr::set_per_device_resource_ref(rmm::cuda_device_id{0}, &second);
  rmm::mr::set_per_device_resource(rmm::cuda_device_id{0}, nullptr);
  rmm::mr::set_current_device_resource(before);
  static_assert(rmm::mr::is_resource_adaptor<older>);
  static_assert(!rmm::mr::is_resource_adaptor<later>);
  rmm::device_async_resource_ref const initial{rmm::mr::detail::initial_resource()};
  static_cast<void>(initial == rmm::mr::get_current_device_resource_ref());
}

/// Programs call these for what they do besides, or to see whether they throw.
void discards(rmm::device_scalar<int> const& scalar)
{
  rmm::mr::get_current_device_resource();
  rmm::mr::get_per_device_resource(rmm::cuda_device_id{0});
  rmm::mr::get_current_device_resource_ref();
  rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{0});
  rmm::mr::detail::initial_resource();
  rmm::detail::runtime_async_alloc::is_supported();
  rmm::mr::make_stream_allocator_adaptor(rmm::mr::polymorphic_allocator<int>{}, rmm::cuda_stream_view{});
  scalar.value(rmm::cuda_stream_view{});
}

}  // namespace client
