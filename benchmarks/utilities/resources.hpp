// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/owning_wrapper.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cstddef>
#include <memory>
#include <optional>

namespace rmm::benchmarks {

/// A resource that keeps its upstreams alive.
using resource_ptr = std::shared_ptr<rmm::mr::device_memory_resource>;

inline resource_ptr make_cuda() { return std::make_shared<rmm::mr::cuda_memory_resource>(); }

inline resource_ptr make_cuda_async() { return std::make_shared<rmm::mr::cuda_async_memory_resource>(); }

/// Makes a pool of half of the free memory.
inline auto make_pool()
{
  return rmm::mr::make_owning_wrapper<rmm::mr::pool_memory_resource>(std::make_shared<rmm::mr::cuda_memory_resource>(),
                                                                     rmm::percent_of_free_device_memory(50));
}

/// Makes bins of 256 KiB to 4 MiB over make_pool().
inline resource_ptr make_binning()
{
  return rmm::mr::make_owning_wrapper<rmm::mr::binning_memory_resource>(make_pool(), 18, 22);
}

inline resource_ptr make_arena(std::optional<std::size_t> bytes = std::nullopt)
{
  return rmm::mr::make_owning_wrapper<rmm::mr::arena_memory_resource>(std::make_shared<rmm::mr::cuda_memory_resource>(),
                                                                      bytes);
}

/// Makes an arena of all free memory except 64 MiB.
inline resource_ptr make_large_arena()
{
  constexpr std::size_t reserve = std::size_t{64} << 20U;
  return make_arena(rmm::available_device_memory().first - reserve);
}

}  // namespace rmm::benchmarks
