// SPDX-License-Identifier: Apache-2.0

// A library of the consumer that knows rmm and not the simulator.

#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>

bool holds_while_allocated(bool (*condition)())
{
  rmm::mr::cuda_memory_resource mr;
  void* const ptr   = mr.allocate(1000, rmm::cuda_stream_default);
  bool const result = condition();
  mr.deallocate(ptr, 1000, rmm::cuda_stream_default);
  return result;
}
