// SPDX-License-Identifier: Apache-2.0
#include <rmm/version_config.hpp>

#include <gtest/gtest.h>

namespace {

TEST(Version, IsRelease2408)
{
  static_assert(RMM_VERSION_MAJOR * 100 + RMM_VERSION_MINOR == 2408);
  static_assert(RMM_VERSION_PATCH >= 0);
#if RMM_VERSION_MAJOR < 24 || (RMM_VERSION_MAJOR == 24 && RMM_VERSION_MINOR < 8)
  FAIL() << "the numbers cannot be compared by the preprocessor";
#endif
}

}  // namespace
