// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

/// @file
/// Makes `thrust::` available in namespace rmm if a program has moved Thrust into another namespace, with THRUST_WRAPPED_NAMESPACE or
/// CUB_WRAPPED_NAMESPACE.

#include <thrust/detail/config/namespace.h>

#ifdef THRUST_WRAPPED_NAMESPACE
namespace THRUST_WRAPPED_NAMESPACE {
namespace thrust {}
}  // namespace THRUST_WRAPPED_NAMESPACE

namespace RMM_NAMESPACE {
using namespace ::THRUST_WRAPPED_NAMESPACE;
}
#endif
