// SPDX-License-Identifier: Apache-2.0

// The engine of the pools, compiled once for all files of a target that are compiled with RMM_COMPILED: the target rmm::rmm_compiled adds this
// file, and that definition, to those that link it. The header of each class says RMM_COMPILED_ONCE.

#include <rmm/detail/stream/cache_set.hpp>
#include <rmm/detail/stream/capture_memory.hpp>
#include <rmm/detail/stream/free_sets.hpp>
#include <rmm/detail/stream/free_store.hpp>
#include <rmm/detail/stream/graph_arena.hpp>
#include <rmm/detail/stream/memory_search.hpp>
#include <rmm/detail/stream/piece_list.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/detail/stream/stream_ordered_heap_validation.hpp>
#include <rmm/memory_snapshot.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/detail/live_by_tag.hpp>
#include <rmm/mr/detail/suballocator.hpp>
#include <rmm/mr/memory_reservation.hpp>

namespace RMM_NAMESPACE {
namespace detail {

template class basic_captured_memory<void>;
template class basic_free_store<void>;
template class basic_piece_list<void>;
template class basic_cache_set<void>;
template class basic_free_sets<void>;
template class basic_memory_search<void>;
template class graph_arena<stream_ordered_heap>;
template class basic_stream_ordered_heap<void>;

}  // namespace detail

namespace mr {
namespace detail {

template class basic_live_by_tag<void>;
template class basic_suballocator<void>;
template class basic_growing_pool<void>;

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
