// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/thrust_namespace.h>
#include <rmm/detail/export.hpp>
#include <rmm/mr/thrust_allocator_adaptor.hpp>

#include <thrust/device_vector.h>

namespace RMM_NAMESPACE {

/// A thrust::device_vector with memory from RMM's resources. Use it where elements have to be initialised: unlike device_uvector it
/// does so, on the default stream.
template <class T>
using device_vector = thrust::device_vector<T, mr::thrust_allocator<T>>;

}  // namespace RMM_NAMESPACE
