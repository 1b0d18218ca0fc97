// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_stream.hpp>  // IWYU pragma: export

#include <memory>  // IWYU pragma: export

/// @file
/// Provides the class cuda_stream; its definition is in rmm/detail/cuda_stream.hpp. Also includes the C++ library's header memory,
/// because existing programs use that without including it.
