// SPDX-License-Identifier: Apache-2.0
#include <rmm/device_buffer.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cstddef>

/// Calls `work` with a pool as the current resource, and returns how many bytes the pool has taken.
std::size_t with_pool(void (*work)())
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::limiting_resource_adaptor limited{&cuda, 1 << 20};
  rmm::mr::pool_memory_resource pool{&limited, 1 << 16};
  rmm::mr::set_current_device_resource(&pool);
  work();
  rmm::mr::set_current_device_resource(nullptr);
  return pool.pool_size();
}
