// SPDX-License-Identifier: Apache-2.0
#include <rmm/memory_snapshot.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/memory_reservation.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cstddef>
#include <vector>

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

bool uses(rmm::mr::device_memory_resource& resource)
{
  std::vector<void*> blocks;
  for (std::size_t size = 1; size != 16 * MiB; size *= 2) { blocks.push_back(resource.allocate(size)); }
  std::size_t bytes = 1;
  for (void* const block : blocks) {
    resource.deallocate(block, bytes);
    bytes *= 2;
  }
  return true;
}

}  // namespace

bool allocate_and_free();

bool allocate_and_free()
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 64 * MiB};
  rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> arena{&cuda, 64 * MiB};
  rmm::mr::cached_memory_resource<rmm::mr::cuda_memory_resource> cached{&cuda};
  rmm::mr::elastic_pool_memory_resource elastic;
  rmm::mr::binning_memory_resource<decltype(pool)> bins{&pool, 18, 20};
  bool good = uses(pool) && uses(arena) && uses(cached) && uses(elastic) && uses(bins);

  auto kept = pool.reserve(4 * MiB);
  kept.resource().deallocate(kept.resource().allocate(MiB), MiB);
  pool.track_tags();
  void* const block = pool.allocate(MiB);
  good              = good && pool.snapshot().figures.live_bytes >= MiB && pool.figures().live_bytes >= MiB;
  pool.deallocate(block, MiB);
  return good;
}
