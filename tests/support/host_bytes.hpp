// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <malloc.h>

#include <cstddef>

namespace rmm::test {

/// Bytes of host memory that the process has allocated; 0 where the C library does not tell.
inline std::size_t allocated_host_bytes()
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  auto const now = mallinfo2();
  return now.uordblks + now.hblkhd;
#else
  return 0;
#endif
}

}  // namespace rmm::test
