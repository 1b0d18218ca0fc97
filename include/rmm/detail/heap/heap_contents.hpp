// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>

#include <cstdint>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// Free memory that is kept in one place.
struct free_piece {
  enum class place : unsigned char {
    store,  ///< where all threads find it
    cache,  ///< of one thread and stream
    graphs  ///< kept for CUDA graphs
  };

  address_range range;
  place where{place::store};
  bool is_fenced{true};    ///< whether an event, or less, tells when other streams may use it
  std::uint64_t stream{};  ///< number of the stream that may use it at once; 0: all may
};

/// What a heap has at one moment: what is in a block and not free is allocated.
struct heap_contents {
  std::vector<address_range> blocks;  ///< ascending
  std::vector<free_piece> pieces;     ///< ascending
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
