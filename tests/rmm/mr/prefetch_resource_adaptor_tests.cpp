// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/prefetch_resource_adaptor.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>

namespace {

using rmm::mr::prefetch_resource_adaptor;

constexpr std::size_t bytes{std::size_t{4} << 20};

int last_location(void* ptr)
{
  int location{};
  EXPECT_EQ(cudaMemRangeGetAttribute(&location, sizeof location, cudaMemRangeAttributeLastPrefetchLocation, ptr, bytes),
            cudaSuccess);
  return location;
}

struct PrefetchAdaptor : ::testing::Test {
  void SetUp() override
  {
    if (rmm::detail::device_attribute(cudaDevAttrConcurrentManagedAccess) == 0) {
      GTEST_SKIP() << "managed memory of this device does not migrate";
    }
  }

  rmm::cuda_stream stream;
  rmm::mr::managed_memory_resource managed;
  prefetch_resource_adaptor<rmm::mr::managed_memory_resource> mr{&managed};
};

TEST_F(PrefetchAdaptor, MovesManagedMemoryToTheCurrentDevice)
{
  void* const plain = managed.allocate(bytes, stream);
  EXPECT_EQ(last_location(plain), cudaInvalidDeviceId);
  managed.deallocate(plain, bytes, stream);

  void* const ptr = mr.allocate(bytes, stream);
  stream.synchronize();
  EXPECT_EQ(last_location(ptr), rmm::get_current_cuda_device().value());
  mr.deallocate(ptr, bytes, stream);
}

TEST_F(PrefetchAdaptor, TakesTheDeviceThatIsCurrentAtEachAllocation)
{
  if (rmm::get_num_cuda_devices() < 2) { GTEST_SKIP() << "there is one device"; }
  rmm::cuda_set_device_raii const other{rmm::cuda_device_id{1}};
  rmm::cuda_stream stream_there;
  void* const ptr = mr.allocate(bytes, stream_there);
  stream_there.synchronize();
  EXPECT_EQ(last_location(ptr), 1);
  mr.deallocate(ptr, bytes, stream_there);
}

TEST_F(PrefetchAdaptor, AllocatesNothing)
{
  EXPECT_NO_THROW(mr.deallocate(mr.allocate(0, stream), 0, stream));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(PrefetchAdaptorOnDeviceMemory, DoesNothing)
{
  rmm::test::counting_upstream upstream;
  prefetch_resource_adaptor mr{&upstream};
  void* ptr{};
  EXPECT_NO_THROW(ptr = mr.allocate(1000));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  mr.deallocate(ptr, 1000);
  EXPECT_EQ(upstream.live_count(), 0U);
}

}  // namespace
