// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#ifdef RMM_NVTX
#include <nvtx3/nvtx3.hpp>
#endif

/// @file
/// RMM_FUNC_RANGE() without the cost of the NVTX headers where it does nothing;
/// detail/nvtx/ranges.hpp has the rest.

namespace RMM_NAMESPACE {

/// The domain of this library's ranges in profilers.
struct librmm_domain {
  static constexpr char const* name{"librmm"};
};

}  // namespace RMM_NAMESPACE

/// Marks the rest of the enclosing function in profilers, under the function's name, where RMM_NVTX
/// is defined.
#ifdef RMM_NVTX
#define RMM_FUNC_RANGE() NVTX3_FUNC_RANGE_IN(::rmm::librmm_domain)
#else
#define RMM_FUNC_RANGE()
#endif
