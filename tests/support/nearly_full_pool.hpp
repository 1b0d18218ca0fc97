// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <memory>

namespace rmm::test {

inline constexpr std::size_t live_in_nearly_full_pool = std::size_t{440} << 20U;

/// Makes a pool of 512 MiB in which one block takes 86 %. So memory is scarce, and caches gather blocks of 64 to 512 KiB.
inline std::shared_ptr<mr::device_memory_resource> nearly_full_pool()
{
  auto pool         = mr::configured_resource{"pool,initial=512MiB,max=512MiB"}.share();
  auto* const block = pool->allocate(live_in_nearly_full_pool);
  auto const end    = [pool, block](auto*) { pool->deallocate(block, live_in_nearly_full_pool); };
  return {pool.get(), end};  // calls end() if it throws
}

}  // namespace rmm::test
