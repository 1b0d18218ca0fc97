// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/utilities/device_work.hpp>

rmm::benchmarks::device_work rmm::benchmarks::device_work_kind() { return device_work::none; }

bool rmm::benchmarks::run_on_device(cudaStream_t, void*, unsigned) { return false; }
