// SPDX-License-Identifier: Apache-2.0
#include "../../support/device_resource_suite.hpp"
#include "../../support/simulated.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/sam_headroom_memory_resource.hpp>
#include <rmm/mr/system_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace {

using rmm::mr::sam_headroom_memory_resource;
using rmm::mr::system_memory_resource;

// Makes devices able to use the host's memory. The machine stays so for the tests of other files.
struct SystemMemory : Simulated {
  static void let_devices_use_host_memory()
  {
    for (int device = 0; device < cudasim::current_options().devices; ++device) {
      cudasim::set_device_attribute(device, cudaDevAttrPageableMemoryAccess, 1);
    }
  }

  void SetUp() override
  {
    Simulated::SetUp();
    let_devices_use_host_memory();
  }

  void TearDown() override
  {
    Simulated::TearDown();
    let_devices_use_host_memory();
  }
};

struct HostMemoryEnvironment : ::testing::Environment {
  void SetUp() override { SystemMemory::let_devices_use_host_memory(); }
};

[[maybe_unused]] auto* const environment = ::testing::AddGlobalTestEnvironment(new HostMemoryEnvironment);

int preferred_location(void const* ptr)
{
  int location{};
  EXPECT_EQ(cudaMemRangeGetAttribute(&location, sizeof location, cudaMemRangeAttributePreferredLocation, ptr, 1),
            cudaSuccess);
  return location;
}

TEST_F(SystemMemory, IsRefusedIfTheDeviceCannotUseIt)
{
  cudasim::set_device_attribute(0, cudaDevAttrPageableMemoryAccess, 0);
  EXPECT_FALSE(rmm::mr::detail::is_system_memory_supported(rmm::cuda_device_id{0}));
  EXPECT_THROW(system_memory_resource{}, rmm::logic_error);
  EXPECT_THROW(sam_headroom_memory_resource{0}, rmm::logic_error);
}

TEST_F(SystemMemory, IsACudaErrorIfTheDeviceDoesNotAnswer)
{
  cudasim::inject({"cudaDeviceGetAttribute", 1, cudaErrorInvalidDevice, 1});
  EXPECT_THROW(static_cast<void>(rmm::mr::detail::is_system_memory_supported(rmm::cuda_device_id{0})), rmm::cuda_error);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(SystemMemory, IsFreedWhenTheStreamHasDoneItsWork)
{
  rmm::cuda_stream const stream;
  system_memory_resource system;
  sam_headroom_memory_resource with_headroom{0};
  for (rmm::mr::device_memory_resource* const resource :
       std::initializer_list<rmm::mr::device_memory_resource*>{&system, &with_headroom}) {
    bool done{false};
    void* const ptr = resource->allocate(1000, stream);
    ASSERT_EQ(cudasim::launch(stream.value(), {}, {{ptr, 1000}}, [&] { done = true; }), cudaSuccess);
    auto const waits = cudasim::calls("cudaStreamSynchronize");
    resource->deallocate(ptr, 1000, stream);
    EXPECT_EQ(cudasim::calls("cudaStreamSynchronize"), waits + 1);
    EXPECT_TRUE(done);
  }
}

TEST_F(SystemMemory, IsSplitWhereTheHeadroomBegins)
{
  std::size_t const bytes    = 8 << 20;
  std::size_t const headroom = rmm::available_device_memory().first - bytes / 2;
  sam_headroom_memory_resource resource{headroom};
  auto* const ptr = static_cast<char*>(resource.allocate(bytes));
  EXPECT_EQ(preferred_location(ptr + bytes / 4), 0);
  EXPECT_EQ(preferred_location(ptr + bytes - bytes / 4), cudaCpuDeviceId);
  resource.deallocate(ptr, bytes);
}

TEST_F(SystemMemory, IsAdvisedOncePerPart)
{
  std::size_t const bytes = 8 << 20;
  auto const calls        = [&](std::size_t headroom) {
    sam_headroom_memory_resource resource{headroom};
    auto const before = cudasim::calls("cudaMemAdvise");
    resource.deallocate(resource.allocate(bytes), bytes);
    return cudasim::calls("cudaMemAdvise") - before;
  };
  auto const free = rmm::available_device_memory().first;
  EXPECT_EQ(calls(0), 1U);
  EXPECT_EQ(calls(free), 1U);
  EXPECT_EQ(calls(free - bytes / 2), 2U);
}

TEST_F(SystemMemory, IsNotLostIfTheDriverTakesNoAdvice)
{
  rmm::cuda_stream const stream;
  sam_headroom_memory_resource resource{0};
  auto const waits = cudasim::calls("cudaStreamSynchronize");
  cudasim::inject({"cudaMemAdvise", 1, cudaErrorInvalidValue, 1});
  EXPECT_THROW(resource.allocate(1 << 20, stream), rmm::cuda_error);
  EXPECT_EQ(cudasim::calls("cudaStreamSynchronize"), waits + 1);  // freed after a wait
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace

// The tests of all resources: see device_mr_ref_tests.cpp.
namespace rmm::test {
INSTANTIATE_TYPED_TEST_SUITE_P(SystemMemory, DeviceMrRefTest, by_default<mr::system_memory_resource>);
}  // namespace rmm::test
