// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_stream.hpp>  // IWYU pragma: export

#include <memory>  // IWYU pragma: export

/// @file
/// Provides the class cuda_stream, which rmm/detail/cuda_stream.hpp defines, and <memory>, because programs rely on that.
