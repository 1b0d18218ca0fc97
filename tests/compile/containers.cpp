// SPDX-License-Identifier: Apache-2.0

// Compiled, never run: explicit instantiations, and calls that more than one overload could be meant by.

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/polymorphic_allocator.hpp>
#include <rmm/prefetch.hpp>
#include <rmm/resource_ref.hpp>

#include <cuda/std/span>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#if __cplusplus >= 202002L
#include <span>
#endif

namespace {
struct record {
  explicit record(int);
  std::int64_t values[4];
};
struct opaque {
  opaque() = delete;
  int value;
};
}  // namespace

template class rmm::device_uvector<int>;
template class rmm::device_uvector<bool>;
template class rmm::device_uvector<record>;
template class rmm::device_uvector<void*>;
template class rmm::device_scalar<int>;
template class rmm::device_scalar<bool>;
template class rmm::device_scalar<double>;
template class rmm::device_scalar<opaque>;
template class rmm::mr::polymorphic_allocator<int>;
template class rmm::mr::stream_allocator_adaptor<rmm::mr::polymorphic_allocator<int>>;

void expect_ints(cuda::std::span<int>);
void expect_const_ints(cuda::std::span<int const>);

rmm::device_uvector<int> make(std::size_t size,
                              rmm::cuda_stream_view stream,
                              rmm::device_async_resource_ref mr = rmm::mr::get_current_device_resource())
{
  return rmm::device_uvector<int>(size, stream, mr);
}

void vectors(rmm::cuda_stream const& owner,
             cudaStream_t handle,
             rmm::mr::cuda_memory_resource& resource,
             rmm::mr::device_memory_resource* base,
             rmm::device_async_resource_ref ref)
{
  rmm::cuda_stream_view const view{owner};
  int const size = 5;
  rmm::device_uvector<std::uint8_t> const from_braces{5, owner};
  rmm::device_uvector<std::uint8_t> const from_parentheses(5, owner);
  rmm::device_uvector<int> const from_int(static_cast<std::size_t>(size), view, &resource);
  rmm::device_uvector<int> const from_zero(0, view);
  rmm::device_uvector<int> const on_handle(5, handle, resource);
  rmm::device_uvector<int> const on_base(5, view, base);
  rmm::device_uvector<int> const on_ref{5, view, ref};
  rmm::device_uvector<int> const on_current(5, view, rmm::mr::get_current_device_resource());
  rmm::device_uvector<int> const copy(on_ref, view);
  rmm::device_uvector<int> const copy_elsewhere{on_ref, view, &resource};
  auto made         = make(5, view);
  made              = make(6, owner, base);
  auto const shared = std::make_shared<rmm::device_uvector<int>>(5, view, base);
  auto const unique = std::make_unique<rmm::device_buffer>(made.release());
}

void spans(rmm::device_uvector<int>& vector, rmm::device_uvector<int> const& constant, rmm::cuda_stream_view stream)
{
  expect_ints(vector);
  expect_const_ints(vector);
  expect_const_ints(constant);
  [[maybe_unused]] cuda::std::span<int> const copied              = vector;
  [[maybe_unused]] cuda::std::span<int const> const copied_const  = vector;
  [[maybe_unused]] cuda::std::span<int const> const constant_copy = constant;
  [[maybe_unused]] cuda::std::span<int> const braces{vector};
  [[maybe_unused]] cuda::std::span<int const> const braces_const{vector};
  [[maybe_unused]] cuda::std::span<int const> const parentheses(constant);
  [[maybe_unused]] auto const cast       = static_cast<cuda::std::span<int>>(vector);
  [[maybe_unused]] auto const cast_const = static_cast<cuda::std::span<int const>>(constant);
#if __cplusplus >= 202002L
  [[maybe_unused]] std::span<int> const standard             = vector;
  [[maybe_unused]] std::span<int const> const standard_const = constant;
#endif
  auto const device = rmm::get_current_cuda_device();
  rmm::prefetch<int>(vector, device, stream);
  rmm::prefetch<int>(constant, device, stream);
  rmm::prefetch<int>({vector.begin(), vector.end()}, device, stream);
}

template <class T>
void scalars(rmm::cuda_stream const& owner,
             cudaStream_t handle,
             rmm::mr::cuda_memory_resource& resource,
             rmm::device_async_resource_ref ref)
{
  rmm::cuda_stream_view const view{owner};
  rmm::device_scalar<T> const no_value{owner};
  rmm::device_scalar<T> const no_value_on_view(view);
  rmm::device_scalar<T> const no_value_on_handle{handle};
  rmm::device_scalar<T> const no_value_from_object{owner, resource};
  rmm::device_scalar<T> const no_value_from_pointer(view, &resource);
  rmm::device_scalar<T> const no_value_from_ref{handle, ref};
  rmm::device_scalar<T> const zero(0, owner);
  rmm::device_scalar<T> const zero_in_braces{0, view};
  rmm::device_scalar<T> const one{1, owner, resource};
  rmm::device_scalar<T> const two(T(2), handle, &resource);
  rmm::device_scalar<T> const copy{one, view};
  rmm::device_scalar<T> const copy_elsewhere(one, owner, ref);
}

template void scalars<bool>(rmm::cuda_stream const&,
                            cudaStream_t,
                            rmm::mr::cuda_memory_resource&,
                            rmm::device_async_resource_ref);
template void scalars<int>(rmm::cuda_stream const&,
                           cudaStream_t,
                           rmm::mr::cuda_memory_resource&,
                           rmm::device_async_resource_ref);
template void scalars<std::size_t>(rmm::cuda_stream const&,
                                   cudaStream_t,
                                   rmm::mr::cuda_memory_resource&,
                                   rmm::device_async_resource_ref);
template void scalars<double>(rmm::cuda_stream const&,
                              cudaStream_t,
                              rmm::mr::cuda_memory_resource&,
                              rmm::device_async_resource_ref);

void allocators(rmm::cuda_stream_view stream, rmm::mr::cuda_memory_resource& resource)
{
  rmm::mr::polymorphic_allocator<char> const from_pointer{&resource};
  rmm::mr::polymorphic_allocator<char> const from_object(resource);
  rmm::mr::polymorphic_allocator<char> const from_registry{rmm::mr::get_current_device_resource()};
  rmm::mr::stream_allocator_adaptor adaptor{from_pointer, stream};
  [[maybe_unused]] auto const made =
    rmm::mr::make_stream_allocator_adaptor(rmm::mr::polymorphic_allocator<char>{}, stream);
  typename std::allocator_traits<decltype(adaptor)>::template rebind_alloc<int> const rebound{adaptor};
}

void resources(int& first, int& second)
{
  auto allocate   = [](std::size_t, rmm::cuda_stream_view, void*) -> void* { return nullptr; };
  auto deallocate = [](void*, std::size_t, rmm::cuda_stream_view, void*) {};
  auto callback   = rmm::mr::callback_memory_resource(allocate, deallocate, &first, &second);
  rmm::mr::callback_memory_resource const without{allocate, deallocate};

  rmm::mr::cuda_async_memory_resource const plain{};
  rmm::mr::cuda_async_memory_resource const sized{1 << 20};
  rmm::mr::cuda_async_memory_resource const sized_twice(1UL << 20, 1UL << 21);
  rmm::mr::cuda_async_memory_resource const exported{
    {}, {}, rmm::mr::cuda_async_memory_resource::allocation_handle_type::fabric};
  auto const shared = std::make_shared<rmm::mr::cuda_async_memory_resource>();

  rmm::mr::pinned_host_memory_resource pinned;
  [[maybe_unused]] rmm::host_device_async_resource_ref const both{pinned};
  [[maybe_unused]] rmm::device_async_resource_ref const device_only = both;
  [[maybe_unused]] rmm::host_async_resource_ref const host_only     = pinned;
}
