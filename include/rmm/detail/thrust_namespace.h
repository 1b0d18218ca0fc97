// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

/// @file
/// Lets this library say `thrust::` also where a program has moved Thrust into a namespace of its
/// own by THRUST_WRAPPED_NAMESPACE or CUB_WRAPPED_NAMESPACE.

#include <thrust/detail/config/namespace.h>

#ifdef THRUST_WRAPPED_NAMESPACE
namespace THRUST_WRAPPED_NAMESPACE {
namespace thrust {}
}  // namespace THRUST_WRAPPED_NAMESPACE

namespace RMM_NAMESPACE {
using namespace ::THRUST_WRAPPED_NAMESPACE;
}
#endif
