// SPDX-License-Identifier: Apache-2.0

// Tests RMM_FUNC_RANGE without RMM_NVTX.
#undef RMM_NVTX
#include <rmm/detail/nvtx/func_range.hpp>

#include <gtest/gtest.h>

namespace {

#define TEXT_OF(...) #__VA_ARGS__
#define EXPANDED(...) TEXT_OF(__VA_ARGS__)

TEST(NvtxFuncRange, ExpandsToNothingWhereRangesAreOff) { EXPECT_STREQ(EXPANDED(RMM_FUNC_RANGE()), ""); }

}  // namespace
