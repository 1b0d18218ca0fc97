// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>

#include <cstddef>

/// Queues what a query does with a partition: reads memory that the device can use, and writes it to memory of the device.
void read_on_device(void* to, void const* from, std::size_t bytes, rmm::cuda_stream_view stream);
