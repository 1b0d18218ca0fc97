// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/heap_figures.hpp>
#include <rmm/memory_snapshot.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>

#include <optional>

/// @file
/// Reads a suballocator whose type a test does not know. Finds the types that mr::configured_resource makes.

namespace rmm::test {

/// If the resource is a suballocator, calls `look` with it as its own class. Returns the result, or nothing.
template <class Answer, class Look>
std::optional<Answer> look_into(mr::device_memory_resource& mr, Look&& look)
{
  using memory = mr::device_memory_resource;
  if (auto* const pool = dynamic_cast<mr::elastic_pool_memory_resource*>(&mr)) { return look(*pool); }
  if (auto* const pool = dynamic_cast<mr::detail::growing_pool*>(&mr)) { return look(*pool); }
  if (auto* const pool = dynamic_cast<mr::pinned_pool_memory_resource*>(&mr)) { return look(*pool); }
  if (auto* const arena = dynamic_cast<mr::arena_memory_resource<memory>*>(&mr)) { return look(*arena); }
  if (auto* const bins = dynamic_cast<mr::binning_memory_resource<memory>*>(&mr)) { return look(*bins); }
  if (auto* const fixed = dynamic_cast<mr::fixed_size_memory_resource<memory>*>(&mr)) { return look(*fixed); }
  return std::nullopt;
}

/// Returns the figures of a suballocator, or nothing for another resource.
inline std::optional<heap_figures> figures_of(mr::device_memory_resource& mr)
{
  return look_into<heap_figures>(mr, [](auto const& pool) { return pool.figures(); });
}

/// Returns a snapshot of a suballocator, or nothing for another resource.
inline std::optional<memory_snapshot> snapshot_of(mr::device_memory_resource& mr)
{
  return look_into<memory_snapshot>(mr, [](auto const& pool) { return pool.snapshot(); });
}

}  // namespace rmm::test
