// SPDX-License-Identifier: Apache-2.0

// Tests ranges with RMM_NVTX.
#ifndef RMM_NVTX
#define RMM_NVTX
#endif
#include <rmm/detail/nvtx/ranges.hpp>

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

namespace {

int marked_function(int value)
{
  RMM_FUNC_RANGE();
  return value + 1;
}

TEST(NvtxRanges, HaveADomainOfTheirOwn) { EXPECT_EQ(std::string{rmm::librmm_domain::name}, "librmm"); }

TEST(NvtxRanges, ScopedRangeIsTheTypeOfNvtx)
{
  static_assert(std::is_same_v<rmm::scoped_range, nvtx3::scoped_range_in<rmm::librmm_domain>>);
  rmm::scoped_range const range{"a test"};
}

TEST(NvtxRanges, DoNotChangeMarkedFunctions) { EXPECT_EQ(marked_function(1), 2); }

}  // namespace
