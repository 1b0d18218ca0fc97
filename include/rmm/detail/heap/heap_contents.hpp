// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>

#include <cstdint>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// A free piece of memory, and where it lies.
struct free_piece {
  enum class place : unsigned char {
    store,  ///< where all threads find it
    cache,  ///< of one thread and stream
    graphs  ///< kept for CUDA graphs
  };

  address_range range;
  place where{place::store};
  bool is_fenced{true};    ///< whether other streams may use it at once or after an event
  std::uint64_t stream{};  ///< number of the stream that may use it at once; 0: all may
};

/// The contents of a heap at one moment. Memory of a block that is not free is allocated.
struct heap_contents {
  std::vector<address_range> blocks;  ///< ascending
  std::vector<free_piece> pieces;     ///< ascending
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
