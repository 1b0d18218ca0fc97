// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#ifdef RMM_NVTX
#include <nvtx3/nvtx3.hpp>
#endif

/// @file
/// RMM_FUNC_RANGE() and scoped_range, without the cost of the NVTX headers where RMM_NVTX is not defined; detail/nvtx/ranges.hpp has
/// scoped_range there too.

namespace RMM_NAMESPACE {

/// The domain of this library's ranges in profilers.
struct librmm_domain {
  static constexpr char const* name{"librmm"};
};

#ifdef RMM_NVTX
/// A range in a profiler's timeline, in this library's domain, from construction to destruction.
using scoped_range = ::nvtx3::scoped_range_in<librmm_domain>;
#endif

}  // namespace RMM_NAMESPACE

/// Marks the rest of the enclosing function in profilers, under the function's name, where RMM_NVTX
/// is defined.
#ifdef RMM_NVTX
#define RMM_FUNC_RANGE() NVTX3_FUNC_RANGE_IN(::rmm::librmm_domain)
#else
#define RMM_FUNC_RANGE()
#endif
