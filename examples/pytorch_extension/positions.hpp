// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>

#include <cstdint>

/// Writes the positions of the nonzero bytes of `mask` to `positions`, which has room for `size` of them, and returns their number.
/// Works on `stream` and waits for it.
std::int64_t find_positions(bool const* mask, std::int64_t size, std::int64_t* positions, rmm::cuda_stream_view stream);
