// SPDX-License-Identifier: Apache-2.0

// Thrust as it comes with rmm, on the host system.

#include <thrust/host_vector.h>
#include <thrust/reduce.h>

int main()
{
  thrust::host_vector<int> const ones(10, 1);
  return thrust::reduce(ones.begin(), ones.end()) == 10 ? 0 : 1;
}
