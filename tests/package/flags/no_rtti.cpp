// SPDX-License-Identifier: Apache-2.0
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/error.hpp>
#include <rmm/version_config.hpp>

#include <new>

int main()
{
  rmm::cuda_stream_pool const streams{2};
  streams.get_stream().synchronize();
  try {
    throw rmm::out_of_memory{"expected"};
  } catch (std::bad_alloc const&) {
    return rmm::get_current_cuda_device() == rmm::cuda_device_id{0} ? 0 : 1;
  }
}
