// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/heap/placement_validation.hpp>
#include <rmm/detail/heap/range_set_validation.hpp>
#include <rmm/detail/stream/capture_memory_validation.hpp>
#include <rmm/detail/stream/shared_free_lists_validation.hpp>
#include <rmm/detail/stream/stream_cache_validation.hpp>

/// @file
/// All checks that those of a stream_ordered_heap are made of, for tests that call its check_invariants().
///
/// A heap checks itself after each n-th change, outside of its locks, with
/// `RMM_ASSERT_EXPENSIVE(!is_check_due<basic_stream_ordered_heap>(pieces) || check_invariants())`: see
/// detail/base/invariant_clock.hpp.
