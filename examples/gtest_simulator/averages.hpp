// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>

#include <vector>

/// The average of each two neighbours in `values`, of which there are at least two.
///
/// Copies on `copying` and computes on `computing`, so that several calls overlap; waits for the result.
/// Throws what RMM throws: out_of_memory, cuda_error. Nothing stays allocated then.
std::vector<float> averages_of_neighbours(std::vector<float> const& values,
                                          rmm::cuda_stream_view copying,
                                          rmm::cuda_stream_view computing);
