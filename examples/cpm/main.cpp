// SPDX-License-Identifier: Apache-2.0
//
// RMM as a part of this build, through CPM, without an installation. See CMakeLists.txt.

#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/version_config.hpp>

#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>

int main()
{
  std::printf("RMM %d.%02d.%02d\n", RMM_VERSION_MAJOR, RMM_VERSION_MINOR, RMM_VERSION_PATCH);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("this machine has no GPU\n");
    return 0;
  }
  try {
    rmm::device_buffer const buffer{1 << 20, rmm::cuda_stream_default};
    std::printf("%zu bytes allocated\n", buffer.size());
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
