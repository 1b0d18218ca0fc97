// SPDX-License-Identifier: Apache-2.0
#include "../../support/sanitizers.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device/sam_headroom_memory_resource.hpp>
#include <rmm/mr/device/system_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>

namespace {

using rmm::mr::sam_headroom_memory_resource;
using rmm::mr::system_memory_resource;
using ::testing::HasSubstr;

template <class Resource>
constexpr bool is_host_and_device = rmm::detail::polyfill::async_resource_with<Resource, cuda::mr::device_accessible>&&
  rmm::detail::polyfill::async_resource_with<Resource, cuda::mr::host_accessible>;

static_assert(std::is_final_v<system_memory_resource> && is_host_and_device<system_memory_resource>);
static_assert(std::is_copy_constructible_v<system_memory_resource>);
static_assert(std::is_final_v<sam_headroom_memory_resource> && is_host_and_device<sam_headroom_memory_resource>);
static_assert(!std::is_default_constructible_v<sam_headroom_memory_resource>);
static_assert(!std::is_copy_constructible_v<sam_headroom_memory_resource>);
static_assert(!std::is_move_constructible_v<sam_headroom_memory_resource>);
static_assert(!std::is_convertible_v<std::size_t, sam_headroom_memory_resource>);

constexpr std::size_t pebibyte = std::size_t{1} << 50;

[[nodiscard]] bool is_supported()
{
  return rmm::mr::detail::is_system_memory_supported(rmm::get_current_cuda_device());
}

TEST(SystemMemorySupport, MatchesTheDeviceAttribute)
{
  auto const device = rmm::get_current_cuda_device();
  int value{};
  ASSERT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrPageableMemoryAccess, device.value()), cudaSuccess);
  EXPECT_EQ(rmm::mr::detail::is_system_memory_supported(device), value == 1);
}

TEST(SystemMemorySupport, IsNeededByTheResources)
{
  if (is_supported()) { GTEST_SKIP() << "the device can use the host's memory"; }
  EXPECT_THROW(system_memory_resource{}, rmm::logic_error);
  EXPECT_THROW(sam_headroom_memory_resource{0}, rmm::logic_error);
}

struct SystemMemoryResource : ::testing::Test {
  void SetUp() override
  {
    if (!is_supported()) { GTEST_SKIP() << "the device cannot use the host's memory"; }
  }
  rmm::cuda_stream stream;
};

TEST_F(SystemMemoryResource, GivesAlignedHostMemory)
{
  system_memory_resource resource;
  for (auto const bytes : std::initializer_list<std::size_t>{1, 100, 4096, 1'000'000}) {
    auto* const ptr = static_cast<char*>(resource.allocate(bytes, stream));
    EXPECT_TRUE(rmm::is_pointer_aligned(ptr, rmm::CUDA_ALLOCATION_ALIGNMENT));
    std::memset(ptr, 1, bytes);
    resource.deallocate(ptr, bytes, stream);
  }
}

TEST_F(SystemMemoryResource, GivesAPointerForNoBytes)
{
  system_memory_resource resource;
  void* const first  = resource.allocate(0, stream);
  void* const second = resource.allocate(0, stream);
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
  EXPECT_NE(first, second);
  resource.deallocate(first, 0, stream);
  resource.deallocate(second, 0, stream);
}

TEST_F(SystemMemoryResource, TakesNullBack)
{
  system_memory_resource resource;
  EXPECT_NO_THROW(resource.deallocate(nullptr, 0, stream));
}

TEST_F(SystemMemoryResource, SaysThatMemoryIsMissing)
{
  if (rmm::test::exhaustion_ends_program) {
    GTEST_SKIP() << "the sanitizer ends a program that exhausts the host's memory";
  }
  system_memory_resource resource;
  constexpr auto largest = std::numeric_limits<std::size_t>::max();
  for (auto const bytes : {pebibyte, largest, largest - 1, largest - 255, largest - 256, largest / 2 + 1}) {
    try {
      resource.allocate(bytes, stream);
      ADD_FAILURE() << "got " << bytes << " bytes";
    } catch (rmm::out_of_memory const& failure) {
      EXPECT_THAT(failure.what(),
                  HasSubstr("Failed to allocate memory: " + std::to_string(bytes) + " bytes of the host: "));
      EXPECT_THAT(failure.what(), HasSubstr("out_of_memory"));
    }
  }
}

TEST_F(SystemMemoryResource, IsEqualToItsClass)
{
  system_memory_resource const resource;
  EXPECT_TRUE(resource == system_memory_resource{});
  EXPECT_FALSE(resource == rmm::mr::cuda_memory_resource{});
}

TEST_F(SystemMemoryResource, ServesContainersAndTheDevice)
{
  system_memory_resource resource;
  rmm::device_buffer const source(1000, stream, resource);
  std::memset(const_cast<void*>(source.data()), 42, source.size());
  rmm::device_buffer const on_device(source, stream, rmm::mr::get_current_device_resource_ref());
  char last{};
  ASSERT_EQ(
    cudaMemcpyAsync(&last, static_cast<char const*>(on_device.data()) + 999, 1, cudaMemcpyDefault, stream.value()),
    cudaSuccess);
  stream.synchronize();
  EXPECT_EQ(last, 42);
}

using SamHeadroomMemoryResource = SystemMemoryResource;

// Returns where CUDA prefers to keep the byte at `ptr`.
int preferred_location(void const* ptr)
{
  int location{};
  EXPECT_EQ(cudaMemRangeGetAttribute(&location, sizeof location, cudaMemRangeAttributePreferredLocation, ptr, 1),
            cudaSuccess);
  return location;
}

TEST_F(SamHeadroomMemoryResource, KeepsMemoryOnTheDeviceWhileThereIsRoom)
{
  sam_headroom_memory_resource resource{0};
  std::size_t const bytes = 4 << 20;
  auto* const ptr         = static_cast<char*>(resource.allocate(bytes, stream));
  EXPECT_EQ(preferred_location(ptr + bytes / 2), rmm::get_current_cuda_device().value());
  resource.deallocate(ptr, bytes, stream);
}

TEST_F(SamHeadroomMemoryResource, KeepsMemoryOnTheHostForTheHeadroom)
{
  sam_headroom_memory_resource resource{std::numeric_limits<std::size_t>::max()};
  std::size_t const bytes = 4 << 20;
  auto* const ptr         = static_cast<char*>(resource.allocate(bytes, stream));
  EXPECT_EQ(preferred_location(ptr + bytes / 2), cudaCpuDeviceId);
  resource.deallocate(ptr, bytes, stream);
}

TEST_F(SamHeadroomMemoryResource, GivesNoAdviceForZeroBytes)
{
  sam_headroom_memory_resource resource{0};
  void* const ptr = resource.allocate(0, stream);
  EXPECT_NE(ptr, nullptr);
  resource.deallocate(ptr, 0, stream);
}

TEST_F(SamHeadroomMemoryResource, SaysThatMemoryIsMissing)
{
  if (rmm::test::exhaustion_ends_program) {
    GTEST_SKIP() << "the sanitizer ends a program that exhausts the host's memory";
  }
  sam_headroom_memory_resource resource{0};
  EXPECT_THROW(resource.allocate(pebibyte, stream), rmm::out_of_memory);
}

TEST_F(SamHeadroomMemoryResource, IsEqualIfTheHeadroomIs)
{
  sam_headroom_memory_resource const resource{100};
  EXPECT_TRUE(resource == sam_headroom_memory_resource{100});
  EXPECT_FALSE(resource == sam_headroom_memory_resource{200});
  EXPECT_FALSE(resource == system_memory_resource{});
  EXPECT_FALSE(system_memory_resource{} == resource);
}

}  // namespace
