// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>

#include <vector>

/// Returns the average of each pair of neighbours in `values`, which has at least two elements.
///
/// Copies on the stream `copying` and computes on `computing`, so that several calls overlap, and waits for the result. Throws
/// rmm::out_of_memory and rmm::cuda_error, and frees all its memory then.
std::vector<float> averages_of_neighbours(std::vector<float> const& values,
                                          rmm::cuda_stream_view copying,
                                          rmm::cuda_stream_view computing);
