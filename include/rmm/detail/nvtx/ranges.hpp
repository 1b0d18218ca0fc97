// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/nvtx/func_range.hpp>

#if !defined(RMM_NVTX) && __has_include(<nvtx3/nvtx3.hpp>)
#include <nvtx3/nvtx3.hpp>

namespace RMM_NAMESPACE {

/// A range in a profiler's timeline, in this library's domain, from construction to destruction.
using scoped_range = ::nvtx3::scoped_range_in<librmm_domain>;

}  // namespace RMM_NAMESPACE
#endif
