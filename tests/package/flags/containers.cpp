// SPDX-License-Identifier: Apache-2.0
#include <rmm/cuda_stream.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>

int through_containers(int value)
{
  rmm::cuda_stream const stream;
  rmm::device_scalar<int> const scalar{value, stream};
  rmm::device_uvector<int> vector{3, stream};
  vector.set_element(2, scalar.value(stream), stream);
  return vector.back_element(stream);
}
