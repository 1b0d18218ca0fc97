// SPDX-License-Identifier: Apache-2.0
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>

namespace {

using rmm::mr::use_unrounded_sizes;

/// Records the sizes of the last calls.
struct sizes_seen : rmm::mr::device_memory_resource {
  std::size_t allocated{};
  std::size_t deallocated{};

  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override
  {
    allocated = bytes;
    return this;
  }
  void do_deallocate(void*, std::size_t bytes, rmm::cuda_stream_view) override { deallocated = bytes; }
};

std::size_t size_that_arrives(std::size_t bytes)
{
  sizes_seen resource;
  rmm::device_async_resource_ref const ref{resource};
  ref.deallocate_async(ref.allocate_async(bytes, rmm::cuda_stream_view{}), bytes, rmm::cuda_stream_view{});
  EXPECT_EQ(resource.deallocated, resource.allocated);
  return resource.allocated;
}

/// A process can choose only once, so each test body runs in a process of its own, which prints its failures.
struct SizeRoundingDeathTest : ::testing::Test {
  SizeRoundingDeathTest()
  {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    unsetenv("RMM_UNROUNDED_SIZES");
  }
};

#define IN_NEW_PROCESS(...)                                                   \
  EXPECT_EXIT(                                                                \
    {                                                                         \
      __VA_ARGS__;                                                            \
      std::exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS); \
    },                                                                        \
    ::testing::ExitedWithCode(EXIT_SUCCESS),                                  \
    "")

TEST_F(SizeRoundingDeathTest, SizesAreRoundedByDefault)
{
  IN_NEW_PROCESS(EXPECT_EQ(size_that_arrives(10), 16U));
  IN_NEW_PROCESS({
    use_unrounded_sizes(false);
    EXPECT_EQ(size_that_arrives(10), 16U);
  });
}

TEST_F(SizeRoundingDeathTest, TheProgramMayChoose)
{
  IN_NEW_PROCESS({
    use_unrounded_sizes();
    EXPECT_EQ(size_that_arrives(10), 10U);
    EXPECT_EQ(size_that_arrives(0), 0U);
    use_unrounded_sizes();  // repeats the choice
    EXPECT_EQ(size_that_arrives(17), 17U);
  });
}

TEST_F(SizeRoundingDeathTest, TheEnvironmentMayChoose)
{
  for (auto const* value : {"0", ""}) {
    IN_NEW_PROCESS({
      setenv("RMM_UNROUNDED_SIZES", value, 1);
      EXPECT_EQ(size_that_arrives(10), 16U);
    });
  }
  IN_NEW_PROCESS({
    setenv("RMM_UNROUNDED_SIZES", "1", 1);
    EXPECT_EQ(size_that_arrives(10), 10U);
  });
}

TEST_F(SizeRoundingDeathTest, TheProgramComesBeforeTheEnvironment)
{
  IN_NEW_PROCESS({
    setenv("RMM_UNROUNDED_SIZES", "1", 1);
    use_unrounded_sizes(false);
    EXPECT_EQ(size_that_arrives(10), 16U);
  });
}

TEST_F(SizeRoundingDeathTest, AnInvalidVariableIsRefusedAndFreesGoOn)
{
  IN_NEW_PROCESS({
    setenv("RMM_UNROUNDED_SIZES", "yes", 1);
    sizes_seen resource;
    rmm::device_async_resource_ref const ref{resource};
    EXPECT_THROW(static_cast<void>(ref.allocate_async(10, rmm::cuda_stream_view{})), rmm::logic_error);
    void* const block = resource.allocate(16);
    EXPECT_NO_THROW(ref.deallocate_async(block, 10, rmm::cuda_stream_view{}));
    EXPECT_EQ(resource.deallocated, 16U);
    use_unrounded_sizes(false);
    EXPECT_EQ(size_that_arrives(10), 16U);
  });
}

// Otherwise a block would be freed with another size than it was allocated with.
TEST_F(SizeRoundingDeathTest, AChoiceAfterAnAllocationIsRefused)
{
  IN_NEW_PROCESS({
    EXPECT_EQ(size_that_arrives(10), 16U);
    EXPECT_THROW(use_unrounded_sizes(), rmm::logic_error);
    EXPECT_NO_THROW(use_unrounded_sizes(false));
    EXPECT_EQ(size_that_arrives(10), 16U);
  });
  IN_NEW_PROCESS({
    use_unrounded_sizes();
    EXPECT_THROW(use_unrounded_sizes(false), rmm::logic_error);
    EXPECT_EQ(size_that_arrives(10), 10U);
  });
}

TEST_F(SizeRoundingDeathTest, AdaptorsCountTheSizesOfContainers)
{
  IN_NEW_PROCESS({
    use_unrounded_sizes();
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::limiting_resource_adaptor limiting(&cuda, 100, 1);
    rmm::mr::statistics_resource_adaptor statistics(&limiting);
    {
      rmm::device_buffer const buffer(25, rmm::cuda_stream_view{}, statistics);
      EXPECT_EQ(statistics.get_bytes_counter().value, 25);
      EXPECT_EQ(limiting.get_allocated_bytes(), 25U);
    }
    EXPECT_EQ(statistics.get_bytes_counter().value, 0);
    EXPECT_EQ(limiting.get_allocated_bytes(), 0U);
  });
}

}  // namespace
