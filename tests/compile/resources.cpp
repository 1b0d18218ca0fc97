// SPDX-License-Identifier: Apache-2.0

// How programs name, make and derive resources: explicit instantiations, properties, deduction and mocks. Nothing here runs.

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/cuda_async_managed_memory_resource.hpp>
#include <rmm/mr/device/aligned_resource_adaptor.hpp>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/callback_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_view_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/device_memory_resource.hpp>
#include <rmm/mr/device/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/device/fixed_size_memory_resource.hpp>
#include <rmm/mr/device/limiting_resource_adaptor.hpp>
#include <rmm/mr/device/logging_resource_adaptor.hpp>
#include <rmm/mr/device/managed_memory_resource.hpp>
#include <rmm/mr/device/owning_wrapper.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/polymorphic_allocator.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/prefetch_resource_adaptor.hpp>
#include <rmm/mr/device/sam_headroom_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/device/system_memory_resource.hpp>
#include <rmm/mr/device/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/device/tracking_resource_adaptor.hpp>
#include <rmm/mr/host/host_memory_resource.hpp>
#include <rmm/mr/host/new_delete_resource.hpp>
#include <rmm/mr/host/pinned_memory_resource.hpp>
#include <rmm/mr/is_resource_adaptor.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>

#include <cstddef>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

template class rmm::mr::aligned_resource_adaptor<rmm::mr::cuda_memory_resource>;
template class rmm::mr::failure_callback_resource_adaptor<rmm::mr::cuda_memory_resource>;
template class rmm::mr::limiting_resource_adaptor<rmm::mr::cuda_memory_resource>;
template class rmm::mr::logging_resource_adaptor<rmm::mr::cuda_memory_resource>;
template class rmm::mr::prefetch_resource_adaptor<rmm::mr::cuda_memory_resource>;
template class rmm::mr::statistics_resource_adaptor<rmm::mr::cuda_memory_resource>;
template class rmm::mr::thread_safe_resource_adaptor<rmm::mr::cuda_memory_resource>;
template class rmm::mr::tracking_resource_adaptor<rmm::mr::cuda_memory_resource>;
template class rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource>;
template class rmm::mr::binning_memory_resource<rmm::mr::cuda_memory_resource>;
template class rmm::mr::fixed_size_memory_resource<rmm::mr::cuda_memory_resource>;
template class rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;
template class rmm::mr::pool_memory_resource<rmm::mr::pinned_memory_resource>;
template class rmm::mr::pool_memory_resource<rmm::mr::pinned_host_memory_resource>;

template class rmm::mr::aligned_resource_adaptor<rmm::mr::device_memory_resource>;
template class rmm::mr::failure_callback_resource_adaptor<rmm::mr::device_memory_resource, std::exception>;
template class rmm::mr::limiting_resource_adaptor<rmm::mr::device_memory_resource>;
template class rmm::mr::logging_resource_adaptor<rmm::mr::device_memory_resource>;
template class rmm::mr::prefetch_resource_adaptor<rmm::mr::device_memory_resource>;
template class rmm::mr::statistics_resource_adaptor<rmm::mr::device_memory_resource>;
template class rmm::mr::thread_safe_resource_adaptor<rmm::mr::device_memory_resource>;
template class rmm::mr::tracking_resource_adaptor<rmm::mr::device_memory_resource>;
template class rmm::mr::arena_memory_resource<rmm::mr::device_memory_resource>;
template class rmm::mr::binning_memory_resource<rmm::mr::device_memory_resource>;
template class rmm::mr::fixed_size_memory_resource<rmm::mr::device_memory_resource>;
template class rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource>;

namespace client {

using namespace rmm::mr;
using ::cuda::mr::device_accessible;
using ::cuda::mr::host_accessible;
namespace concepts = rmm::detail::polyfill;

// --- properties

template <class... Resources>
inline constexpr bool are_for_devices = (... && (concepts::resource_with<Resources, device_accessible> &&
                                                 concepts::async_resource_with<Resources, device_accessible>));

static_assert(are_for_devices<device_memory_resource,
                              callback_memory_resource,
                              cuda_async_managed_memory_resource,
                              cuda_async_memory_resource,
                              cuda_async_view_memory_resource,
                              cuda_memory_resource,
                              managed_memory_resource,
                              pinned_host_memory_resource,
                              pinned_memory_resource,
                              sam_headroom_memory_resource,
                              system_memory_resource>);
static_assert(are_for_devices<arena_memory_resource<cuda_memory_resource>,
                              binning_memory_resource<cuda_memory_resource>,
                              fixed_size_memory_resource<cuda_memory_resource>,
                              pool_memory_resource<cuda_memory_resource>,
                              pool_memory_resource<pinned_memory_resource>,
                              pool_memory_resource<pool_memory_resource<device_memory_resource>>>);
static_assert(are_for_devices<aligned_resource_adaptor<cuda_memory_resource>,
                              failure_callback_resource_adaptor<cuda_memory_resource>,
                              limiting_resource_adaptor<cuda_memory_resource>,
                              logging_resource_adaptor<cuda_memory_resource>,
                              prefetch_resource_adaptor<cuda_memory_resource>,
                              statistics_resource_adaptor<cuda_memory_resource>,
                              thread_safe_resource_adaptor<cuda_memory_resource>,
                              tracking_resource_adaptor<cuda_memory_resource>,
                              owning_wrapper<cuda_memory_resource>>);

template <class... Resources>
inline constexpr bool are_for_hosts = (... && concepts::resource_with<Resources, host_accessible>);

static_assert(are_for_hosts<system_memory_resource,
                            sam_headroom_memory_resource,
                            managed_memory_resource,
                            cuda_async_managed_memory_resource,
                            host_memory_resource,
                            new_delete_resource,
                            pinned_memory_resource,
                            pinned_host_memory_resource,
                            pool_memory_resource<pinned_memory_resource>,
                            pool_memory_resource<pinned_host_memory_resource>>);
static_assert(!concepts::resource_with<new_delete_resource, device_accessible>);
static_assert(!concepts::async_resource<new_delete_resource>);
static_assert(!concepts::resource_with<pool_memory_resource<cuda_memory_resource>, host_accessible>);

// A resource with the six functions and no property.
struct bare_resource {
  void* allocate(std::size_t, std::size_t);
  void deallocate(void*, std::size_t, std::size_t);
  void* allocate_async(std::size_t, std::size_t, cuda::stream_ref);
  void deallocate_async(void*, std::size_t, std::size_t, cuda::stream_ref);
  bool operator==(bare_resource const&) const;
  bool operator!=(bare_resource const&) const;
};
static_assert(concepts::async_resource<bare_resource>);
static_assert(!concepts::resource_with<bare_resource, device_accessible>);
static_assert(concepts::resource<pool_memory_resource<bare_resource>>);
static_assert(concepts::async_resource<pool_memory_resource<bare_resource>>);
static_assert(!concepts::resource_with<pool_memory_resource<bare_resource>, device_accessible>);
static_assert(!concepts::async_resource_with<pool_memory_resource<bare_resource>, device_accessible>);
static_assert(!concepts::resource_with<pool_memory_resource<bare_resource>, host_accessible>);

void suballocates(bare_resource& bare)
{
  pool_memory_resource<bare_resource> pool{&bare, 1024, 4096};
  pool.deallocate(pool.allocate(100), 100);
  pool_memory_resource<bare_resource> const of_object{bare, 0};
  fixed_size_memory_resource<bare_resource> const fixed{&bare, 1024};
}

// --- classes

template <class... Resources>
inline constexpr bool are_final_and_derived = (... && (std::is_final_v<Resources> &&
                                                       std::is_base_of_v<device_memory_resource, Resources>));
static_assert(are_final_and_derived<callback_memory_resource,
                                    cuda_async_memory_resource,
                                    cuda_async_view_memory_resource,
                                    cuda_memory_resource,
                                    managed_memory_resource,
                                    pinned_host_memory_resource,
                                    sam_headroom_memory_resource,
                                    system_memory_resource,
                                    arena_memory_resource<cuda_memory_resource>,
                                    binning_memory_resource<cuda_memory_resource>,
                                    pool_memory_resource<cuda_memory_resource>,
                                    tracking_resource_adaptor<cuda_memory_resource>>);
static_assert(!std::is_final_v<fixed_size_memory_resource<cuda_memory_resource>>);
static_assert(!std::is_final_v<owning_wrapper<cuda_memory_resource>>);

template <class... Resources>
inline constexpr bool are_copied = (... &&
                                    (std::is_copy_constructible_v<Resources> && std::is_copy_assignable_v<Resources> &&
                                     std::is_default_constructible_v<Resources>));
static_assert(are_copied<cuda_memory_resource,
                         managed_memory_resource,
                         system_memory_resource,
                         cuda_async_view_memory_resource,
                         new_delete_resource,
                         pinned_memory_resource,
                         pinned_host_memory_resource>);

template <class... Resources>
inline constexpr bool stay_in_place = (... &&
                                       !(std::is_copy_constructible_v<Resources> ||
                                         std::is_move_constructible_v<Resources> ||
                                         std::is_copy_assignable_v<Resources> || std::is_move_assignable_v<Resources> ||
                                         std::is_default_constructible_v<Resources>));
static_assert(stay_in_place<sam_headroom_memory_resource,
                            arena_memory_resource<cuda_memory_resource>,
                            binning_memory_resource<cuda_memory_resource>,
                            fixed_size_memory_resource<cuda_memory_resource>,
                            pool_memory_resource<cuda_memory_resource>,
                            aligned_resource_adaptor<cuda_memory_resource>,
                            thread_safe_resource_adaptor<cuda_memory_resource>>);

template <class... Adaptors>
inline constexpr bool are_moved = (... && (std::is_nothrow_move_constructible_v<Adaptors> &&
                                           std::is_nothrow_move_assignable_v<Adaptors> &&
                                           !std::is_copy_constructible_v<Adaptors>));
static_assert(are_moved<logging_resource_adaptor<cuda_memory_resource>,
                        failure_callback_resource_adaptor<cuda_memory_resource>,
                        prefetch_resource_adaptor<cuda_memory_resource>>);
static_assert(std::is_move_constructible_v<callback_memory_resource>);

// --- member types

static_assert(aligned_resource_adaptor<cuda_memory_resource>::default_alignment_threshold == 0);
static_assert(
  std::is_same_v<failure_callback_resource_adaptor<cuda_memory_resource>::exception_type, rmm::out_of_memory>);
static_assert(std::is_same_v<failure_callback_t, std::function<bool(std::size_t, void*)>>);
static_assert(std::is_same_v<thread_safe_resource_adaptor<cuda_memory_resource>::lock_t, std::lock_guard<std::mutex>>);
static_assert(std::is_same_v<statistics_resource_adaptor<cuda_memory_resource>::read_lock_t,
                             tracking_resource_adaptor<cuda_memory_resource>::read_lock_t>);
static_assert(
  std::is_same_v<statistics_resource_adaptor<cuda_memory_resource>::read_lock_t, std::shared_lock<std::shared_mutex>>);
static_assert(
  std::is_same_v<tracking_resource_adaptor<cuda_memory_resource>::write_lock_t, std::unique_lock<std::shared_mutex>>);
using tracked = tracking_resource_adaptor<cuda_memory_resource>::allocation_info;
static_assert(!std::is_default_constructible_v<tracked> && std::is_constructible_v<tracked, std::size_t, bool>);
static_assert(std::is_same_v<decltype(tracked::strace), std::unique_ptr<rmm::detail::stack_trace>>);
static_assert(
  std::is_same_v<owning_wrapper<prefetch_resource_adaptor<cuda_memory_resource>, cuda_memory_resource>::upstream_tuple,
                 std::tuple<std::shared_ptr<cuda_memory_resource>>>);

// --- deduction

template <class Deduced, template <class...> class Expected, class Upstream>
inline constexpr bool deduces = std::is_same_v<std::remove_const_t<Deduced>, Expected<Upstream>>;

void deduces_from_pointers(cuda_memory_resource& cuda, device_memory_resource* base)
{
  pool_memory_resource const pool{&cuda, 1024};
  pool_memory_resource const bounded{&cuda, 1024, 4096};
  pool_memory_resource const over_base(base, 1024);
  binning_memory_resource const binning{&cuda, 18, 22};
  binning_memory_resource const no_bins{base};
  fixed_size_memory_resource const fixed{&cuda};
  arena_memory_resource const arena{&cuda, 1 << 20};
  limiting_resource_adaptor const limiting{&cuda, 1024};
  logging_resource_adaptor const named{&cuda, "file"};
  logging_resource_adaptor const unnamed{&cuda};
  logging_resource_adaptor const streamed{&cuda, std::cout};
  statistics_resource_adaptor const statistics{&cuda};
  tracking_resource_adaptor const tracking{&cuda, true};
  aligned_resource_adaptor const aligned{&cuda, 4096};
  prefetch_resource_adaptor const prefetch{&cuda};
  thread_safe_resource_adaptor const thread_safe{&cuda};
  failure_callback_resource_adaptor const failure{&cuda, [](std::size_t, void*) { return false; }, nullptr};
  std::unique_ptr<device_memory_resource> const allocated{new pool_memory_resource(base, 1024, 2048)};
  static_assert(deduces<decltype(pool), pool_memory_resource, cuda_memory_resource>);
  static_assert(deduces<decltype(over_base), pool_memory_resource, device_memory_resource>);
  static_assert(deduces<decltype(binning), binning_memory_resource, cuda_memory_resource>);
  static_assert(deduces<decltype(fixed), fixed_size_memory_resource, cuda_memory_resource>);
  static_assert(deduces<decltype(arena), arena_memory_resource, cuda_memory_resource>);
  static_assert(deduces<decltype(limiting), limiting_resource_adaptor, cuda_memory_resource>);
  static_assert(deduces<decltype(unnamed), logging_resource_adaptor, cuda_memory_resource>);
  static_assert(deduces<decltype(tracking), tracking_resource_adaptor, cuda_memory_resource>);
}

void deduces_from_references(rmm::device_async_resource_ref ref)
{
  pool_memory_resource const pool{ref, 1024};
  pool_memory_resource const bounded{ref, 1024, 4096};
  binning_memory_resource const binning{ref, 18, 22};
  fixed_size_memory_resource const fixed{ref, 1024};
  arena_memory_resource const arena{ref, 1 << 20};
  limiting_resource_adaptor const limiting{ref, 1024};
  logging_resource_adaptor const named{ref, "file"};
  statistics_resource_adaptor const statistics{ref};
  tracking_resource_adaptor const tracking{ref, true};
  aligned_resource_adaptor const aligned{ref, 4096};
  prefetch_resource_adaptor const prefetch{ref};
  thread_safe_resource_adaptor const thread_safe{ref};
  failure_callback_resource_adaptor const failure{ref, [](std::size_t, void*) { return false; }, nullptr};
  static_assert(deduces<decltype(pool), pool_memory_resource, device_memory_resource>);
  static_assert(deduces<decltype(arena), arena_memory_resource, device_memory_resource>);
  static_assert(deduces<decltype(statistics), statistics_resource_adaptor, device_memory_resource>);
}

// Definitions in the style of 26.06, over objects.
void deduces_from_objects(cuda_memory_resource& cuda, pool_memory_resource<cuda_memory_resource>& upstream)
{
  pool_memory_resource const pool{cuda, 1024};
  pool_memory_resource const bounded{upstream, 1024, 4096};
  binning_memory_resource const binning{upstream, 18, 22};
  fixed_size_memory_resource const fixed{cuda};
  arena_memory_resource const arena{cuda, 1 << 20};
  limiting_resource_adaptor const limiting{upstream, 1024};
  logging_resource_adaptor const named{cuda, "file"};
  statistics_resource_adaptor const statistics{cuda};
  tracking_resource_adaptor const tracking{upstream, true};
  aligned_resource_adaptor const aligned{cuda, 4096};
  prefetch_resource_adaptor const prefetch{cuda};
  thread_safe_resource_adaptor const thread_safe{upstream};
}

// A temporary would be gone before its first use.
static_assert(!std::is_constructible_v<limiting_resource_adaptor<cuda_memory_resource>, cuda_memory_resource, int>);
static_assert(!std::is_constructible_v<pool_memory_resource<cuda_memory_resource>, cuda_memory_resource, int>);
static_assert(std::is_constructible_v<limiting_resource_adaptor<cuda_memory_resource>, cuda_memory_resource&, int>);
static_assert(std::is_constructible_v<pool_memory_resource<cuda_memory_resource>, cuda_memory_resource&, int>);

// A mock over which 25.x tests make adaptors: an object, with its class spelled out.
struct recorder : device_memory_resource {
  void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return nullptr; }
  void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) noexcept override {}
  bool operator==(recorder const&) const noexcept { return true; }
  bool operator!=(recorder const&) const noexcept { return false; }
  friend void get_property(recorder const&, device_accessible) noexcept {}
};
static_assert(are_for_devices<recorder>);

void spells_out(recorder& resource)
{
  aligned_resource_adaptor<recorder> const aligned{resource};
  aligned_resource_adaptor<recorder> const stricter{&resource, 4096, 65536};
  limiting_resource_adaptor<recorder> const limiting{resource, 1024};
  logging_resource_adaptor<recorder> const logging{resource, "file", true};
  statistics_resource_adaptor<recorder> const statistics{resource};
  tracking_resource_adaptor<device_memory_resource> const tracking{resource, true};
  pool_memory_resource<recorder> const pool{resource, 1024};
  pool_memory_resource<device_memory_resource> const base{resource, 1024};
  fixed_size_memory_resource<device_memory_resource> const fixed{resource, 1024};
  binning_memory_resource<recorder> const binning{resource, 18, 22};
  arena_memory_resource<recorder> const arena{resource, 1 << 20};
}

// --- null and integers choose the right overloads

void chooses(cuda_memory_resource& cuda)
{
  pool_memory_resource<cuda_memory_resource> const null_pool{nullptr, 0};
  pool_memory_resource<cuda_memory_resource> const ints{&cuda, 1024, 256};
  pool_memory_resource<device_memory_resource> const base{get_current_device_resource_ref(), 0};
  limiting_resource_adaptor<cuda_memory_resource> const null_limiting{nullptr, 0};
  tracking_resource_adaptor<cuda_memory_resource> const null_tracking{nullptr};
  binning_memory_resource<cuda_memory_resource> binning{&cuda};
  binning.add_bin(1024);
  binning.add_bin(1024, nullptr);
  binning.add_bin(1024, std::nullopt);
  binning.add_bin(1024, &cuda);
  binning.add_bin(1024, cuda);
  binning.add_bin(1024, rmm::device_async_resource_ref{cuda});
  static_cast<void>(cuda.allocate(100));
  static_cast<void>(cuda.allocate(100, 256));
  static_cast<void>(cuda.allocate(0, 256));
  static_cast<void>(cuda.allocate(100, rmm::cuda_stream{}));
  static_cast<void>(cuda.allocate(100, cudaStream_t{}));
  static_cast<void>(cuda.allocate(cudaStream_t{}, 100));
  static_cast<void>(cuda.allocate(rmm::cuda_stream_view{}, 100, 256));
  cuda.deallocate(nullptr, 0);
  cuda.deallocate(nullptr, 0, 256);
  cuda.deallocate(nullptr, 0, rmm::cuda_stream_default);
  cuda.deallocate(rmm::cuda_stream_default, nullptr, 0);
}

// Calls that throw or that have an effect may be made for that alone, without a warning: tests expect exceptions of them.
void leaves_results(cuda_memory_resource& cuda, rmm::cuda_stream_pool const& streams)
{
  streams.get_stream();
  streams.get_stream(1);
  make_logging_adaptor(&cuda);
  make_logging_adaptor(&cuda, std::cout);
  make_limiting_adaptor(&cuda, 1024);
  make_statistics_adaptor(&cuda);
  make_tracking_adaptor(&cuda);
  make_owning_wrapper<pool_memory_resource>(std::make_shared<cuda_memory_resource>(), 1000);
  make_owning_wrapper<limiting_resource_adaptor>(std::make_tuple(std::make_shared<cuda_memory_resource>()), 1000);
  logging_resource_adaptor<cuda_memory_resource>::get_default_filename();
  rmm::to_device_async_resource_ref_checked(&cuda);
  rmm::mr::detail::is_system_memory_supported(rmm::cuda_device_id{0});
  cuda.allocate(100);
  set_current_device_resource(&cuda);
  set_current_device_resource_ref(cuda);
  reset_current_device_resource_ref();
  statistics_resource_adaptor<cuda_memory_resource> statistics{&cuda};
  statistics.push_counters();
  statistics.pop_counters();
  rmm::device_uvector<int> vector(1, rmm::cuda_stream_default);
  vector.element(0, rmm::cuda_stream_default);
  vector.front_element(rmm::cuda_stream_default);
  vector.release();
}

// --- ownership

std::shared_ptr<device_memory_resource> owns()
{
  auto cuda   = std::make_shared<cuda_memory_resource>();
  auto pool   = make_owning_wrapper<pool_memory_resource>(cuda, 1024, 4096);
  auto arena  = make_owning_wrapper<arena_memory_resource>(cuda);
  auto fixed  = make_owning_wrapper<fixed_size_memory_resource>(cuda, 1024);
  auto limit  = make_owning_wrapper<limiting_resource_adaptor>(std::make_tuple(cuda), 1024);
  auto moving = make_owning_wrapper<prefetch_resource_adaptor>(std::make_shared<managed_memory_resource>());
  auto pinned = make_owning_wrapper<pool_memory_resource>(std::make_shared<pinned_host_memory_resource>(), 1024);
  auto shared = std::make_shared<statistics_resource_adaptor<cuda_memory_resource>>(cuda.get());
  static_assert(is_resource_adaptor<decltype(*shared)> && !is_resource_adaptor<decltype(*cuda)>);
  int const smallest = 18;
  return make_owning_wrapper<binning_memory_resource>(pool, smallest, 22);
}

}  // namespace client
