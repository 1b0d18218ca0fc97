// SPDX-License-Identifier: Apache-2.0

#include <rmm/cuda_stream_view.hpp>
#include <rmm/version_config.hpp>
#ifdef WITH_SIMULATOR
#include <rmm/device_buffer.hpp>
#endif

#include <cstdio>

int main()
{
  std::printf("RMM %d.%02d.%02d\n", RMM_VERSION_MAJOR, RMM_VERSION_MINOR, RMM_VERSION_PATCH);
#ifdef WITH_SIMULATOR
  rmm::device_buffer const buffer{1000, rmm::cuda_stream_default};
  return buffer.size() == 1000 ? 0 : 1;
#else
  return rmm::cuda_stream_default.is_default() ? 0 : 1;
#endif
}
